"""Records of the fake by the fields of their values: conditions as the API spells them, and the order."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from keylane_client.testing.log import FakeRecord

PARAMETERS = frozenset(
    {
        *("prefix", "key_format", "order", "count", "limit", "cursor"),
        *("fields", "event", "partial", "max_age_ms", "as_of"),
    }
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Test = Callable[[Any], bool]


class BadQuestion(ValueError):
    """What the service answers with 400."""


@dataclass(frozen=True, slots=True)
class FakeFind:
    """What is asked of a topic: records that meet all tests, ordered by a field's values, else by key."""

    fields: Mapping[str, str]
    tests: Sequence[tuple[str, Test]]
    order: str | None
    is_descending: bool

    def rows(self, records: Iterator[FakeRecord]) -> list[tuple[FakeRecord, bytes]]:
        """Return the records in order, each with the cursor of a page that ends at it."""
        found = [(self._place(each), each) for each in records if self._is_met(each)]
        found.sort(key=lambda row: row[0], reverse=self.is_descending)
        return [(record, _cursor_of(place)) for place, record in found]

    def is_behind(self, record: FakeRecord, cursor: bytes) -> bool:
        """Return whether a record comes after the page that ended there."""
        value, key = json.loads(cursor)
        kind = self.fields[self.order] if self.order else "text"
        end, place = (parse_field(kind, value), base64.b64decode(key)), self._place(record)
        return place < end if self.is_descending else place > end

    def _place(self, record: FakeRecord) -> tuple[Any, bytes]:
        key = record.key or b""
        if self.order is None:
            return b"", key
        return values_of(record, self.order, self.fields[self.order])[0], key

    def _is_met(self, record: FakeRecord) -> bool:
        asked = [*self.tests, *([(self.order, lambda _: True)] if self.order else [])]
        return all(any(map(test, values_of(record, name, self.fields[name]))) for name, test in asked)


def parse_find(fields: Mapping[str, str], query: Sequence[tuple[str, str]]) -> FakeFind:
    """Parse the parameters of a request. Raises BadQuestion."""
    tests, order = [], None
    for name, text in query:
        if name == "as_of":
            raise BadQuestion("indexes of fields have the latest records alone")
        if name == "order":
            order = text
        elif name not in PARAMETERS:
            field = _known(fields, name)
            tests.append((field, _test_of(fields[field], text)))
    ordered_by = None if order is None else _known(fields, order.removeprefix("-"))
    if ordered_by is not None and FIELD_TYPES[fields[ordered_by]].is_many:
        raise BadQuestion(f"{ordered_by} has several values for a record: it can't be an order")
    if not tests and ordered_by is None:
        raise BadQuestion(f"give a condition or an order: {_described(fields)}")
    return FakeFind(fields, tests, ordered_by, (order or "").startswith("-"))


def values_of(record: FakeRecord, name: str, kind: str) -> list[Any]:
    """Return the values that a record has in a field: none, one, or those of an array."""
    try:
        found = json.loads(record.value or b"", parse_float=Decimal)
    except ValueError:
        return []
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    own = FIELD_TYPES[kind]
    elements = found if own.is_many and isinstance(found, list) else [found]
    parsed = (own.parse(_text_of(each, own.unit_ms)) for each in elements if own.is_value(each))
    return [value for value in parsed if value is not None]


def parse_field(kind: str, text: str) -> Any:
    """Return a value as fields of this type compare it. Raises BadQuestion."""
    value = FIELD_TYPES[kind].parse(text)
    if value is None:
        raise BadQuestion(f"{text!r} is not a {kind}")
    return value


class FieldType(NamedTuple):
    """A type of fields, as the service has it.

    `parse`: what compares as the service compares values, from the text that a request has; None for what is
    none. `is_value`: whether what a document has may be one. `is_text`: has prefixes. `is_many`: a record may
    have several. `unit_ms`: what a whole number in a document counts.
    """

    parse: Callable[[str], Any]
    is_value: Callable[[Any], bool]
    is_text: bool = False
    is_many: bool = False
    unit_ms: Decimal = Decimal(1)


def _parse_number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _parse_time(text: str) -> Decimal | None:
    number = _parse_number(text)
    if number is not None:
        return number
    try:
        # Python 3.10 does not know the Z.
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return Decimal((moment - _EPOCH) // timedelta(microseconds=1)) / 1000


def _is_text(found: Any) -> bool:
    return isinstance(found, str)


def _is_number(found: Any) -> bool:
    return isinstance(found, (int, Decimal, str)) and not isinstance(found, bool)


def _is_boolean(found: Any) -> bool:
    return isinstance(found, bool)


def _text_of(found: Any, unit_ms: Decimal) -> str:
    if unit_ms != 1 and re.fullmatch(r"-?[0-9]{1,40}", str(found)):
        return str(int(found) * unit_ms)
    return str(found).lower() if isinstance(found, bool) else str(found)


FIELD_TYPES: Mapping[str, FieldType] = {
    "text": FieldType(str.encode, _is_text, is_text=True),
    "number": FieldType(_parse_number, _is_number),
    "time": FieldType(_parse_time, _is_number),
    **{
        f"time_{unit}": FieldType(_parse_time, _is_number, unit_ms=Decimal(unit_ms))
        for unit, unit_ms in (("s", 1000), ("us", "1e-3"), ("ns", "1e-6"), ("days", 86_400_000))
    },
    "boolean": FieldType({"true": True, "false": False}.get, _is_boolean),
    "texts": FieldType(str.encode, _is_text, is_text=True, is_many=True),
}


def _cursor_of(place: tuple[Any, bytes]) -> bytes:
    value, key = place
    text = value.decode() if isinstance(value, bytes) else str(value).lower()
    return json.dumps([text, base64.b64encode(key).decode()]).encode()


def _known(fields: Mapping[str, str], name: str) -> str:
    field = name.removeprefix(".")
    if field not in fields:
        raise BadQuestion(f"{field!r} is neither a field nor a parameter; {_described(fields)}")
    return field


def _described(fields: Mapping[str, str]) -> str:
    return "the topic has the fields " + ", ".join(f"{name} ({fields[name]})" for name in sorted(fields))


def _test_of(kind: str, text: str) -> Test:
    if text.startswith('"'):
        try:
            wanted = json.loads(text)
        except ValueError:
            raise BadQuestion(f"{text} begins with a quote, and is not a JSON string") from None
        return _equal_to(parse_field(kind, wanted))
    low, separator, high = text.partition("..")
    if separator:
        return _between(
            parse_field(kind, low) if low else None,
            parse_field(kind, end) if (end := high.removeprefix("<")) else None,
            is_below=high.startswith("<"),
        )
    if text.endswith("*"):
        if not FIELD_TYPES[kind].is_text:
            raise BadQuestion("a prefix is of texts; a range is written 10..20")
        prefix = text[:-1].encode()
        return lambda value: value.startswith(prefix)
    return _equal_to(parse_field(kind, text))


def _equal_to(wanted: Any) -> Test:
    return lambda value: bool(value == wanted)


def _between(low: Any, high: Any, *, is_below: bool) -> Test:
    def is_met(value: Any) -> bool:
        is_low_enough = high is None or (value < high if is_below else value <= high)
        return is_low_enough and (low is None or value >= low)

    return is_met
