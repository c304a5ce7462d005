"""The types of fields by which records are found: one table, which says all that depends on a type.

A new type is a line here, one in the table of the client's fake (`keylane_client.testing.finding`), and one
in docs/use/find.md. The job may have a form of whole columns for it besides (`ordered_forms`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from keylane.formats.json_text import INTEGER, Digits
from keylane.state.ordered import NotOrdered, encode_boolean, encode_number, encode_text, encode_time

MOST_ELEMENTS = 64
"""Different elements of `texts`; a field with more has no value."""


class FieldType(NamedTuple):
    """A type of fields.

    `encode`: the form of a value, from the text that a request has for it. `values`: the forms of what a
    document has, which is not null (`parse_verbatim`). Both raise NotOrdered for what is not of the type.
    `is_text`: values are texts: they have prefixes, and long ones are cut (`ordered.encode_text`).
    `is_many`: a record may have several values, so that they are no order, and not in an index of several
    fields.
    """

    encode: Callable[[str], bytes]
    values: Callable[[Any], Sequence[bytes]]
    is_text: bool = False
    is_many: bool = False


def _text(found: Any) -> Sequence[bytes]:
    if type(found) is not str:
        raise NotOrdered("type", "is not a text")
    return (encode_text(found),)


def _number(found: Any) -> Sequence[bytes]:
    if type(found) is not Digits and type(found) is not str:
        raise NotOrdered("type", "is not a number")
    return (encode_number(found),)


def _time(found: Any) -> Sequence[bytes]:
    if type(found) is not Digits and type(found) is not str:
        raise NotOrdered("type", "is not a time")
    return (encode_time(found),)


def _time_in(factor: int, exponent: str = "") -> Callable[[Any], Sequence[bytes]]:
    """Whole numbers of a unit that is `factor` times 10 to the exponent ms; others are as of `time`."""

    def values(found: Any) -> Sequence[bytes]:
        if (type(found) is Digits or type(found) is str) and INTEGER.fullmatch(found):
            return (encode_number(f"{int(found) * factor}{exponent}"),)
        return _time(found)

    return values


def _boolean(found: Any) -> Sequence[bytes]:
    if type(found) is not bool:
        raise NotOrdered("type", "is not a boolean")
    return (encode_boolean("true" if found else "false"),)


def _elements(found: Any) -> Sequence[bytes]:
    elements = found if type(found) is list else (found,)
    values = {encode_text(each) for each in elements if type(each) is str}
    if len(values) > MOST_ELEMENTS:
        raise NotOrdered("long", f"has more than {MOST_ELEMENTS} elements")
    if not values and elements:
        raise NotOrdered("type", "has no text")
    return sorted(values)


FIELD_TYPES: Mapping[str, FieldType] = {
    "text": FieldType(encode_text, _text, is_text=True),
    "number": FieldType(encode_number, _number),
    "time": FieldType(encode_time, _time),
    "time_s": FieldType(encode_time, _time_in(1000)),
    "time_us": FieldType(encode_time, _time_in(1, "e-3")),
    "time_ns": FieldType(encode_time, _time_in(1, "e-6")),
    "time_days": FieldType(encode_time, _time_in(86_400_000)),
    "boolean": FieldType(encode_boolean, _boolean),
    "texts": FieldType(encode_text, _elements, is_text=True, is_many=True),
}
"""By their names; `time_us`: a number counts microseconds, and so on; `texts`: an array, an element each.
Requests have times in ms or ISO 8601, whatever the unit of the values is."""
