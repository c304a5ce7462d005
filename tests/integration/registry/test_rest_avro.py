"""REST Proxy's avro.v2 by a real Schema Registry, on a real broker, as its documentation has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.servers.own import messages_of
from tests.support.builders import a_topic, an_event, load_handler

from keylane.formats import confluent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import schema_registry as sr

    Post = Callable[[Any], tuple[int, dict[str, Any]]]

AVRO = "application/vnd.kafka.avro.v2+json"
USER = '{"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}'
TRIP = json.dumps(
    {
        "type": "record",
        "name": "Trip",
        "namespace": "org.example",
        "fields": [{"name": "to", "type": ["null", "string"]}, {"name": "days", "type": "int"}],
    }
)
PARTITIONS = 2


@pytest.fixture
def post(kafka: str, registry: sr.Registry, topic: str, monkeypatch: pytest.MonkeyPatch) -> Post:
    """One warm function with a registry."""
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    monkeypatch.setenv("KEYLANE_SCHEMA_REGISTRY_URL", registry.url)
    monkeypatch.setenv("KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS", "20000")
    function = load_handler("produce")

    def ask(body: Any) -> tuple[int, dict[str, Any]]:
        event = an_event(
            "POST", f"/topics/{topic}", body=json.dumps(body).encode(), headers={"Content-Type": AVRO}
        )
        answer = function.lambda_handler(event, None)
        return answer["statusCode"], json.loads(answer["body"])

    return ask


def refused(answer: tuple[int, dict[str, Any]]) -> tuple[int, int, str]:
    status, document = answer
    assert document["message"] == document["detail"]
    return status, document["error_code"], document["parameter"]


def test_the_documented_request_registers_its_schema_and_returns_the_id(
    post: Post, topic: str, kafka: str, registry: sr.Registry
):
    records = [{"value": {"name": "testUser"}}, {"value": {"name": "testUser2"}, "partition": 1}]
    status, first = post({"value_schema": USER, "records": records})
    assert status == 200
    assert first["key_schema_id"] is None
    schema_id = registry.client.get_latest_version(f"{topic}-value").schema_id
    assert first["value_schema_id"] == schema_id
    assert [each["error_code"] for each in first["offsets"]] == [None, None]
    assert first["offsets"][1] == {"partition": 1, "offset": 0, "error_code": None, "error": None} or (
        first["offsets"][0]["partition"] == 1
    )
    # By its id from then on, as the documentation has it.
    status, second = post({"value_schema_id": schema_id, "records": [{"value": {"name": "testUser3"}}]})
    assert (status, second["value_schema_id"]) == (200, schema_id)
    messages = messages_of(kafka, topic, 0) + messages_of(kafka, topic, 1)
    read = AvroDeserializer(registry.client)
    context = SerializationContext(topic, MessageField.VALUE)
    names = {read(message.value(), context)["name"] for message in messages}
    assert names == {"testUser", "testUser2", "testUser3"}


def test_keys_have_a_schema_of_their_own_and_a_null_value_is_a_tombstone(post: Post, topic: str, kafka: str):
    records = [
        {"key": "a", "value": {"to": {"string": "Zug"}, "days": 3}, "partition": 0},
        {"key": "a", "value": None, "partition": 0},
    ]
    status, answer = post({"key_schema": '"string"', "value_schema": TRIP, "records": records})
    assert status == 200
    written, deleted = messages_of(kafka, topic, 0)
    assert confluent.split(written.key()) == (answer["key_schema_id"], b"\x02a")
    assert confluent.split(written.value()) == (answer["value_schema_id"], b"\x02\x06Zug\x06")
    assert (deleted.key(), deleted.value()) == (written.key(), None)


def test_faults_have_rest_proxys_statuses_and_codes_and_nothing_is_written(
    post: Post, topic: str, kafka: str
):
    good, bad = {"value": {"to": None, "days": 1}}, {"value": {"to": "Zug", "days": 1}}
    assert refused(post({"records": [good]})) == (422, 42202, "value_schema")
    assert refused(post({"value_schema": TRIP, "records": [{"key": 1}]})) == (422, 42201, "key_schema")
    answer = post({"value_schema": TRIP, "records": [good, bad]})
    assert refused(answer) == (400, 42203, "records[1].value.to")
    for schema in ('{"type": "nothing"}', "{", "", 7, True):
        assert refused(post({"value_schema": schema, "records": [good]})) == (422, 42205, "value_schema")
    for schema in ({"type": "string"}, ["null", "string"]):
        assert refused(post({"value_schema": schema, "records": [good]})) == (400, 400, "value_schema")
    for schema_id in (2**31 - 1, str(2**31 - 1), 0, -1):
        answer = post({"value_schema_id": schema_id, "records": [good]})
        assert refused(answer) == (422, 42207, "value_schema_id")
    for schema_id in ("one", 2**31, 1.5, True, [1]):
        answer = post({"value_schema_id": schema_id, "records": [good]})
        assert refused(answer) == (400, 400, "value_schema_id")
    both = {"value_schema": TRIP, "value_schema_id": 1, "records": [good]}
    assert refused(post(both)) == (400, 400, "value_schema")
    assert messages_of(kafka, topic, 0) == []
    assert messages_of(kafka, topic, 1) == []


@pytest.mark.parametrize("field", ["key", "value"])
def test_an_id_is_that_of_a_version_of_the_topics_own_subject(
    post: Post, topic: str, kafka: str, registry: sr.Registry, field: str
):
    schema = Schema(
        json.dumps({"type": "record", "name": topic, "fields": [{"name": "a", "type": "int"}]}), "AVRO"
    )
    schema_id = registry.client.register_schema(f"{a_topic()}-{field}", schema)
    body = {f"{field}_schema_id": schema_id, "records": [{field: {"a": 1}, "partition": 0}]}
    status, document = post(body)
    assert (status, document["error_code"]) == (422, 42207)
    assert document["parameter"] == f"{field}_schema_id"
    assert f"is not a version of subject '{topic}-{field}'" in document["detail"]
    assert messages_of(kafka, topic, 0) == []
    # Registered for the topic by its text, the schema has the same id, which can be used at once.
    status, document = post({f"{field}_schema": schema.schema_str, "records": [{field: {"a": 1}}]})
    assert (status, document[f"{field}_schema_id"]) == (200, schema_id)
    assert post({**body, f"{field}_schema_id": str(schema_id)})[0] == 200


def test_a_schema_that_the_registry_rejects_is_42207(post: Post, registry: sr.Registry, topic: str):
    assert post({"value_schema": USER, "records": [{"value": {"name": "a"}}]})[0] == 200
    registry.client.set_compatibility(f"{topic}-value", level="FULL")
    other = USER.replace('"string"', '"int"')
    answer = post({"value_schema": other, "records": [{"value": {"name": 1}}]})
    assert refused(answer) == (422, 42207, "value_schema")


def test_without_an_answer_of_the_registry_a_new_schema_is_42207_and_a_known_one_is_written(
    post: Post, monkeypatch: pytest.MonkeyPatch, kafka: str, topic: str
):
    body = {"value_schema": TRIP, "records": [{"value": {"to": None, "days": 1}}]}
    assert post(body)[0] == 200
    monkeypatch.setattr(
        "keylane.adapters.registry.http.JsonHttp._connect", lambda *_: (_ for _ in ()).throw(OSError())
    )
    assert post(body)[0] == 200
    status, document = post({**body, "value_schema": USER})
    assert (status, document["error_code"]) == (422, 42207)
    assert (document["status"], document["type"]) == (422, "urn:keylane:problem:registry-unavailable")


def test_without_a_registry_avro_is_422(kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    monkeypatch.delenv("KEYLANE_SCHEMA_REGISTRY_URL", raising=False)
    function = load_handler("produce")
    event = an_event("POST", f"/topics/{topic}", body=b"{}", headers={"Content-Type": AVRO})
    answer = function.lambda_handler(event, None)
    document = json.loads(answer["body"])
    assert (answer["statusCode"], document["error_code"]) == (422, 42206)
    assert "Schema Registry" in document["detail"]
