"""Filters of a query that the service can answer: a prefix of keys, and conditions on the topic's fields.

Spark applies every filter again. So a condition may let through more than its filter does, and never less:
what the service compares otherwise than Spark is left to Spark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from keylane_client.conditions import FieldCondition, Wanted, all_of, between, condition_of, starting_with
from keylane_client.errors import InvalidArgument

_NUMBERS = (ByteType, ShortType, IntegerType, LongType, DoubleType, DecimalType)
_TYPES: Mapping[str, tuple[type[DataType], ...]] = {
    "text": (StringType,),
    "number": _NUMBERS,
    "time": (TimestampType,),
    "boolean": (BooleanType,),
}
"""The columns that the service compares as Spark does, by the kind of their field."""
_RENDERED = "{[-0123456789"
"""How a column of strings begins where the value is another one; else it is true or false."""
_STEP = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class TopicFields:
    """What can be asked of a topic. `kinds`: by the names of its fields; `has_text_keys`: keys are texts."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    has_text_keys: bool = False


@dataclass(slots=True)
class PushedFilters:
    """What the service is asked for: keys with the prefix, and records that meet the conditions."""

    prefix: str | None = None
    conditions: dict[str, FieldCondition] = field(default_factory=dict)

    def add(self, filters: Iterable[Filter], fields: TopicFields, schema: StructType) -> None:
        """Take what the service can answer of filters that must all be met."""
        for each in filters:
            column, value = getattr(each, "attribute", ()), getattr(each, "value", None)
            if column == ("key",) and fields.has_text_keys and isinstance(value, str):
                if isinstance(each, (EqualTo, StringStartsWith)) and len(value) > len(self.prefix or ""):
                    self.prefix = value
            elif column[:1] == ("value",) and not any("." in name for name in column):
                self._add_condition(each, ".".join(column[1:]), fields, _type_of(schema, column))

    def _add_condition(self, asked: Filter, name: str, fields: TopicFields, column: DataType | None) -> None:
        kind = fields.kinds.get(name, "")
        if not isinstance(column, _TYPES.get(kind, ())):
            return
        try:
            wanted = _of_text(asked) if kind == "text" else _of_order(asked, kind)
            if wanted is None:
                return
            found = condition_of(wanted)
            known = self.conditions.get(name)
            self.conditions[name] = found if known is None else all_of(known, found)
        except InvalidArgument:
            return  # what a condition can't spell, such as NaN


def _type_of(schema: StructType, path: tuple[str, ...]) -> DataType | None:
    """Return the type of a column, or of a field of one; None where there is none."""
    found: DataType = schema
    for name in path:
        if not isinstance(found, StructType) or name not in found.names:
            return None
        found = found[name].dataType
    return found


def _of_text(asked: Filter) -> Wanted | None:
    """Return the condition on texts. A string that another value may be shown as is left to Spark."""
    if isinstance(asked, EqualTo) and isinstance(asked.value, str):
        return None if _is_json(asked.value) else asked.value
    if isinstance(asked, StringStartsWith):
        text = asked.value
        is_of_other = text[:1] in _RENDERED or "true".startswith(text) or "false".startswith(text)
        return None if is_of_other else starting_with(text)
    return None


def _of_order(asked: Filter, kind: str) -> Wanted | None:
    """Return the condition on numbers, times or booleans, which has the bound of an open range, too."""
    if not isinstance(asked, (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)):
        return None
    value = asked.value
    if not _is_value(value, kind):
        return None
    try:
        low, high = _bounds_of(value)
    except OverflowError:  # the first or the last time
        return None
    if isinstance(asked, EqualTo):
        return value if low == high else between(low, high)
    if kind == "boolean":
        return None
    return between(low, None) if isinstance(asked, (GreaterThan, GreaterThanOrEqual)) else between(None, high)


def _bounds_of(value: Any) -> tuple[Any, Any]:
    """Return bounds of what the column shows as this value, whose digits the service compares.

    A float is the nearest one to the digits, and a time has microseconds.
    """
    if isinstance(value, float):
        return math.nextafter(value, -math.inf), math.nextafter(value, math.inf)
    return (value - _STEP, value + _STEP) if isinstance(value, datetime) else (value, value)


def _is_value(value: Any, kind: str) -> bool:
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    return isinstance(value, datetime) == (kind == "time") and not isinstance(value, (str, bytes, list))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
