"""Values that confluent-kafka's own serializers wrote, on a real cluster, by a real Schema Registry."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from tests.servers import schema_registry as sr
from tests.servers.own import deadline, fill
from tests.servers.registry_double import client_of
from tests.support.builders import a_lane, a_layout, a_topic, body_of, headers_of

from keylane.adapters.registry.decoders import RegistryDecoders
from keylane.formats import confluent
from keylane.model.records import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.model.records import Layout

    Ask = Callable[..., dict[str, Any]]

KEY = b"N725MQ"
FLIGHT = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "namespace": "org.example",
        "fields": [
            {"name": "dest", "type": "string"},
            {"name": "delay", "type": ["null", "int"]},
            {
                "name": "fare",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
FLIGHT_JSON = {"dest": "SFO", "delay": None, "fare": "12.50", "at": "2013-01-01T10:00:00.000Z"}
JSON_SCHEMA = json.dumps(
    {"title": "Flight", "type": "object", "properties": {"dest": {"type": "string"}, "n": {"type": "number"}}}
)
STRING, INT32, INT64, MESSAGE = 9, 5, 3, 11


def a_flight(delay: int | None = None) -> dict[str, Any]:
    at = dt.datetime(2013, 1, 1, 10, tzinfo=dt.UTC)
    return {"dest": "SFO", "delay": delay, "fare": Decimal("12.50"), "at": at}


def field(name: str, number: int, kind: int, type_name: str | None = None, label: int = 1) -> Any:
    return FieldDescriptorProto(name=name, number=number, type=kind, type_name=type_name, label=label)


def a_file(name: str, package: str, *messages: DescriptorProto, imports: list[str] | None = None) -> Any:
    return FileDescriptorProto(
        name=name, package=package, syntax="proto3", message_type=messages, dependency=imports
    )


@pytest.fixture
def ask(reading: Callable[[str], Ask], registry: sr.Registry) -> Ask:
    return reading(registry.url)


@pytest.fixture
def decode(registry: sr.Registry) -> Callable[[bytes], Any]:
    """From a value's bytes to what its JSON says."""
    schemas = RegistryDecoders(client_of(registry.url))

    def read(value: bytes) -> Any:
        schema_id, payload = confluent.split(value)
        return json.loads(schemas.decoder(schema_id, deadline(5_000)).decode(payload))

    return read


def served(redis_cluster: str, value: bytes, key: bytes = KEY) -> Layout:
    """A topic of registry values with one record."""
    layout = a_layout(options=Options(value_format="registry"))
    fill(redis_cluster, a_lane(layout, key, value))
    return layout


def an_avro_value(registry: sr.Registry) -> bytes:
    return sr.avro(registry.client, a_topic(), FLIGHT, a_flight())


def a_json_value(registry: sr.Registry) -> bytes:
    return sr.json_schema(registry.client, a_topic(), JSON_SCHEMA, {"dest": "SFO", "n": 1})


def a_protobuf_value(registry: sr.Registry) -> bytes:
    fields = [field("dest", 1, STRING), field("flight_number", 2, INT64), field("delay", 3, INT32)]
    file = a_file("flight.proto", "org.example", DescriptorProto(name="Flight", field=fields))
    flight = sr.message_type([file], "org.example.Flight")
    return sr.protobuf(registry.client, a_topic(), flight(dest="SFO", flight_number=7))


FORMATS = [
    pytest.param(an_avro_value, "AVRO", FLIGHT_JSON, id="avro"),
    pytest.param(a_json_value, "JSON", {"dest": "SFO", "n": 1}, id="json"),
    pytest.param(
        a_protobuf_value, "PROTOBUF", {"dest": "SFO", "flightNumber": "7", "delay": 0}, id="protobuf"
    ),
]


@pytest.mark.parametrize(("write", "schema_type", "expected"), FORMATS)
def test_registry_value_is_json_with_its_schema_or_bytes_by_accept(
    ask: Ask, redis_cluster: str, registry: sr.Registry, write, schema_type, expected
):
    value = write(registry)
    path = f"/topics/{served(redis_cluster, value).topic}/keys/{KEY.decode()}"
    answer = ask(path)
    headers = headers_of(answer)
    assert (answer["statusCode"], json.loads(body_of(answer))) == (200, expected)
    assert (headers["Content-Type"], headers["Vary"]) == ("application/json", "Accept")
    raw = ask(path, headers={"Accept": "application/octet-stream"})
    assert (raw["statusCode"], body_of(raw)) == (200, value)
    assert headers_of(raw)["Content-Type"] == "application/octet-stream"
    assert headers_of(raw)["ETag"] == headers["ETag"].removesuffix('"') + '-bytes"'
    document = json.loads(ask(path, query={"envelope": "true"})["body"])
    assert (document["value"], document["value_format"]) == (expected, "json")
    assert document["schema_id"] == confluent.split(value).schema_id
    assert document["schema_type"] == schema_type
    picked = ask(path, query={"fields": "dest,nothing"})
    assert json.loads(picked["body"]) == {"dest": "SFO"}
    assert ask(path, headers={"If-None-Match": headers["ETag"]})["statusCode"] == 304
    assert ask(path, method="HEAD")["statusCode"] == 200


def test_records_of_all_formats_come_in_one_document(ask: Ask, redis_cluster: str, registry: sr.Registry):
    layout = a_layout(options=Options(value_format="registry"))
    values = {b"a": an_avro_value(registry), b"j": a_json_value(registry), b"p": a_protobuf_value(registry)}
    values[b"x"] = b"plain"
    for key, value in values.items():
        fill(redis_cluster, a_lane(layout, key, value))
    body = json.dumps({"keys": ["a", "j", "p", "x"]}).encode()
    path = f"/topics/{layout.topic}/keys:read"
    answer = ask(path, method="POST", body=body)
    avro, json_row, protobuf, plain = json.loads(answer["body"])["records"]
    assert avro["value"] == FLIGHT_JSON
    assert [row["schema_type"] for row in (avro, json_row, protobuf)] == ["AVRO", "JSON", "PROTOBUF"]
    assert (plain["value_format"], plain["value"]) == ("base64", base64.b64encode(b"plain").decode())
    assert "byte 0" in plain["undecoded"]
    raw = ask(path, method="POST", body=body, headers={"Accept": "application/octet-stream"})
    assert [base64.b64decode(row["value"]) for row in json.loads(raw["body"])["records"]] == [
        *values.values()
    ]
    assert "schema_id" not in raw["body"]
    fields = json.loads(ask(path, method="POST", body=body, query={"fields": "dest"})["body"])["records"]
    assert [row["value"] for row in fields[:3]] == [{"dest": "SFO"}] * 3
    assert fields[3]["no_fields"]


def test_value_that_does_not_fit_its_schema_is_422_with_position_and_schema_and_passes_as_bytes(
    ask: Ask, redis_cluster: str, registry: sr.Registry
):
    value = an_avro_value(registry)[:-1]
    path = f"/topics/{served(redis_cluster, value).topic}/keys/{KEY.decode()}"
    for query in (None, {"envelope": "true"}):
        answer = ask(path, query=query)
        document, headers = json.loads(answer["body"]), headers_of(answer)
        assert (answer["statusCode"], document["type"]) == (422, "urn:keylane:problem:value-not-decodable")
        assert document["schema_id"] == confluent.split(value).schema_id
        assert headers["Keylane-Position"] in document["detail"]
    assert body_of(ask(path, headers={"Accept": "application/octet-stream"})) == value


def test_readers_see_a_new_value_format_without_a_new_generation(
    ask: Ask, redis_cluster: str, registry: sr.Registry, monkeypatch: pytest.MonkeyPatch
):
    value, layout = an_avro_value(registry), a_layout()
    fill(redis_cluster, a_lane(layout, KEY, value))
    monkeypatch.setenv("KEYLANE_LAYOUT_TTL_S", "0")
    path = f"/topics/{layout.topic}/keys/{KEY.decode()}"
    assert body_of(ask(path)) == value
    changed = a_layout(layout.topic, options=Options(value_format="registry"))
    fill(redis_cluster, a_lane(changed, KEY, value))
    assert json.loads(ask(path)["body"]) == FLIGHT_JSON


def test_avro_types_of_other_subjects_are_found(registry: sr.Registry, decode: Callable[[bytes], Any]):
    topic = a_topic()
    leg = {"type": "record", "name": "org.example.Leg", "fields": [{"name": "to", "type": "string"}]}
    registry.client.register_schema(f"{topic}-leg", Schema(json.dumps(leg), "AVRO"))
    legs = {"type": "array", "items": "org.example.Leg"}
    trip = {"type": "record", "name": "org.example.Trip", "fields": [{"name": "legs", "type": legs}]}
    reference = SchemaReference("org.example.Leg", f"{topic}-leg", 1)
    value = sr.avro(
        registry.client, topic, Schema(json.dumps(trip), "AVRO", [reference]), {"legs": [{"to": "Zug"}]}
    )
    assert decode(value) == {"legs": [{"to": "Zug"}]}


def test_protobuf_types_are_found_in_nested_and_imported_files(
    registry: sr.Registry, decode: Callable[[bytes], Any]
):
    leg = a_file("legs/leg.proto", "legs", DescriptorProto(name="Leg", field=[field("to", 1, STRING)]))
    stop = DescriptorProto(
        name="Stop",
        field=[
            field("leg", 1, MESSAGE, ".legs.Leg"),
            field("arrived_at", 2, MESSAGE, ".google.protobuf.Timestamp"),
            field("miles", 3, INT64, label=3),
        ],
    )
    other = DescriptorProto(name="Other", field=[field("n", 1, INT32)])
    trip = DescriptorProto(name="Trip", nested_type=[other, stop])
    stamps = FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    imports = ["legs/leg.proto", "google/protobuf/timestamp.proto"]
    file = a_file(f"{a_topic()}.proto", "trips", other, trip, imports=imports)
    message = sr.message_type([leg, stamps, file], "trips.Trip.Stop")(miles=[1, 2])
    message.leg.to = "Zug"
    message.arrived_at.FromJsonString("2013-01-01T10:00:00Z")
    assert decode(sr.protobuf(registry.client, a_topic(), message)) == {
        "leg": {"to": "Zug"},
        "arrivedAt": "2013-01-01T10:00:00Z",
        "miles": ["1", "2"],
    }


PROTO = """
syntax = "proto3";
package org.example;
import "google/protobuf/timestamp.proto";
import "legs/leg.proto";  // of another subject
message A { int32 n = 1; map<string, B> all = 2; message B { string s = 1; } }
message C { bytes b = 1; legs.Leg leg = 2; optional google.protobuf.Timestamp at = 3; }
"""


def test_protobuf_schema_that_was_registered_as_text_is_read(
    registry: sr.Registry, decode: Callable[[bytes], Any]
):
    topic, client = a_topic(), registry.client
    leg = 'syntax = "proto3"; package legs; message Leg { string to = 1; }'
    client.register_schema(f"{topic}-leg", Schema(leg, "PROTOBUF"))
    references = [SchemaReference("legs/leg.proto", f"{topic}-leg", 1)]
    schema_id = client.register_schema(f"{topic}-value", Schema(PROTO, "PROTOBUF", references))
    for payload, expected in (
        ("000805", {"n": 5, "all": {}}),
        ("0400000a017a", {"s": "z"}),
        ("02020a01ff12050a035a7567", {"b": "/w==", "leg": {"to": "Zug"}}),
    ):
        assert decode(confluent.join(schema_id, bytes.fromhex(payload))) == expected
    for payload, why in ((b"\x02\x06", "no message type at index 3"), (b"\x00\x0a\x05z", "parsing|message")):
        with pytest.raises(ValueError, match=why):
            decode(confluent.join(schema_id, payload))
