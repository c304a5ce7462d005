"""Bodies with records to be written: JSON whose fields are typed and bounded, the first fault named.

All of a body is checked before any of its records is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any

from keylane.api.event import body_of
from keylane.errors import BadField, BadRequest, TooLarge
from keylane.formats.json_text import finite, no_constant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from keylane.api.event import Event
    from keylane.model.records import NewRecord

RECORDS_LIMIT = 10_000
TOPICS_LIMIT = 100
"""Of one request: the client asks for each topic that it does not know yet."""
BODY_LIMIT_BYTES = 6 * 1024 * 1024
"""Lambda's own of a request; API Gateway's is 10 MB."""
LAST_PARTITION = 2**31 - 1


_decoder = json.JSONDecoder(parse_constant=no_constant, parse_float=finite)


@dataclass(slots=True)
class Given:
    """A record as its client wrote it: the fields of a JSON object, and its place in `records`.

    A field that is null is one that isn't there. Each reader raises BadField for a wrong type or bound.
    """

    index: int
    fields: Mapping[str, Any]

    def refuse(self, field: str, fault: str) -> BadField:
        """The error that says so."""
        return BadField(fault, field, self.index)

    def text(self, field: str) -> bytes | None:
        """A text, in UTF-8."""
        return None if self.fields.get(field) is None else self.needed(field)

    def needed(self, field: str) -> bytes:
        """A text that must be there, in UTF-8."""
        return self.utf8(field, self.needed_text(field))

    def needed_text(self, field: str) -> str:
        """A text that must be there; it may be none that UTF-8 has bytes for."""
        found = self.fields.get(field)
        if isinstance(found, str):
            return found
        what = "is missing: it is a text" if found is None else f"is {kind_of(found)}, not a text"
        raise self.refuse(field, what)

    def whole(self, field: str, least: int, most: int) -> int | None:
        """A whole number within bounds."""
        found = self.fields.get(field)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self.refuse(field, f"is not a whole number of {least} to {most}")
        return found

    def utf8(self, field: str, text: str) -> bytes:
        """The bytes of a text; half of a surrogate pair has none."""
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise self.refuse(field, "holds characters that are no Unicode text") from error


def document_of(event: Event) -> dict[str, Any]:
    """The body, a JSON object. Raises BadRequest, TooLarge."""
    body = body_of(event)
    if len(body) > BODY_LIMIT_BYTES:
        raise TooLarge("body", len(body), BODY_LIMIT_BYTES)
    try:
        document = _decoder.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is no JSON; no record was written", "body") from error
    if not isinstance(document, dict):
        raise BadRequest(f"the body is {kind_of(document)}, not an object; no record was written", "body")
    return document


def records_in(document: Mapping[str, Any], least: int) -> list[Given]:
    """Its `records`, each an object, not read any further. Raises BadField."""
    records = document.get("records")
    if not isinstance(records, list) or not least <= len(records) <= RECORDS_LIMIT:
        count = f"has {len(records)} records" if isinstance(records, list) else "is no list"
        raise BadField(f"{count}: {least} to {RECORDS_LIMIT} are taken", "records")
    for index, record in enumerate(records):
        if not isinstance(record, dict):
            raise BadField(f"is {kind_of(record)}, not an object", "", index)
    return list(starmap(Given, enumerate(records)))


def check_topics(records: Iterable[NewRecord]) -> None:
    """Raise BadField where the records name more topics than a request may."""
    count = len({record.topic for record in records})
    if count > TOPICS_LIMIT:
        raise BadField(f"names {count} topics: {TOPICS_LIMIT} at most are taken", "records")


def kind_of(found: Any) -> str:
    """What JSON calls it."""
    if found is None or isinstance(found, bool):
        return "null" if found is None else "a boolean"
    kinds = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds[type(found)]
