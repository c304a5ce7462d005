"""Avro's binary encoding as JSON: golden bytes of its specification, and invalid bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keylane.formats import avro_reader


def schema(kind: str, **more: object) -> str:
    return json.dumps({"type": kind, **more})


LEG = {"type": "record", "name": "Leg", "fields": [{"name": "to", "type": "string"}]}

GOLDEN = [
    ('"null"', "", "null"),
    ('"boolean"', "01", "true"),
    ('"int"', "01", "-1"),
    ('"int"', "8001", "64"),
    ('"long"', "ffffffffffffffffff01", "-9223372036854775808"),
    ('"float"', "cdcccc3d", "0.1"),
    ('"float"', "ffff7f7f", "3.4028234663852886e+38"),
    ('"float"', "0000c07f", '"NaN"'),
    ('"double"', "9a9999999999b93f", "0.1"),
    ('"double"', "000000000000f07f", '"Infinity"'),
    ('"double"', "000000000000f0ff", '"-Infinity"'),
    ('"double"', "000000000000f87f", '"NaN"'),
    ('"string"', "06666f6f", '"foo"'),
    ('"bytes"', "0400ff", '"AP8="'),
    ('["null", "string"]', "00", "null"),
    ('["null", "string"]', "020261", '"a"'),
    (schema("array", items="long"), "04063600", "[3, 27]"),
    (schema("array", items="long"), "0304063600", "[3, 27]"),
    (schema("map", values="int"), "0202610400", '{"a": 2}'),
    (schema("enum", name="Suit", symbols=["A", "B"]), "02", '"B"'),
    (schema("fixed", name="Two", size=2), "00ff", '"AP8="'),
    (json.dumps(LEG), "065a7567", '{"to": "Zug"}'),
    (schema("string", **{"avro.java.string": "String"}), "0261", '"a"'),
    (schema("bytes", logicalType="decimal", precision=4, scale=2), "0404e2", '"12.50"'),
    (schema("bytes", logicalType="decimal", precision=4, scale=3), "02ff", '"-0.001"'),
    (schema("bytes", logicalType="decimal", precision=4), "020c", '"12"'),
    (schema("fixed", name="D", size=2, logicalType="decimal", precision=4, scale=2), "fb1e", '"-12.50"'),
    # Decimals that are not valid are what they would be without their logical type.
    *(
        (schema("bytes", logicalType="decimal", **wrong), "0205", '"BQ=="')
        for wrong in (
            {},
            {"scale": 2},
            {"precision": 6, "scale": -2},
            {"precision": 9, "scale": "2"},
            {"precision": 9, "scale": None},
            {"precision": 2, "scale": 3},
            {"precision": 0},
            {"precision": "9"},
            {"precision": True},
        )
    ),
    (schema("fixed", name="D", size=2, logicalType="decimal", precision=5, scale=2), "fb1e", '"+x4="'),
    (schema("fixed", name="D", size=0, logicalType="decimal", precision=1), "", '""'),
    (schema("int", logicalType="date"), "b4f501", '"2013-01-01"'),
    (schema("int", logicalType="date"), "01", '"1969-12-31"'),
    (schema("int", logicalType="time-millis"), "02", '"00:00:00.001"'),
    (schema("long", logicalType="time-micros"), "feffbadd8305", '"23:59:59.999999"'),
    (schema("long", logicalType="timestamp-millis"), "01", '"1969-12-31T23:59:59.999Z"'),
    (schema("long", logicalType="timestamp-micros"), "02", '"1970-01-01T00:00:00.000001Z"'),
    (schema("long", logicalType="timestamp-nanos"), "02", '"1970-01-01T00:00:00.000000001Z"'),
    (schema("long", logicalType="local-timestamp-millis"), "02", '"1970-01-01T00:00:00.001"'),
    (schema("string", logicalType="uuid"), "0261", '"a"'),
    (
        schema("fixed", name="U", size=16, logicalType="uuid"),
        "00112233445566778899aabbccddeeff",
        '"00112233-4455-6677-8899-aabbccddeeff"',
    ),
    (schema("long", logicalType="nobody-knows"), "02", "1"),
]


@pytest.mark.parametrize(("text", "data", "expected"), GOLDEN)
def test_value_is_read_as_the_specification_writes_it(text, data, expected):
    assert avro_reader.decoder(text)(bytes.fromhex(data)) == expected


@pytest.mark.parametrize(
    ("kind", "logical", "data", "expected"),
    [
        ("int", "date", "feffffff0f", "2147483647"),
        ("int", "time-millis", "01", "-1"),
        ("long", "timestamp-millis", "feffffffffffffffff01", "9223372036854775807"),
        ("long", "timestamp-millis", "80f0fea1fa9d73", "253402300800000"),
        ("long", "timestamp-micros", "ffffffffffffffffff01", "-9223372036854775808"),
    ],
)
def test_time_outside_the_calendar_stays_the_number_that_it_is(kind, logical, data, expected):
    assert avro_reader.decoder(schema(kind, logicalType=logical))(bytes.fromhex(data)) == expected


def test_types_are_found_by_name_within_their_namespace():
    leg = {"type": "record", "name": "Leg", "fields": [{"name": "n", "type": "int"}]}
    fields = [{"name": "a", "type": leg}, {"name": "b", "type": "Leg"}, {"name": "c", "type": "x.y.Leg"}]
    read = avro_reader.decoder(json.dumps({"type": "record", "name": "x.y.Trip", "fields": fields}))
    assert read(b"\x02\x04\x06") == '{"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}'


def test_types_of_references_are_known():
    trip = {"type": "record", "name": "Trip", "fields": [{"name": "leg", "type": ["null", "Leg"]}]}
    assert avro_reader.decoder(json.dumps(trip), [json.dumps(LEG)])(b"\x02\x02Z") == '{"leg": {"to": "Z"}}'


def test_type_that_holds_itself_is_read_to_its_end():
    node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    assert avro_reader.decoder(json.dumps(node))(b"\x02\x02\x00") == '{"next": {"next": {"next": null}}}'
    with pytest.raises(ValueError, match="nested too deep"):
        avro_reader.decoder(json.dumps(node))(b"\x02" * 1_000_000 + b"\x00")


@pytest.mark.parametrize(
    ("text", "data", "why"),
    [
        ('"string"', "06666f", "3 bytes are expected at byte 1, 2 are left"),
        ('"string"', "01", "-1 bytes are expected"),
        ('"string"', "02ff", "utf-8"),
        ('"int"', "", "ends within the integer"),
        ('"int"', "80", "ends within the integer"),
        ('"long"', "ffffffffffffffffffff01", "more than 64 bits"),
        ('"long"', "ffffffffffffffffff02", "more than 64 bits"),
        ('"int"', "0202", "1 bytes are left over"),
        ('"boolean"', "02", "2 is not a boolean"),
        ('["null", "int"]', "04", "the union has 2 members: number 2 does not exist"),
        ('["null", "int"]', "01", "number -1 does not exist"),
        (schema("enum", name="S", symbols=["A"]), "02", "the enum has 1 members: number 1 does not exist"),
        (schema("array", items="null"), "feffffffffffffffff0100", "more items than the value has bytes"),
        (schema("array", items="null"), "ffffffffffffffffff010000", "more items than the value has bytes"),
    ],
)
def test_bytes_that_do_not_fit_the_schema_are_refused_with_a_reason(text, data, why):
    with pytest.raises(ValueError, match=why):
        avro_reader.decoder(text)(bytes.fromhex(data))


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "1",
        "{}",
        '{"type": "record"}',
        '{"type": "record", "name": "A", "fields": 1}',
        '{"type": "array"}',
        '{"type": "fixed", "name": "A", "size": -1}',
        '{"type": "fixed", "name": "A", "size": "many"}',
        '"Unheard"',
        "[" * 100_000 + "]" * 100_000,
    ],
)
def test_text_that_is_not_a_schema_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        avro_reader.decoder(text)


LEGS = {"type": "array", "items": {"type": "map", "values": LEG}}
TRIP = json.dumps({"type": "record", "name": "Trip", "fields": [{"name": "legs", "type": LEGS}]})


def test_a_fault_in_a_value_names_its_path():
    read = avro_reader.decoder(TRIP)
    good = b"\x02\x02a\x02Z\x00"
    assert read(b"\x02" + good + b"\x00") == '{"legs": [{"a": {"to": "Z"}}]}'
    with pytest.raises(ValueError, match=r"^legs\[1\]\.a\.to: .*utf-8"):
        read(b"\x04" + good + good.replace(b"Z", b"\xff") + b"\x00")


def test_a_fault_in_a_schema_names_its_path():
    with pytest.raises(ValueError, match=r"^the Avro schema at legs\.items\.values has no 'fields'$"):
        avro_reader.decoder(TRIP.replace('"fields": [{"name": "to"', '"members": [{"name": "to"'))
    with pytest.raises(ValueError, match=r"^the Avro schema at to names a type 'Airport' that it does not"):
        avro_reader.decoder(json.dumps(LEG).replace('"string"', '"Airport"'))


KINDS = [text for text, _, _ in GOLDEN] + [
    schema("array", items=["null", "string", {"type": "map", "values": "double"}]),
]


@given(text=st.sampled_from(KINDS), data=st.binary(max_size=60))
def test_any_bytes_are_json_or_refused(text, data):
    try:
        found = avro_reader.decoder(text)(data)
    except ValueError:
        return
    json.loads(found)


def varint(number: int) -> bytes:
    coded, found = 2 * number, bytearray()
    while coded >= 0x80:
        found.append(coded & 0x7F | 0x80)
        coded >>= 7
    return bytes([*found, coded])


def a_record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    listed = [{"name": each, "type": kind} for each, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def doubling(levels: int) -> str:
    """A record whose fields double at each level: 2**levels of them, in a value without a byte."""
    found: Any = a_record("L0", {"a": "null", "b": "null"})
    for level in range(1, levels):
        found = a_record(f"L{level}", {"a": found, "b": f"L{level - 1}"})
    return json.dumps(found)


def test_records_that_double_at_each_level_are_refused_before_they_fill_the_memory():
    with pytest.raises(ValueError, match="far more fields than the value has bytes"):
        avro_reader.decoder(doubling(40))(b"")
    assert len(json.loads(avro_reader.decoder(doubling(8))(b""))) == 2


@pytest.mark.parametrize(
    "schema_of_item",
    [
        a_record("R", {"n" * 100_000: "null"}),
        {"type": "enum", "name": "E", "symbols": ["A" * 100_000]},
        {"type": "bytes", "logicalType": "decimal", "precision": 9_999, "scale": 9_999},
    ],
    ids=["names", "symbols", "zeros"],
)
def test_what_a_schema_adds_to_small_values_is_bounded(schema_of_item: dict[str, Any]):
    decode = avro_reader.decoder(json.dumps({"type": "array", "items": schema_of_item}))
    items = {"record": b"", "enum": b"\x00", "bytes": b"\x00"}[schema_of_item["type"]]
    with pytest.raises(ValueError, match="JSON is over"):
        decode(varint(9_000) + items * 9_000 + b"\x00")


def test_many_small_and_nested_records_are_within_the_bounds():
    nested: Any = a_record("R0", {"n": "int"})
    for level in range(1, 10):
        nested = a_record(f"R{level}", {"r": nested})
    for item in (a_record("One", {"b": "boolean"}), nested):
        decode = avro_reader.decoder(json.dumps({"type": "array", "items": item}))
        assert len(json.loads(decode(varint(50_000) + b"\x00" * 50_000 + b"\x00"))) == 50_000
