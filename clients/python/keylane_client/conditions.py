"""Conditions on fields, as `find` takes them and as the API spells them.

A value alone is equality. A text that would be read as a range, a prefix or a JSON string is sent as a JSON
string, so equality is equality, whatever the text has in it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from keylane_client.errors import InvalidArgument

FieldValue = str | int | float | Decimal | bool | datetime | date | UUID | Enum
"""A value of a field: of `time` a datetime, a date (its midnight in UTC), ms since 1970, or ISO 8601."""


@dataclass(frozen=True, slots=True)
class FieldCondition:
    """What a field's value must be, as the API spells it: several texts must all be met.

    `between`, `starting_with` and `all_of` make them.
    """

    texts: tuple[str, ...]


Wanted = FieldValue | FieldCondition
Conditions = Mapping[str, Wanted]
"""By the names of fields, as in `customer.country`."""


def between(
    low: FieldValue | None = None, high: FieldValue | None = None, *, below: FieldValue | None = None
) -> FieldCondition:
    """Values from `low` on up to `high`, both included; or below `below`. What is None is open.

    `between()`: any value. Raises InvalidArgument, also for a text that no range can have as its bound.
    """
    if high is not None and below is not None:
        raise InvalidArgument("high and below exclude each other: one is in the range, the other is not")
    bounds = ["" if each is None else _text_of(each) for each in (low, high, below)]
    if any(".." in each or each[:1] in {'"', "<"} for each in bounds):
        raise InvalidArgument("a text with .. in it, or that begins with a quote or with <, bounds no range")
    first, last, end = bounds
    return FieldCondition((f"{first}..{last}" if below is None else f"{first}..<{end}",))


def starting_with(prefix: str) -> FieldCondition:
    """Texts that begin with this. Raises InvalidArgument for what no prefix can be."""
    if not isinstance(prefix, str):
        raise InvalidArgument(f"a prefix is a string, not {type(prefix).__name__}")
    if ".." in prefix or prefix.startswith('"'):
        raise InvalidArgument("a text with .. in it, or that begins with a quote, is no prefix")
    return FieldCondition((f"{prefix}*",))


def all_of(*wanted: Wanted) -> FieldCondition:
    """Every one of these, such as several of a record's tags. Raises InvalidArgument."""
    if not wanted:
        raise InvalidArgument("all_of needs a condition")
    return FieldCondition(tuple(text for each in wanted for text in condition_of(each).texts))


def texts_of(conditions: Conditions) -> dict[str, tuple[str, ...]]:
    """Return the conditions of each field, as the API spells them. Raises InvalidArgument."""
    return {name: condition_of(wanted).texts for name, wanted in conditions.items()}


def condition_of(wanted: Wanted) -> FieldCondition:
    """Return a condition; of a value, equality. Raises InvalidArgument for what is neither."""
    if isinstance(wanted, FieldCondition):
        return wanted
    text = _text_of(wanted)
    is_read_otherwise = not text or text.startswith('"') or text.endswith("*") or ".." in text
    return FieldCondition((json.dumps(text, ensure_ascii=False) if is_read_otherwise else text,))


def _text_of(value: Any) -> str:
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (float, Decimal)) and not math.isfinite(value):
        raise InvalidArgument(f"{value} is not a number that a field can have")
    if isinstance(value, datetime):
        # A datetime without a zone is local time, as everywhere in Python.
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (str, int, float, Decimal, UUID)):
        return str(value)
    if value is None:
        raise InvalidArgument("no record is found by a field that it lacks, or that is null")
    advice = ": all_of(...) is for several conditions" if isinstance(value, (list, tuple, set)) else ""
    raise InvalidArgument(f"{type(value).__name__} is not a value of a field{advice}")
