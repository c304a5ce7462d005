"""Keylane's Avro reader against fastavro, with which confluent-kafka writes: any value of many schemas."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st
from tests.corpora.avro_schemas import same, with_times

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


@given(st.sampled_from(LEAVES).flatmap(several))
def test_whatever_fastavro_writes_is_read_alike(case):
    schema, value = case
    parsed, out = fastavro.parse_schema(schema), io.BytesIO()
    fastavro.schemaless_writer(out, parsed, value)
    theirs = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), parsed)
    ours = json.loads(avro_reader.decoder(json.dumps(schema))(out.getvalue()))
    assert same(with_times(ours, theirs), theirs)
