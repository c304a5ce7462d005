"""REST Proxy's formats with schemas, of v2 and v3, on a real broker and by a real Schema Registry.

What was written is read by Confluent's own deserializers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from tests.servers import schema_registry as sr
from tests.servers.own import messages_of
from tests.support.builders import an_event, load_handler

from keylane.formats import confluent

if TYPE_CHECKING:
    from collections.abc import Callable

    Post = Callable[[str, str, Any], tuple[int, str]]

JSON = "application/json"
AVRO_V2 = "application/vnd.kafka.avro.v2+json"
USER = {"name": "testUser"}
AVRO = '{"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}'
OBJECT = '{"type": "object", "properties": {"name": {"type": "string"}}}'
PROTO = 'syntax = "proto3"; package org.example; message User { string name = 1; }'
SCHEMAS = {"AVRO": AVRO, "JSONSCHEMA": OBJECT, "PROTOBUF": PROTO}
REGISTERED = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}


@pytest.fixture
def post(kafka: str, registry: sr.Registry, monkeypatch: pytest.MonkeyPatch) -> Post:
    """One warm function with a registry."""
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    monkeypatch.setenv("KEYLANE_SCHEMA_REGISTRY_URL", registry.url)
    monkeypatch.setenv("KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS", "20000")
    function = load_handler("produce")

    def ask(path: str, media_type: str, body: Any) -> tuple[int, str]:
        event = an_event("POST", path, body=json.dumps(body).encode(), headers={"Content-Type": media_type})
        answer = function.lambda_handler(event, None)
        return answer["statusCode"], answer["body"]

    return ask


def user_message() -> Any:
    """The class of the message, as protoc's generated code would have it."""
    file = FileDescriptorProto(name="user.proto", package="org.example", syntax="proto3")
    name = file.message_type.add(name="User").field.add(name="name", number=1)
    name.type, name.label = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.LABEL_OPTIONAL
    return sr.message_type([file], "org.example.User")


def names_in(kafka: str, topic: str, kind: str, registry: sr.Registry) -> list[str]:
    context = SerializationContext(topic, MessageField.VALUE)
    values = [each.value() for each in messages_of(kafka, topic, 0)]
    if kind == "AVRO":
        return [AvroDeserializer(registry.client)(each, context)["name"] for each in values]
    if kind == "JSONSCHEMA":
        return [JSONDeserializer(OBJECT)(each, context)["name"] for each in values]
    read = ProtobufDeserializer(user_message(), {"use.deprecated.format": False})
    return [read(each, context).name for each in values]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_values_of_v3_are_read_by_confluents_deserializers(
    post: Post, kafka: str, topic: str, registry: sr.Registry, kind: str
):
    subject = f"{topic}-value"
    path = f"/v3/clusters/any/topics/{topic}/records"

    def written(**named: Any) -> dict[str, Any]:
        status, body = post(path, JSON, {"value": {**named, "data": USER}})
        report: dict[str, Any] = json.loads(body)
        assert (status, report["error_code"]) == (200, 200), report
        found: dict[str, Any] = report["value"]
        return found

    first = written(type=kind, schema=SCHEMAS[kind])
    known = registry.client.get_latest_version(subject)
    assert (first["type"], first["subject"]) == (kind, subject)
    assert (first["schema_id"], first["schema_version"]) == (known.schema_id, known.version)
    assert written(schema_id=known.schema_id) == first
    assert written(schema_version=known.version) == first
    assert written() == first
    status, body = post(f"{path}:batch", JSON, {"entries": [{"id": "a", "value": {"data": USER}}]})
    assert (status, json.loads(body)["successes"][0]["value"]) == (207, first)
    assert names_in(kafka, topic, kind, registry) == ["testUser"] * 5


@pytest.mark.parametrize("kind", SCHEMAS)
def test_values_of_v2_are_read_by_confluents_deserializers(
    post: Post, kafka: str, topic: str, registry: sr.Registry, kind: str
):
    media_type = f"application/vnd.kafka.{kind.lower()}.v2+json"
    body = {"value_schema": SCHEMAS[kind], "records": [{"value": USER}]}
    status, answer = post(f"/topics/{topic}", media_type, body)
    assert status == 200, answer
    schema_id = json.loads(answer)["value_schema_id"]
    assert schema_id == registry.client.get_latest_version(f"{topic}-value").schema_id
    status, _ = post(
        f"/topics/{topic}", media_type, {**body, "value_schema": None, "value_schema_id": schema_id}
    )
    assert status == 200
    assert names_in(kafka, topic, kind, registry) == ["testUser"] * 2


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_that_the_topics_subject_does_not_have_writes_nothing(
    post: Post, kafka: str, topic: str, registry: sr.Registry, kind: str
):
    path = f"/v3/clusters/any/topics/{topic}/records"

    def code(**named: Any) -> int:
        report = json.loads(post(path, JSON, {"value": {**named, "data": USER}})[1])
        return int(report["error_code"])

    foreign = registry.client.register_schema(f"{topic}-other", Schema(SCHEMAS[kind], REGISTERED[kind]))
    assert (code(schema_id=foreign), code()) == (42207, 42207)
    assert code(schema_version=7) == 400
    assert messages_of(kafka, topic, 0) == []


def test_keys_have_a_schema_of_their_own_and_a_null_value_is_a_tombstone(post: Post, kafka: str, topic: str):
    records = [{"key": "a", "value": USER, "partition": 0}, {"key": "a", "value": None, "partition": 0}]
    body = {"key_schema": '"string"', "value_schema": AVRO, "records": records}
    status, answer = post(f"/topics/{topic}", AVRO_V2, body)
    assert status == 200, answer
    written, deleted = messages_of(kafka, topic, 0)
    assert confluent.split(written.key()) == (json.loads(answer)["key_schema_id"], b"\x02a")
    assert confluent.split(written.value()) == (json.loads(answer)["value_schema_id"], b"\x10testUser")
    assert (deleted.key(), deleted.value()) == (written.key(), None)


def test_a_schema_that_is_not_compatible_with_the_subject_s_is_42207(
    post: Post, topic: str, registry: sr.Registry
):
    def write(schema: str, name: Any) -> tuple[int, Any]:
        body = {"value_schema": schema, "records": [{"value": {"name": name}}]}
        status, answer = post(f"/topics/{topic}", AVRO_V2, body)
        return status, json.loads(answer).get("error_code")

    assert write(AVRO, "a")[0] == 200
    registry.client.set_compatibility(f"{topic}-value", level="FULL")
    assert write(AVRO.replace('"string"', '"int"'), 1) == (422, 42207)
