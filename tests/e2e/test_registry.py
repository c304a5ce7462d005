"""Values of a Schema Registry over HTTP, written by confluent-kafka's serializers."""

from __future__ import annotations

import json

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from tests.e2e.test_change_events import AVRO as ENVELOPE
from tests.e2e.test_change_events import event
from tests.servers import schema_registry as sr
from tests.servers.own import eventually

TOPIC = "registered"
DEST = {"name": "dest", "type": "string"}
AVRO = {"type": "record", "name": "Flight", "fields": [DEST, {"name": "delay", "type": ["null", "int"]}]}
JSON_SCHEMA = json.dumps({"title": "F", "type": "object", "properties": {"dest": {"type": "string"}}})


def by_avro(registry, name: str) -> bytes:
    return sr.avro(registry.client, name, json.dumps(AVRO | {"name": name}), {"dest": "SFO", "delay": 7})


def test_records_of_every_kind_of_schema_are_found_by_their_fields(client, key, registry, produce):
    name = f"F{key.decode().replace('-', '')}"
    dest = f"SFO-{name}-{'x' * 80}"  # beyond what an index has of a text, the value decides
    file = FileDescriptorProto(name=f"{name}.proto", package="e2e", syntax="proto3")
    message = file.message_type.add(name="Flight")
    message.field.append(FieldDescriptorProto(name="dest", number=1, type=9, label=1))
    message.field.append(FieldDescriptorProto(name="delay", number=2, type=5, label=1))
    protobuf = sr.message_type([file], "e2e.Flight")
    schema = json.dumps(AVRO | {"name": name})
    written = {
        b"avro": sr.avro(registry.client, name, schema, {"dest": dest, "delay": 7}),
        b"json": sr.json_schema(registry.client, f"{name}J", JSON_SCHEMA, {"dest": dest, "delay": 8}),
        b"protobuf": sr.protobuf(registry.client, f"{name}P", protobuf(dest=dest, delay=9)),
        b"other": sr.avro(registry.client, name, schema, {"dest": f"{dest}y", "delay": 10}),
    }
    for kind, value in written.items():
        position = produce("registered-found", key + b"-" + kind, value)
        assert client.get_at("registered-found", key + b"-" + kind, position).status == 200

    def find(question: str) -> list[str]:
        answer = client.request("GET", f"/topics/registered-found/find?{question}")
        assert answer.status == 200, answer.body
        return [row["key"].removeprefix(f"{key.decode()}-") for row in answer.json["records"]]

    assert find(f"dest={dest}&order=-delay") == ["protobuf", "json", "avro"]
    assert find(f"dest=SFO-{name}-*&delay=8..&order=delay") == ["json", "protobuf", "other"]
    changed = sr.avro(registry.client, name, schema, {"dest": "OAK", "delay": None})
    position = produce("registered-found", key + b"-json", changed)
    assert client.get_at("registered-found", key + b"-json", position).status == 200
    assert find(f"dest={dest}&order=delay") == ["avro", "protobuf"]


def test_a_registry_that_does_not_answer_delays_events_of_a_new_schema_and_loses_none(
    stack, client, key, registry, produce
):
    name = f"Late{key.decode().replace('-', '')}"
    schema = ENVELOPE.replace('"Envelope"', f'"{name}"')
    rows = [{"id": number, "qty": 1} for number in (1, 2)]
    made, gone, again = (
        sr.avro(registry.client, f"shop.public.orders.{name}", schema, each)
        for each in (event("c", None, rows[0]), event("d", rows[0]), event("c", None, rows[1]))
    )
    log = stack.job.program.log
    before = log.read_text().count("topic 'registered-rows' back: schema ")
    registry.stall()
    try:
        produce("registered-rows", key, made)
        deleted = produce("registered-rows", key, gone)
        eventually(lambda: log.read_text().count("topic 'registered-rows' back: schema ") > before, 60)
        assert client.get("registered-rows", b"e2e-no-row").status == 404
    finally:
        registry.go_on()
    assert client.get_at("registered-rows", key, deleted).status == 404
    position = produce("registered-rows", key, again)
    assert client.get_at("registered-rows", key, position).json == rows[1]
    found = client.request("GET", "/topics/registered-rows/find?qty=1").json["records"]
    assert key.decode() in [row["key"] for row in found]
