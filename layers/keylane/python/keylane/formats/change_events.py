"""Change events of a database's row, as Debezium writes them in JSON: what one says of its row.

    {"before": ..., "after": {...}, "op": "u", ...}    op: c, u and r have the row in `after`; d deletes it
    {..., "__deleted": "false"}                        the unwrapped form: the value is the row
    {"schema": {...}, "payload": ...}                  either of them, from a converter with schemas.enable
    {..., "after": "...", "op": "u"}                   MongoDB's: a document of extended JSON in a string;
                                                       the row is its plain JSON (see `extended_json`)

Source: debezium.io, "Data change events" of each connector, and "New Record State Extraction".
"""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from keylane.formats.extended_json import to_plain
from keylane.formats.json_text import is_json, members

SETS = ("c", "u", "r")
DELETE = "d"
DELETED: Mapping[str | bool, bool] = {"true": True, "false": False, True: True, False: False}
"""Whether the row is deleted, by `__deleted`."""
_MARKS = {"op", "__deleted"}
_HALF_PAIR = re.compile("[\ud800-\udfff]")


class RowEvent(NamedTuple):
    """What an event says. `text`: the row as the event has it, which is extended JSON with `is_extended`.

    None: the row is deleted. `schema`: that of the event, where it is beside the payload.
    """

    text: str | None
    schema: str | None = None
    is_extended: bool = False

    @property
    def row(self) -> str | None:
        """The row's JSON, digit by digit as the event has it; None: it is deleted."""
        return to_plain(self.text) if self.is_extended and self.text else self.text


DELETION = RowEvent(None)


def parse_event(text: str) -> RowEvent:
    """Return what an event's JSON says. Raises ValueError, whose sentence says why it is not an event."""
    found, schema = _present(text), None
    if not found.keys() & _MARKS and "payload" in found:
        text, schema = found["payload"], found.get("schema")
        found = _present(text)
    if "__deleted" in found:
        mark = json.loads(found["__deleted"])
        is_deleted = DELETED.get(mark) if isinstance(mark, str | bool) else None
        if is_deleted is None:
            raise ValueError("it is not a change event: its __deleted is not true or false")
        return DELETION if is_deleted else RowEvent(text, schema)
    if "op" not in found:
        raise ValueError("it is not a change event: it has no op")
    operation = json.loads(found["op"])
    if operation == DELETE:
        return DELETION
    if operation not in SETS:
        raise ValueError(f"it is not a change event of a row: its op is {found['op'][:20]}")
    after = found.get("after", "")
    if after.startswith('"'):
        return RowEvent(_document(json.loads(after)), schema, is_extended=True)
    if after.startswith("{"):
        return RowEvent(after, schema)
    if "updateDescription" in found:
        raise ValueError(
            "it is an update without its document (updateDescription alone): Debezium's connector for MongoDB"
            " writes documents with capture.mode=change_streams_update_full"
        )
    raise ValueError("it is not a change event: it has no after")


def _document(text: str) -> str:
    """Return a document of MongoDB. Raises ValueError."""
    # Half a surrogate pair is JSON as an escape alone.
    text = _HALF_PAIR.sub(lambda half: f"\\u{ord(half[0]):04x}", text.strip(" \t\r\n"))
    if not text.startswith("{") or not is_json(text):
        raise ValueError("it is not a change event: its after is not a JSON object")
    return text


def _present(text: str) -> dict[str, str]:
    """Return the object's members that are not null."""
    return {name: value for name, value in members(text).items() if value != "null"}
