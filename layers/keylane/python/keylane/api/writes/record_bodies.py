"""JSON bodies with records to write: their fields are typed and bounded, and the first fault is named.

The complete body is checked before the first record is written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from keylane.api.http.request import Request
from keylane.errors import BadField, BadRequest, BadValue, TooLarge
from keylane.formats import json_text
from keylane.model.records import NewRecord

RECORDS_LIMIT = 10_000
TOPICS_LIMIT = 100
"""Topics of one request: Kafka's client looks up each topic that it doesn't know yet."""
BODY_LIMIT_BYTES = 6 * 1024 * 1024
"""Lambda's limit for a request; API Gateway's is 10 MB."""
LAST_PARTITION = 2**31 - 1


@dataclass(slots=True)
class RecordFields:
    """A record of a request: the fields of its JSON object, and its index in `records`.

    A field that is null counts as absent. Every method that reads a field raises BadField.
    """

    index: int
    by_name: Mapping[str, Any]

    def fault(self, field: str, fault: str) -> BadField:
        """The error that reports this fault of a field."""
        return BadField(fault, field, self.index)

    def bad_value(self, field: str, fault: str) -> BadValue:
        """The error that reports a value of another type than the field's, or one that can't be decoded."""
        return BadValue(fault, field, self.index)

    def utf8(self, field: str) -> bytes | None:
        """The bytes of an optional string."""
        return None if self.by_name.get(field) is None else self.required_utf8(field)

    def required_utf8(self, field: str) -> bytes:
        """The bytes of a required string."""
        return self.to_utf8(field, self.required_string(field))

    def required_string(self, field: str) -> str:
        """Return a required string; it may contain a lone surrogate, which UTF-8 can't encode.

        Raises BadField if it is missing or not a string.
        """
        found = self.by_name.get(field)
        if isinstance(found, str):
            return found
        if found is None:
            raise self.fault(field, "is missing: a string is required")
        raise self.bad_value(field, f"is {kind_of(found)}, not a string")

    def integer(self, field: str, least: int, most: int) -> int | None:
        """Return an optional integer, None if it is missing or null.

        Raises BadField unless it is an integer from `least` to `most`.
        """
        found = self.by_name.get(field)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int):
            raise self.bad_value(field, f"is not an integer from {least} to {most}")
        if not least <= found <= most:
            raise self.fault(field, f"is not an integer from {least} to {most}")
        return found

    def to_utf8(self, field: str, text: str) -> bytes:
        """Encode a field's text. Raises BadField for a lone surrogate."""
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise self.bad_value(field, "holds characters that are not valid Unicode") from error


def parse_document(request: Request) -> dict[str, Any]:
    """Parse the body, a JSON object. Raises BadRequest, BadField if it is empty or null, TooLarge."""
    body = request.content()
    if len(body) > BODY_LIMIT_BYTES:
        raise TooLarge("body", len(body), BODY_LIMIT_BYTES)
    document = parse_json(body, "; no record was written") if body.strip() else None
    if document is None:
        raise BadField("is empty or null: it must be a JSON object", "body")
    if not isinstance(document, dict):
        raise BadRequest(f"the body is {kind_of(document)}, not an object; no record was written", "body")
    return document


def parse_json(body: bytes, consequence: str = "") -> Any:
    """Parse a body. Raises BadRequest, whose message says what is wrong, and then the consequence."""
    try:
        return json_text.parse(body)
    except ValueError as error:
        raise BadRequest(f"the body {json_text.why_not_json(error)}{consequence}", "body") from error


def parse_records(document: Mapping[str, Any], least: int) -> list[RecordFields]:
    """Return the objects in `records`, without a check of their fields.

    Raises BadField unless there are `least` to RECORDS_LIMIT objects.
    """
    records = document.get("records")
    allowed = f"{least} to {RECORDS_LIMIT} are allowed"
    if records is None:
        raise BadField(f"is not an array: {allowed}", "records")
    if not isinstance(records, list):
        raise BadValue(f"is not an array: {allowed}", "records")
    if not least <= len(records) <= RECORDS_LIMIT:
        raise BadField(f"has {len(records)} records: {allowed}", "records")
    for index, record in enumerate(records):
        if not isinstance(record, dict):
            raise BadValue(f"is {kind_of(record)}, not an object", "", index)
    return list(starmap(RecordFields, enumerate(records)))


def check_topics(records: Iterable[NewRecord]) -> None:
    """Raise BadField if the records name more topics than a request may."""
    count = len({record.topic for record in records})
    if count > TOPICS_LIMIT:
        raise BadField(f"names {count} topics: at most {TOPICS_LIMIT} are allowed", "records")


def kind_of(found: Any) -> str:
    """The JSON type of a value, with its article."""
    if found is None or isinstance(found, bool):
        return "null" if found is None else "a boolean"
    kinds = {str: "a string", int: "a number", float: "a number", list: "an array", dict: "an object"}
    return kinds[type(found)]
