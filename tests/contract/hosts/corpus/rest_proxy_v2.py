"""Records as REST Proxy v2 takes them, with and without schemas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.contract.hosts.case import Case
from tests.contract.hosts.corpus.writes import MIB, TRACE, coding_cases, odd_bodies, replayed_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Names

V2 = "application/vnd.kafka.{}.v2+json"
AVRO = json.dumps({"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]})
STRICT = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
PROTO = 'syntax = "proto3"; message A { int32 a = 1; }'
SCHEMAS = {"avro": ("AVRO", AVRO), "jsonschema": ("JSON", STRICT), "protobuf": ("PROTOBUF", PROTO)}
TYPES = (
    *("", "application/json", "application/vnd.kafka.v2+json", "application/vnd.kafka.json.v1+json", "x"),
    *(
        "Application/vnd.kafka.JSON.v2+json; charset=utf-8",
        "application/vnd.kafka.json.v2+json;charset=klingon",
    ),
    *("application/vnd.kafka.json.v2+json, application/json", "application/vnd.kafka.thrift.v2+json"),
    *("text/plain", V2.format("text")),
)
RECORDS: tuple[Any, ...] = (
    {"key": "k", "value": {"a": [1, 2.5, "ü", None, True]}},
    {"key": {"a": 1}, "value": "text"},
    {"key": "a2V5", "value": "Y29uZmx1ZW50"},
    {"key": "k", "value": None},
    {"key": "k"},
    {"key": "\ud800", "value": 1},
    {"key": "k", "value": "\ud800"},
    {"key": 1.0, "value": 12345678901234567890.5},
    {"key": "k", "value": "not base64!"},
    {"key": "k", "value": 1, "more": 2},
    {"key": "k", "value": "x" * (MIB + 1)},
    {"key": "k" * 70_000, "value": 1},
    [{"key": "k", "value": 1}, {"key": "k", "value": "x" * (MIB + 1)}],
)
PARTITIONS = (0, 1, "1", " 1 ", "", 1.0, 1.5, -1, True, "x", None, 2**31, [1], 1_000)
TIMESTAMPS = (
    *(1, 0, -1, 1_700_000_000_000, "1700000000000", "2023-11-14T22:13:20Z", "soon", 253_402_300_800_000),
    *(1.5, True, []),
)
GOOD = {"value": {"a": 1}}
HEADER = {"name": "h", "value": "dg=="}
HEADERS: tuple[Any, ...] = (
    *([HEADER], [HEADER, HEADER], [], None, "x", [1], [{}], [{"name": 1}], [{"name": "h"}]),
    *([{**HEADER, "value_format": each}] for each in ("base64", "text", "hex")),
    *([{"name": "h", "value": 1}], [{**HEADER, "more": 1}], [{"name": "", "value": None}]),
    *([{"name": "h", "value": "!", "value_format": "base64"}], [{"name": "\ud800", "value": "x"}]),
    *([{"key": "h", "value": "dg=="}], [{"key": 1}], [{**HEADER, "key": "h"}]),
    *([HEADER] * 100, [HEADER] * 101, [{"name": "h", "value": "\ud800"}]),
)


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _v2(kind: str) -> tuple[tuple[str, str], ...]:
    return (("Content-Type", V2.format(kind)),)


def v2_cases(names: Names) -> Iterator[Case]:
    """`POST /topics/{topic}` and to a partition of it, in JSON, binary and text."""
    one, three = f"/topics/{names.out('json')}", f"/topics/{names.out('three')}"
    for record in _v2_records():
        document = {"records": record if isinstance(record, list) else [record]}
        yield Case("POST", one, _v2("json"), _json(document))
        yield Case("POST", f"{three}/partitions/1", _v2("json"), _json(document))
        yield Case("POST", f"{one}?key_format=text", _v2("json"), _json(document))
        yield from (Case("POST", one, _v2(kind), _json(document)) for kind in ("binary", "text"))
    documents: list[Any] = [
        {},
        {"records": []},
        {"records": None},
        {"records": "x"},
        {"records": [1]},
        {"records": [None]},
    ]
    documents += [
        {"records": [{"value": 1}], "more": 1},
        {"foo": "bar"},
        {"records": [{"value": 1}] * 10_001},
        [1],
        None,
    ]
    documents += [
        {"records": [{"value": 1}], "value_schema": "x", "key_schema_id": 1},
        {"records": [{"value": 1}] * 50},
    ]
    for document in documents:
        for target in (one, f"{three}/partitions/1"):
            yield Case("POST", target, _v2("json"), _json(document))
    yield from odd_bodies(one, _v2("json"), {"records": [{"key": "k", "value": 1}]})
    yield from coding_cases(Case("POST", one, _v2("json"), _json({"records": [{"key": "k", "value": 1}]})))
    yield from replayed_cases(
        Case("POST", one, _v2("json"), _json({"records": [{"key": "k", "value": 1}]})), names, "v2"
    )
    good = _json({"records": [{"key": "k", "value": 1}]})
    for media_type in TYPES:
        yield Case("POST", one, (("Content-Type", media_type),), good)
        yield Case("POST", f"{three}/partitions/1", (("Content-Type", media_type),), good)
    yield Case("POST", one, (), good)
    for more in (
        TRACE,
        (("Prefer", "respond-async"),),
        (("Accept", "text/html"),),
        (("Accept", "application/vnd.kafka.v2+json"),),
    ):
        yield Case("POST", one, (*_v2("json"), *more), good)
    for target in (
        "/topics/hosts-nowhere",
        "/topics/hosts-nowhere/partitions/0",
        f"{three}/partitions/9",
        "/topics/__x",
    ):
        yield Case("POST", target, _v2("json"), good)


def _v2_records() -> Iterator[Any]:
    yield from RECORDS
    good = {"key": "k", "value": "MQ=="}
    yield from ({**good, "partition": partition} for partition in PARTITIONS)
    yield from ({**good, "timestamp": timestamp} for timestamp in TIMESTAMPS)
    yield from ({**good, "headers": headers} for headers in HEADERS)


def v2_schema_cases(names: Names) -> Iterator[Case]:
    """Keys and values with schemas of all types."""
    for kind, (schema_type, schema) in SCHEMAS.items():
        topic = names.out(kind)
        target, headers = f"/topics/{topic}", _v2(kind)
        schema_id = names.register(f"{topic}-value", schema, schema_type)
        for name, row in zip(_rows(schema, "ID"), _rows(schema, schema_id), strict=True):
            label = f"POST v2 {kind} {json.dumps(name)}"
            yield Case("POST", target, headers, _json(row), label=label)
            yield Case(
                "POST", f"{target}/partitions/0", headers, _json(row), label=f"{label}, to a partition"
            )
        yield Case(
            "POST", "/topics/hosts-nowhere", headers, _json({"value_schema": schema, "records": [GOOD]})
        )


def _rows(schema: str, schema_id: Any) -> list[dict[str, Any]]:
    """Bodies that name a schema in all ways, with records that it takes and rejects."""
    one = {"records": [GOOD]}
    both = {"records": [{"key": {"a": 2}, "value": {"a": 1}}]}
    return [
        {"value_schema": schema, **one},
        {"value_schema_id": schema_id, "records": [GOOD, {"value": None}]},
        {"value_schema_id": str(schema_id), **one},
        {"value_schema_id": schema_id, "value_schema": schema, **one},
        {"value_schema_id": schema_id, "records": [{"value": {"a": "x"}}]},
        {"value_schema_id": schema_id, "records": [GOOD, {"value": {"b": 1}}]},
        {"value_schema_id": schema_id, "records": [{"value": 1}]},
        *({"value_schema_id": number, **one} for number in (987_654, 0, "x", 1.5)),
        *({"value_schema": text, **one} for text in ("no schema", "", 1, {"type": "object"})),
        one,
        {"records": [{"value": None, "key": None}]},
        {"value_schema_id": schema_id, "records": [{"key": "k", **GOOD}]},
        {"value_schema_id": schema_id, "key_schema_id": schema_id, **both},
        {"value_schema": schema, "key_schema": schema, **both},
    ]
