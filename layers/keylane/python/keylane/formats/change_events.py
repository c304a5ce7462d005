"""Change events of a database's row, as Debezium writes them in JSON: what one says of its row.

    {"before": ..., "after": {...}, "op": "u", ...}    op: c, u and r have the row in `after`; d deletes it
    {..., "__deleted": "false"}                        the unwrapped form: the value is the row
    {"schema": {...}, "payload": ...}                  either of them, from a converter with schemas.enable

Source: debezium.io, "Data change events" of each connector, and "New Record State Extraction".
"""

import json
from typing import NamedTuple

from keylane.formats.json_text import members

SETS = ("c", "u", "r")
DELETE = "d"
_MARKS = {"op", "__deleted"}
_DELETED = {'"true"': True, '"false"': False, "true": True, "false": False}


class RowEvent(NamedTuple):
    """What an event says. `row`: the row's JSON, digit by digit as the event has it; None: it is deleted."""

    row: str | None


DELETION = RowEvent(None)


def parse_event(text: str) -> RowEvent:
    """Return what an event's JSON says. Raises ValueError, whose sentence says why it is not an event."""
    found = _present(text)
    if not found.keys() & _MARKS and "payload" in found:
        text = found["payload"]
        found = _present(text)
    if "__deleted" in found:
        is_deleted = _DELETED.get(found["__deleted"])
        if is_deleted is None:
            raise ValueError("it is not a change event: its __deleted is not true or false")
        return DELETION if is_deleted else RowEvent(text)
    if "op" not in found:
        raise ValueError("it is not a change event: it has no op")
    operation = json.loads(found["op"])
    if operation == DELETE:
        return DELETION
    if operation not in SETS:
        raise ValueError(f"it is not a change event of a row: its op is {found['op'][:20]}")
    if not found.get("after", "").startswith("{"):
        raise ValueError("it is not a change event: it has no after")
    return RowEvent(found["after"])


def _present(text: str) -> dict[str, str]:
    """Return the object's members that are not null."""
    return {name: value for name, value in members(text).items() if value != "null"}
