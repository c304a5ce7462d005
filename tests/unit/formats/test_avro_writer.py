"""JSON into Avro's binary encoding: read back by fastavro, or refused with the path of the fault."""

from __future__ import annotations

import io
import json
import math

import fastavro
import pytest

from keylane.formats.avro_writer import NotOfSchema, encoder

LEG = {"type": "record", "name": "Leg", "namespace": "org.a", "fields": [{"name": "dest", "type": "string"}]}
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "org.a",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "far", "type": "long"},
        {"name": "ok", "type": "boolean"},
        {"name": "mean", "type": "double"},
        {"name": "short", "type": "float"},
        {"name": "raw", "type": "bytes"},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "legs", "type": {"type": "array", "items": LEG}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "int", "Leg"]}},
        {"name": "next", "type": ["null", "Flight"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
VALUE = {
    "n": -(2**31),
    "far": 2**63 - 1,
    "ok": True,
    "mean": 1,
    "short": 0.5,
    "raw": "\u0000\u00ff",
    "four": "abcd",
    "kind": "B",
    "legs": [{"dest": "Zürich"}, {"dest": ""}],
    "tags": {"a": None, "b": {"int": 7}, "c": {"org.a.Leg": {"dest": "Chur"}}},
    "next": None,
    "day": 15_706,
}


def with_(**fields):
    return VALUE | fields


def test_what_is_written_is_what_others_read():
    value = with_(next={"org.a.Flight": VALUE})
    data = encoder(json.dumps(FLIGHT))(value)
    found = fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(FLIGHT), None)
    inner = found["next"]
    assert inner["legs"] == [{"dest": "Zürich"}, {"dest": ""}]
    assert (inner["n"], inner["far"], inner["mean"], inner["short"]) == (-(2**31), 2**63 - 1, 1.0, 0.5)
    assert (inner["raw"], inner["four"], inner["kind"]) == (b"\x00\xff", b"abcd", "B")
    assert inner["tags"] == {"a": None, "b": 7, "c": {"dest": "Chur"}}
    assert (found["ok"], inner["next"], found["day"].isoformat()) == (True, None, "2013-01-01")


@pytest.mark.parametrize("number", [0, -1, 1, 63, 64, -64, -65, 2**31 - 1, -(2**63), 2**63 - 1])
def test_integers_are_varints(number):
    data = encoder('"long"')(number)
    assert fastavro.schemaless_reader(io.BytesIO(data), "long", None) == number


def test_nan_and_infinity_have_names():
    write = encoder('"double"')
    assert math.isnan(fastavro.schemaless_reader(io.BytesIO(write("NaN")), "double", None))
    assert fastavro.schemaless_reader(io.BytesIO(write("-Infinity")), "double", None) == -math.inf


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([], ""),
        ({key: each for key, each in VALUE.items() if key != "n"}, "n"),
        (with_(n=2**31), "n"),
        (with_(n=True), "n"),
        (with_(n=1.0), "n"),
        (with_(far="1"), "far"),
        (with_(ok=1), "ok"),
        (with_(mean=True), "mean"),
        (with_(mean=10**400), "mean"),
        (with_(short=1e300), "short"),
        (with_(raw="\u0100"), "raw"),
        (with_(four="abc"), "four"),
        (with_(kind="C"), "kind"),
        (with_(kind=[]), "kind"),
        (with_(legs=[{"dest": "a"}, {"dest": 1}]), "legs[1].dest"),
        (with_(legs=[{"dest": "\ud800"}]), "legs[0].dest"),
        (with_(legs={}), "legs"),
        (with_(tags=[]), "tags"),
        (with_(tags={"b": 7}), "tags.b"),
        (with_(tags={"b": {"null": None}}), "tags.b"),
        (with_(tags={"b": {"int": "7"}}), "tags.b.int"),
        (with_(next={"Flight": VALUE}), "next"),
        (with_(more=1), "more"),
    ],
)
def test_a_value_that_does_not_fit_the_schema_is_refused_with_its_path(value, path):
    with pytest.raises(NotOfSchema) as refused:
        encoder(json.dumps(FLIGHT))(value)
    assert refused.value.path == path


@pytest.mark.parametrize(
    "schema",
    ["", "{}", '"nothing"', '{"type": "record", "name": "A"}', '{"type": "fixed", "name": "A", "size": -1}'],
)
def test_text_that_is_not_a_schema_is_refused(schema):
    with pytest.raises(ValueError, match=r".+"):
        encoder(schema)


def test_depth_is_bounded():
    with pytest.raises(ValueError, match="too deep"):
        encoder('{"type": "array", "items": ' * 50_000 + '"int"' + "}" * 50_000)
    node = {
        "type": "record",
        "name": "N",
        "fields": [{"name": "in", "type": {"type": "array", "items": "N"}}],
    }
    deep: dict = {"in": []}
    for _ in range(20_000):
        deep = {"in": [deep]}
    with pytest.raises(NotOfSchema, match="too deep"):
        encoder(json.dumps(node))(deep)


def test_types_of_other_schemas_are_found():
    data = encoder('["null", "org.a.Leg"]', [json.dumps(LEG)])({"org.a.Leg": {"dest": "Zug"}})
    assert data == b"\x02\x06Zug"
