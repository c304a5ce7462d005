"""Keylane's Avro reader against fastavro, with which confluent-kafka writes: any value of many schemas."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
import struct
from decimal import Decimal
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from keylane.formats import avro_reader

LEG = {"type": "record", "name": "x.Leg", "fields": [{"name": "to", "type": "string"}]}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def times(unit: int) -> st.SearchStrategy[dt.datetime]:
    seconds = st.integers(-60_000_000_000, 250_000_000_000)
    parts = st.integers(0, 10**6 // unit - 1)
    return st.builds(lambda s, p: EPOCH + dt.timedelta(seconds=s, microseconds=p * unit), seconds, parts)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


floats = st.floats(width=32)
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", floats),
    ("double", st.floats()),
    ("bytes", st.binary(max_size=20)),
    ("string", st.text(max_size=20)),
    ({"type": "enum", "name": "x.E", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
    ({"type": "fixed", "name": "x.F", "size": 3}, st.binary(min_size=3, max_size=3)),
    (
        logical("bytes", "decimal", precision=20, scale=3),
        st.decimals(-(10**15), 10**15, places=3, allow_nan=False),
    ),
    (logical("int", "date"), st.dates()),
    (logical("long", "timestamp-millis"), times(1000)),
    (logical("long", "timestamp-micros"), times(1)),
    (logical("string", "uuid"), st.uuids()),
    (LEG, st.fixed_dictionaries({"to": st.text(max_size=5)})),
]


def several(leaf: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    """The leaf itself, and within each kind of container that Avro has."""
    kind, values = leaf
    record = {"type": "record", "name": "x.R", "fields": [{"name": "a", "type": kind}]}
    return st.one_of(
        st.tuples(st.just(kind), values),
        st.tuples(st.just({"type": "array", "items": kind}), st.lists(values, max_size=5)),
        st.tuples(
            st.just({"type": "map", "values": kind}), st.dictionaries(st.text(max_size=3), values, max_size=3)
        ),
        st.tuples(st.just(record), st.fixed_dictionaries({"a": values})),
        *([] if kind == "null" else [st.tuples(st.just(["null", kind]), st.none() | values)]),
    )


def same(ours: Any, theirs: Any) -> bool:
    """Whether Keylane's JSON has the value that fastavro read."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[name], theirs[name]) for name in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, float):
        return same_number(float(ours), theirs)
    return ours == as_json(theirs)


def same_number(ours: float, theirs: float) -> bool:
    if math.isnan(theirs):
        return math.isnan(ours)
    return ours == theirs or struct.pack("<f", ours) == struct.pack("<f", theirs)


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value if isinstance(value, bool | int | str | None) else str(value)


@given(st.sampled_from(LEAVES).flatmap(several))
def test_whatever_fastavro_writes_is_read_alike(case):
    schema, value = case
    parsed, out = fastavro.parse_schema(schema), io.BytesIO()
    fastavro.schemaless_writer(out, parsed, value)
    theirs = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), parsed)
    ours = json.loads(avro_reader.decoder(json.dumps(schema))(out.getvalue()))
    assert same(with_times(ours, theirs), theirs)


def with_times(ours: Any, theirs: Any) -> Any:
    """Texts of times as times, where fastavro has one."""
    if isinstance(theirs, dict):
        return {name: with_times(ours[name], each) for name, each in theirs.items()}
    if isinstance(theirs, list):
        return [with_times(one, other) for one, other in zip(ours, theirs, strict=True)]
    return dt.datetime.fromisoformat(ours) if isinstance(theirs, dt.datetime) else ours
