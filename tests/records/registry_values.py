"""Values in the wire format of a Schema Registry, made by rule: Avro, Protobuf and JSON, and what is none."""

from __future__ import annotations

import json
import struct
from itertools import product
from typing import TYPE_CHECKING, Any

from confluent_kafka.schema_registry import Schema
from tests.records.values import Value, corpus

from keylane.formats.confluent import join

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka.schema_registry import SchemaRegistryClient

    Case = tuple[str, str, bytes]
    """Group, name of the schema, payload."""

LONGS = (0, 1, -1, 2**31, -(2**31), 2**53, 1_372_896_000_000, 2**63 - 1, -(2**63))
MOMENTS_MS = (0, -1, 1_372_896_000_000, -62_135_596_800_000, -62_135_596_800_001, 253_402_300_799_999, 2**62)
DOUBLES = (0.0, -0.0, 0.1, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"))
TEXTS = (b"", b"x", b"1", b"12.50", b"2013-07-04", b"NaN", "é😀".encode(), b"\0", b"\xff", b"\xed\xa0\xbd")
UNITS = {"millis": 1, "micros": 1_000, "nanos": 1_000_000}
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "string"}, {"name": "next", "type": ["null", "Node"]}],
}
AVRO_LEVELS = (1, 2, 50, 51, 398, 399, 400, 401, 600, 5_000)
PROTO_LEVELS = (1, 50, 98, 99, 100, 101, 5_000)
PROTO = """syntax = "proto3";
package values;
import "google/protobuf/any.proto";
import "google/protobuf/timestamp.proto";
message M {
  string v = 1;
  int64 n = 2;
  repeated string tags = 3;
  map<string, int32> m = 4;
  M next = 5;
  google.protobuf.Any any = 6;
  google.protobuf.Timestamp at = 7;
  bytes b = 8;
  double d = 9;
  E e = 10;
  oneof o { int32 x = 11; string y = 12; }
  bool ok = 13;
  uint64 u = 14;
  message Inner { string v = 1; }
}
enum E { A = 0; B = 1; }
message Other { int32 v = 1; }
"""


def zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def sized(data: bytes) -> bytes:
    """As Avro's strings and bytes."""
    return zigzag(len(data)) + data


def logical(kind: str, name: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def _avro_types() -> Iterator[tuple[str, Any, list[bytes]]]:
    """Group, the type of the field `v`, payloads."""
    longs = [zigzag(each) for each in LONGS] + [
        b"\xff" * 9 + b"\1",
        b"\xff" * 9 + b"\2",
        b"\xff" * 11,
        b"\x80",
    ]
    yield "null", "null", [b"", b"\0"]
    yield "boolean", "boolean", [b"\0", b"\1", b"\2", b"\xff", b""]
    yield from (("number", kind, longs) for kind in ("int", "long"))
    yield "number", "double", [struct.pack("<d", each) for each in DOUBLES] + [b"\0" * 7]
    yield "number", "float", [struct.pack("<f", each) for each in (0.1, 3.4e38, 1e-45, *DOUBLES[5:])]
    yield "text", "string", [sized(each) for each in TEXTS] + [b"\1", b"\4x", zigzag(2**62), b"\x7fabc"]
    yield "bytes", "bytes", [sized(b""), sized(b"\0\xff"), b"\4x"]
    fixed = {"type": "fixed", "name": "F"}
    for size, name in ((0, "x"), (3, "x"), (16, "uuid"), (12, "duration"), (15, "uuid")):
        yield "bytes", fixed | {"size": size, "logicalType": name}, [b"a" * size, b"a" * (size + 1)]
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}
    yield "enum", enum, [zigzag(each) for each in (0, 1, 2, -1, 2**40)]
    digits = [
        sized(each) for each in (b"\4\xe2", b"\xfb\x1e", b"", b"\0" * 9, b"\x7f" * 1_000, b"\x7f" * 2_000)
    ]
    for more in (
        {"precision": 9, "scale": 2},
        {"precision": 9},
        {"precision": 2, "scale": 9},
        {"precision": 9, "scale": -1},
        {"precision": 0, "scale": 0},
        {"precision": 50_000, "scale": 9_000},
    ):
        yield "decimal", logical("bytes", "decimal", **more), digits
        yield "decimal", fixed | logical("fixed", "decimal", size=2, **more), [b"\4\xe2", b"\xfb\x1e"]
    yield "decimal", logical("string", "decimal", precision=9, scale=2), [sized(b"12.50")]
    for unit, factor in UNITS.items():
        moments = [zigzag(max(-(2**63), min(each * factor, 2**63 - 1))) for each in MOMENTS_MS]
        yield "time", logical("long", f"timestamp-{unit}"), moments
        yield "time", logical("long", f"local-timestamp-{unit}"), moments
    yield (
        "time",
        logical("int", "date"),
        [zigzag(each) for each in (0, -1, 15_890, -719_163, 2_932_897, 2**31)],
    )
    for kind, unit in (("int", "millis"), ("long", "micros")):
        day = 86_400_000 * UNITS[unit]
        yield "time", logical(kind, f"time-{unit}"), [zigzag(each) for each in (0, 1, day - 1, day, -1)]
    for name, kind in product(("timestamp-millis", "uuid", "unknown", 5, None), ("string", "long", "bytes")):
        yield "logical", logical(kind, name), [sized(b"2013-07-04"), zigzag(1_372_896_000_000)]
    for name in ("MicroTimestamp", "NanoTimestamp", "Timestamp", "MicroTime", "Date", "Interval", "Year"):
        yield (
            "time",
            {"type": "long", "connect.name": f"io.debezium.time.{name}"},
            [zigzag(15_890), zigzag(10**15)],
        )
    yield (
        "time",
        {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
        [
            sized(b"2013-07-04T05:00:00.123456Z"),
            sized(b"2013-07-04T05:00:00+02:00"),
        ],
    )
    items = b"\4\2\4\0"
    blocks = [b"\0", items, b"\3\4\2\4\0", b"\3\x7e\2\4\0", b"\1", zigzag(2**40), zigzag(-(2**63)) + b"\0\0"]
    yield "array", {"type": "array", "items": "int"}, blocks
    yield "array", {"type": "array", "items": "null"}, [b"\6\0", zigzag(9_999) + b"\0", zigzag(2**30) + b"\0"]
    yield (
        "map",
        {"type": "map", "values": "int"},
        [b"\2" + sized(key) + b"\2\0" for key in (*TEXTS, b"v", b"a.b")],
    )
    yield "map", {"type": "map", "values": "int"}, [b"\4" + (sized(b"a") + b"\2") * 2 + b"\0"]
    yield "union", ["null", "string"], [b"\0", b"\2\2x", b"\4", b"\1", b"\2"]
    yield (
        "union",
        ["int", "string", {"type": "array", "items": ["null", "long"]}],
        [b"\0\2", b"\2\2x", b"\4\2\2\2\0"],
    )


def _avro() -> Iterator[tuple[str, Any, list[bytes]]]:
    """Group, a schema, payloads."""
    for group, kind, payloads in _avro_types():
        fields = [{"name": "v", "type": kind}]
        yield group, {"type": "record", "name": "R", "fields": fields}, payloads
    row = b"\2a"
    yield "depth", NODE, [(row + b"\2") * (levels - 1) + row + b"\0" for levels in AVRO_LEVELS]
    sample = b"\4ab\2\2c\0"
    yield "cut off", NODE, [sample[:length] for length in range(len(sample))] + [sample + b"\0"]
    first, second = {"name": "v", "type": "string"}, {"name": "w", "type": "int", "default": 1}
    for number, fields in enumerate(([first], [first, second], [second], [second, first])):
        yield (
            "evolved",
            {"type": "record", "name": "Evolved", "doc": str(number), "fields": fields},
            [
                *(b"\2a", b"\2a\2", b"\2", b"\2\2a"),
            ],
        )
    for kind in ("string", "long", "double", "bytes", "null"):
        yield "alone", {"type": kind}, [b"\2a", b"\2", b"", b"\0" * 8]
    yield "alone", {"type": "map", "values": "string"}, [b"\2\2v\2a\0", b"\0"]
    yield "alone", {"type": "array", "items": "string"}, [b"\2\2v\0"]
    yield "alone", ["null", {"type": "record", "name": "R", "fields": [first]}], [b"\0", b"\2\2a"]
    yield from _avro_events()


def _avro_events() -> Iterator[tuple[str, Any, list[bytes]]]:
    row = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "v", "type": "string"}, {"name": "ok", "type": "boolean"}],
    }
    op = {"name": "op", "type": "string"}
    sides = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]}]
    rows = (b"\0", b"\2\2a\1", b"\2\2\xff\1", b"\2\2a\2")
    events = [
        b"\0" + after + sized(mark.encode()) for after in rows for mark in ("c", "r", "u", "d", "t", "x", "")
    ]
    events += [before + b"\0\2d" for before in rows]
    yield (
        "event",
        {"type": "record", "name": "Envelope", "fields": [*sides, op]},
        [*events, events[7] + b"\0", events[7][:-1]],
    )
    for text in ("string", {"type": "string", "connect.name": "io.debezium.data.Json"}):
        after = {"name": "after", "type": ["null", text]}
        documents = (
            b'{"v":1}', b'{"v":{"$numberLong":"7"}}', b"[]", b'{"v":', b"", b'{"v":"\\ud83d"}', b'{"v":NaN}',
        )  # fmt: skip
        found = [b"\2" + sized(document) + b"\2c" for document in documents] + [b"\0\2d", b"\0\2u"]
        yield "event", {"type": "record", "name": "Envelope", "fields": [after, op]}, found
    for kind in ("string", "boolean", ["null", "string"]):
        deleted = [{"name": "v", "type": "string"}, {"name": "__deleted", "type": kind}]
        marks = [
            b"\2a" + mark
            for mark in (b"\0", b"\1", sized(b"true"), sized(b"false"), b"\2" + sized(b"true"), b"\2\2x")
        ]
        yield "event", {"type": "record", "name": "Envelope", "fields": deleted}, marks


def _field(number: int, wire: int, data: bytes) -> bytes:
    return varint(number << 3 | wire) + (varint(len(data)) if wire == 2 else b"") + data


def _protobuf() -> Iterator[tuple[str, bytes]]:
    text = _field(1, 2, b"a")
    indexes = (
        b"\0", b"\2\0", b"\2\2", b"\4\0\0", b"\2\4", b"\2\1", b"\1", b"", b"\xff", zigzag(200), b"\6\0\0\0",
    )  # fmt: skip
    yield from (("index", each + body) for each in indexes for body in (text, b""))
    bodies = [
        text[:1], text[:2], text + b"\x0a", text * 2, _field(1, 2, b"\xff"), _field(1, 0, b"\1"),
        _field(1, 5, b"abcd"), _field(99, 0, b"\1") + text, _field(99, 2, b"abc") + text,
        _field(99, 3, b"") + text, _field(99, 4, b""), _field(99, 3, text) + _field(99, 4, b""),
        _field(0, 0, b"\1"), _field(2**29 - 1, 0, b"\1"), b"\x0f", b"\x0e",
        _field(2, 0, b"\xff" * 9 + b"\1"), _field(2, 0, b"\xff" * 9 + b"\x7f"), _field(2, 0, b"\xff" * 11),
        _field(2, 2, b"\1\2"), _field(3, 2, b"x") * 3, _field(3, 2, b"\xc3"), _field(4, 2, b""),
        _field(4, 2, _field(1, 2, b"k") + _field(2, 0, b"\1")) * 2, _field(4, 2, _field(1, 2, b"\xff")),
        _field(6, 2, b""),
        _field(6, 2, _field(1, 2, b"type.googleapis.com/values.Other") + _field(2, 2, b"\x08\1")),
        _field(6, 2, _field(1, 2, b"type.googleapis.com/no.Such")), _field(6, 2, _field(2, 2, b"x")),
        _field(7, 2, b""), _field(7, 2, _field(1, 0, varint(2**40))),
        _field(7, 2, _field(2, 0, varint(2**31 - 1))), _field(8, 2, b"\0\xff"),
        *(_field(9, 1, struct.pack("<d", each)) for each in DOUBLES), _field(10, 0, b"\1"),
        _field(10, 0, b"\7"), _field(10, 0, b"\xff" * 9 + b"\1"), _field(11, 0, b"\1") + _field(12, 2, b"y"),
        _field(13, 0, b"\2"), _field(14, 0, b"\xff" * 9 + b"\1"),
    ]  # fmt: skip
    yield from (("protobuf", b"\0" + body) for body in bodies)
    for levels in PROTO_LEVELS:
        body = text
        for _ in range(levels - 1):
            body = _field(5, 2, body)
        yield "protobuf depth", b"\0" + body


def _frames(schema_id: int) -> Iterator[bytes]:
    """Where the frame itself is another one."""
    for other in (0, 2**31, 2**32 - 1, 999_999):
        yield from (join(other, payload) for payload in (b"", b"\2a", b'{"v":1}'))
    framed = join(schema_id, b'{"v":1}')
    yield from (
        framed[:5], framed[:4], framed[:1], b"\1" + framed[1:], framed[1:], b"\0" + framed, b'{"v":1}', b"",
        b"text",
    )  # fmt: skip


SCHEMAS: dict[str, Schema] = {
    "json": Schema('{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}', "JSON"),
    "proto": Schema(PROTO, "PROTOBUF"),
}
"""By their names: those of Avro follow."""


def _cases() -> Iterator[Case]:
    for number, (group, schema, payloads) in enumerate(_avro()):
        name = f"avro-{number}"
        SCHEMAS[name] = Schema(json.dumps(schema), "AVRO")
        yield from ((f"Avro {group}", name, payload) for payload in payloads)
    yield from (
        (f"Protobuf {group.removeprefix('protobuf').strip() or 'body'}", "proto", each)
        for group, each in _protobuf()
    )
    plain = [value for value in corpus() if len(value.data) < 10_000]
    yield from (("JSON", "json", value.data) for value in plain[::9])
    yield from (("JSON event", "json", value.data) for value in plain[::3] if value.group == "event")


CASES = tuple(_cases())


def register(client: SchemaRegistryClient) -> Mapping[str, int]:
    return {name: client.register_schema(f"values-{name}", schema) for name, schema in SCHEMAS.items()}


def framed_values(ids: Mapping[str, int]) -> list[Value]:
    found: dict[bytes, str] = {}
    for group, name, payload in CASES:
        found.setdefault(join(ids[name], payload), f"{group}:{len(found)}")
    for data in _frames(ids["json"]):
        found.setdefault(data, f"frame:{len(found)}")
    return [Value(name, data) for data, name in found.items()]
