"""Which filters of Spark are asked of the service: never one that leaves out a row that Spark would keep."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)
from pyspark.sql.types import ArrayType, StringType, StructType

from keylane_client.spark.filters import PushedFilters, TopicFields

NAMED = StructType().add("name", "string")
VALUE = (
    StructType()
    .add("dest", "string")
    .add("delay", "double")
    .add("seats", "integer")
    .add("small", "float")
    .add("left", "timestamp")
    .add("late", "boolean")
    .add("tags", ArrayType(StringType()))
    .add("carrier", NAMED)
    .add("undeclared", "string")
    .add("a.b", "string")
    .add("typed", "string")
)
SCHEMA = StructType().add("key", "string").add("value", VALUE).add("offset", "long")
KINDS = {
    "dest": "text",
    "delay": "number",
    "seats": "number",
    "small": "number",
    "left": "time",
    "late": "boolean",
    "tags": "texts",
    "carrier.name": "text",
    "a.b": "text",
    "typed": "number",
}
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
DEST, DELAY = ("value", "dest"), ("value", "delay")


def pushed(*filters: Filter, has_text_keys: bool = True) -> PushedFilters:
    found = PushedFilters()
    found.add(filters, TopicFields(KINDS, has_text_keys), SCHEMA)
    return found


@pytest.mark.parametrize(
    ("asked", "texts"),
    [
        (EqualTo(DEST, "LAX"), {"dest": ("LAX",)}),
        (EqualTo(DEST, "L*"), {"dest": ('"L*"',)}),
        (EqualTo(("value", "carrier", "name"), "United"), {"carrier.name": ("United",)}),
        (StringStartsWith(DEST, "L"), {"dest": ("L*",)}),
        (EqualTo(("value", "seats"), 5), {"seats": ("5",)}),
        (GreaterThan(("value", "seats"), 5), {"seats": ("5..",)}),
        (GreaterThanOrEqual(DELAY, 60.0), {"delay": ("59.99999999999999..",)}),
        (LessThan(("value", "seats"), -5), {"seats": ("..-5",)}),
        (LessThanOrEqual(DELAY, 0.5), {"delay": ("..0.5000000000000001",)}),
        (EqualTo(DELAY, 0.5), {"delay": ("0.49999999999999994..0.5000000000000001",)}),
        (EqualTo(("value", "late"), True), {"late": ("true",)}),
        (GreaterThanOrEqual(("value", "left"), NOON), {"left": ("2026-11-29T11:59:59.999999Z..",)}),
        (LessThan(("value", "left"), NOON), {"left": ("..2026-11-29T12:00:00.000001Z",)}),
        (
            EqualTo(("value", "left"), NOON),
            {"left": ("2026-11-29T11:59:59.999999Z..2026-11-29T12:00:00.000001Z",)},
        ),
    ],
)
def test_a_condition_on_a_declared_field_is_asked_for(asked: Filter, texts: dict[str, tuple[str, ...]]):
    found = pushed(asked)
    assert {name: each.texts for name, each in found.conditions.items()} == texts
    assert found.prefix is None


@pytest.mark.parametrize(
    "asked",
    [
        # A number, true or null is shown as these strings, which the field of texts does not have.
        *(EqualTo(DEST, text) for text in ("5", "true", "null", "[1]", '"a"', "-1e5")),
        *(StringStartsWith(DEST, text) for text in ("", "5", "-", "t", "fal", "{", "[", "a..b")),
        GreaterThan(DEST, "L"),
        EqualTo(("value", "undeclared"), "x"),
        EqualTo(("value", "a.b"), "x"),
        EqualTo(("value", "a", "b"), "x"),
        EqualTo(("value", "typed"), "5"),
        EqualTo(("value", "small"), 0.5),
        EqualTo(("value", "tags"), ["a"]),
        EqualTo(("value", "late"), None),
        GreaterThan(("value", "late"), False),
        EqualTo(DELAY, math.nan),
        EqualTo(DELAY, math.inf),
        EqualTo(DELAY, True),
        EqualTo(("value", "left"), datetime.max.replace(tzinfo=UTC)),
        EqualTo(("value",), "x"),
        EqualTo(("offset",), 5),
        EqualNullSafe(DEST, "LAX"),
        In(DEST, ("LAX", "SFO")),
        IsNotNull(DEST),
        Not(EqualTo(DEST, "LAX")),
        Not(StringStartsWith(("key",), "a")),
        StringContains(DEST, "LAX"),
        LessThan(("key",), "a"),
    ],
)
def test_what_the_service_would_decide_otherwise_is_left_to_spark(asked: Filter):
    assert pushed(asked) == PushedFilters()


def test_the_longest_prefix_of_keys_is_asked_for_unless_keys_are_typed():
    filters = StringStartsWith(("key",), "US/"), EqualTo(("key",), "US/12"), StringStartsWith(("key",), "U")
    assert pushed(*filters).prefix == "US/12"
    assert pushed(*filters, has_text_keys=False).prefix is None


def test_several_conditions_on_a_field_are_all_asked_for():
    found = pushed(GreaterThan(("value", "seats"), 5), LessThan(("value", "seats"), 9), EqualTo(DEST, "LAX"))
    assert {name: each.texts for name, each in found.conditions.items()} == {
        "seats": ("5..", "..9"),
        "dest": ("LAX",),
    }
