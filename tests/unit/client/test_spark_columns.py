"""Records as rows of Spark, without a session of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    StringType,
    StructType,
    YearMonthIntervalType,
)

from keylane_client import InvalidArgument, Position, Record, ValueMismatch, parse_exactly
from keylane_client.spark.columns import TableColumns

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
NOON_MS = 1_795_953_600_000


def a_record(value: Any, key: Any = "k", value_format: str = "json", **more: Any) -> Record:
    position = Position(2, 7)
    return Record("t", key, value, position, NOON_MS, None, timedelta(), value_format, **more)


def column(record: Record, kind: DataType | str, name: str = "value") -> Any:
    schema = StructType().add(name, kind)
    batch = TableColumns(schema).batch([record], 9)
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    return batch.to_pylist()[0][name]


HUGE = (Decimal("1E+999999999999"), Decimal("-1E+999999999999"), Decimal("1E-999999999999"))
"""To make an int of the first takes hours."""


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("string", "é", "é"),
        ("string", 5, "5"),
        ("string", {"a": [True, None]}, '{"a": [true, null]}'),
        ("boolean", False, False),
        ("integer", 5, 5),
        ("long", 5.0, 5),
        ("byte", -128, -128),
        ("double", 5, 5.0),
        ("float", 0.5, 0.5),
        (DecimalType(5, 2), Decimal("1.50"), Decimal("1.50")),
        (DecimalType(5, 2), 3, Decimal("3.00")),
        ("timestamp", NOON_MS, NOON),
        ("timestamp", "2026-11-29T12:00:00Z", NOON),
        ("timestamp", "2026-11-29T13:00:00+01:00", NOON),
        ("timestamp", "2026-11-29 12:00:00", NOON),
        (DateType(), "2026-11-29", date(2026, 11, 29)),
        (ArrayType(StringType()), ["a", None, 1], ["a", None, "1"]),
        (StructType().add("y", "integer").add("z", "integer"), {"y": 1, "more": 2}, {"y": 1, "z": None}),
        *((kind, None, None) for kind in ("string", "boolean", "integer", "double", "timestamp")),
    ],
)
def test_a_field_is_of_the_type_that_is_asked_for(kind: DataType | str, given: Any, expected: Any):
    value = {} if given is None else {"x": given}
    assert column(a_record(value), StructType().add("x", kind)) == {"x": expected}
    assert column(a_record({"x": None}), StructType().add("x", kind)) == {"x": None}


@pytest.mark.parametrize(
    ("kind", "given", "fault"),
    [
        ("integer", "5", "another type"),
        ("integer", True, "another type"),
        ("integer", 1.5, "no integer"),
        ("integer", 2**31, "not in range|too large|out of|overflow"),
        ("long", 2**63, "no integer of 64 bits"),
        *(("long", number, "no integer of 64 bits") for number in HUGE),
        *((DecimalType(3, 1), number, "Decimal|precision|decimal") for number in HUGE),
        *(("timestamp", number, "large|infinity|range|timedelta") for number in HUGE[:2]),
        ("double", "x", "another type"),
        ("double", [], "another type"),
        ("boolean", 1, "another type"),
        ("timestamp", "noon", "isoformat"),
        ("timestamp", 1e300, "too large|out of range"),
        (DecimalType(3, 1), Decimal("1234.5"), "Decimal|precision"),
        (ArrayType(StringType()), "a", "another type"),
        (StructType().add("y", "integer"), [1], "another type"),
    ],
)
def test_a_field_of_another_type_names_its_record(kind: DataType | str, given: Any, fault: str):
    with pytest.raises(ValueMismatch, match=rf"the value of the record 2:7 \(key 'k'\) .*(?:{fault})"):
        column(a_record({"x": given}), StructType().add("x", kind))


@pytest.mark.parametrize(
    ("record", "kind", "expected"),
    [
        (a_record("a", value_format="text"), "string", "a"),
        (a_record("a"), "string", '"a"'),
        (a_record({"a": 1}), "binary", b'{"a": 1}'),
        (a_record(b"\xff", value_format="base64"), "binary", b"\xff"),
    ],
)
def test_a_value_is_its_text_or_its_bytes(record: Record, kind: str, expected: Any):
    assert column(record, kind) == expected


@pytest.mark.parametrize(
    ("record", "kind", "fault"),
    [
        (a_record(b"\xff", value_format="base64"), "string", "BINARY"),
        (a_record("a", value_format="text"), StructType().add("x", "integer"), "not a JSON object.* STRING"),
        (a_record([1]), StructType().add("x", "integer"), "not a JSON object"),
        (
            a_record("a", value_format="text", undecoded="no schema 7"),
            StructType().add("x", "integer"),
            "schema 7",
        ),
        *(
            (
                a_record(None, value_format="left-in-kafka", value_bytes=9_000_000),
                kind,
                "left in Kafka.* 9000000",
            )
            for kind in ("string", StructType().add("x", "integer"))
        ),
    ],
)
def test_a_value_that_is_not_there_or_no_object_is_an_error(record: Record, kind: DataType | str, fault: str):
    with pytest.raises(ValueMismatch, match=fault):
        column(record, kind)


def test_a_string_has_the_digits_of_its_numbers():
    exact = [StringType(), StructType().add("x", "string"), StructType().add("x", DecimalType(3, 1))]
    rounded = [StructType().add("x", kind) for kind in ("double", "integer")]
    schemas = [StructType().add("key", "string").add("value", kind) for kind in (*exact, *rounded)]
    assert [TableColumns(each).is_exact for each in schemas] == [True] * 3 + [False] * 2
    value = parse_exactly(text := '{"a": 12345678901234567.891, "b": 1e99999999999999999999}')
    assert column(a_record(value), "string") == text
    assert column(a_record({"x": value}), StructType().add("x", "string")) == {"x": text}


def test_half_of_a_surrogate_pair_names_its_record():
    with pytest.raises(ValueMismatch, match=r"the value of the record 2:7 .*surrogates"):
        column(a_record({"x": "\ud83d"}), StructType().add("x", "string"))


def test_keys_times_and_positions():
    assert column(a_record(1), "string", "key") == "k"
    assert column(a_record(1), "binary", "key") == b"k"
    assert column(a_record(1, b"\xff"), "binary", "key") == b"\xff"
    assert column(a_record(1, {"id": 1}), "string", "key") == '{"id": 1}'
    assert column(a_record(1), "timestamp", "timestamp") == NOON
    assert column(a_record(1), "long", "timestamp") == NOON_MS
    numbers = [column(a_record(1), "long", name) for name in ("partition", "offset", "next_offset")]
    assert numbers == [2, 7, 9]
    with pytest.raises(ValueMismatch, match=r"the key of the record 2:7 .* BINARY"):
        column(a_record(1, b"\xff"), "string", "key")


@pytest.mark.parametrize(
    ("name", "kind", "fault"),
    [
        ("dest", "string", "value STRUCT<dest: STRING>"),
        ("key", "integer", "the column key can't be INT"),
        ("value", "integer", "the column value can't be INT"),
        ("value", StructType().add("x", "binary"), "can't be BINARY"),
        ("value", StructType().add("x", YearMonthIntervalType()), "can't be INTERVAL"),
    ],
)
def test_what_no_record_has_is_refused(name: str, kind: DataType | str, fault: str):
    with pytest.raises(InvalidArgument, match=fault):
        TableColumns(StructType().add(name, kind))


def fields_of(value: DataType | str) -> list[str]:
    return TableColumns(StructType().add("value", value)).fields


def test_the_fields_of_the_columns_are_asked_for_unless_they_can_t_be_named():
    inner = StructType().add("y", "integer").add("z", "string")
    value = StructType().add("b", ArrayType(inner)).add("a", "string")
    assert fields_of(value) == ["a", "b.y", "b.z"]
    assert fields_of("string") == []
    for name in ("a.b", "a,b", " a", "", "a" * 201):
        assert fields_of(StructType().add(name, "integer").add("x", "integer")) == []
    many = StructType()
    for number in range(51):
        many = many.add(f"f{number}", "integer")
    assert fields_of(many) == []
