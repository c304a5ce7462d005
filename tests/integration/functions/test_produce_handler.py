"""The produce function on a real broker: API Gateway events in, records out."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from tests.servers.own import create_topic, eventually, records_of
from tests.support.builders import a_topic, an_event, headers_of, kafka_settings, load_handler, written

from keylane import routing
from keylane.adapters.kafka.options import GROWTH_NOTICED_MS
from keylane.adapters.kafka.producer import KafkaProducer
from keylane.ports import Clock, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    Produce = Callable[..., dict[str, Any]]


@pytest.fixture
def produce(kafka: str, monkeypatch: pytest.MonkeyPatch) -> Produce:
    """One warm function: `produce(method, topic, key, **event)`."""
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    function = load_handler("produce")

    def ask(method: str, topic: str, key: bytes | str, **event: Any) -> dict[str, Any]:
        raw = key if isinstance(key, str) else quote(key, safe="")
        answer: dict[str, Any] = function.lambda_handler(
            an_event(method, f"/topics/{topic}/keys/{raw}", **event), None
        )
        json.dumps(answer)  # as the runtime does
        return answer

    return ask


@pytest.fixture
def topic(kafka: str) -> str:
    name = a_topic()
    create_topic(kafka, name)
    return name


def problem(answer: dict[str, Any]) -> tuple[int, str, str | None]:
    assert headers_of(answer)["Content-Type"] == "application/problem+json"
    document = json.loads(answer["body"])
    return answer["statusCode"], document["type"].removeprefix("urn:keylane:problem:"), document.get("code")


def test_put_writes_the_body_and_returns_its_position(produce: Produce, topic: str, kafka: str):
    partition = routing.partition_for(b"N14228", 9)
    answer = produce("PUT", topic, b"N14228", body=b'{"a": 1}')
    assert answer["statusCode"] == 201
    assert json.loads(answer["body"]) == {
        "partition": partition,
        "offset": 0,
        "position": f"{partition}:0",
    }
    assert headers_of(answer)["Keylane-Position"] == f"{partition}:0"
    assert records_of(kafka, topic, partition) == [(b"N14228", b'{"a": 1}')]


def test_delete_writes_a_tombstone_with_a_position_to_wait_for(produce: Produce, topic: str, kafka: str):
    partition = routing.partition_for(b"k", 9)
    assert produce("PUT", topic, b"k", body=b"v")["statusCode"] == 201
    answer = produce("DELETE", topic, b"k")
    assert answer["statusCode"] == 200
    assert json.loads(answer["body"])["position"] == f"{partition}:1"
    assert records_of(kafka, topic, partition) == [(b"k", b"v"), (b"k", None)]


@pytest.mark.parametrize("body", [b"", b"text", bytes(range(256)), "flüge\x00".encode(), b"v" * 1_048_576])
def test_bodies_are_written_byte_by_byte(produce: Produce, topic: str, kafka: str, body: bytes):
    assert produce("PUT", topic, b"k", body=body)["statusCode"] == 201
    assert records_of(kafka, topic, routing.partition_for(b"k", 9)) == [(b"k", body)]


@pytest.mark.parametrize("key", [b"a/b", b"\x00\xff", b"100%", "flüge".encode()])
def test_any_key_can_be_written(produce: Produce, topic: str, kafka: str, key: bytes):
    assert produce("PUT", topic, key, body=b"v")["statusCode"] == 201
    assert records_of(kafka, topic, routing.partition_for(key, 9)) == [(key, b"v")]


def test_value_over_the_topics_own_limit_is_413_too(produce: Produce, topic: str, kafka: str):
    small = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[small])
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.incremental_alter_configs([resource])[resource].result(10)
    answers: list[dict[str, Any]] = []

    def is_refused() -> bool:
        answers.append(produce("PUT", topic, b"k", body=b"v" * 5_000))
        return bool(answers[-1]["statusCode"] != 201)

    eventually(is_refused)
    assert problem(answers[-1]) == (413, "value-too-large", "MESSAGE_TOO_LARGE")


def test_a_part_of_the_key_decides_where_the_topic_is_partitioned_by_it_and_growth_is_noticed(kafka: str):
    topic, grown_by_s = a_topic(), 0.0
    create_topic(kafka, topic, 3)
    clock = Clock(monotonic_s=lambda: time.monotonic() + grown_by_s)
    log = KafkaProducer(kafka_settings(kafka, partitioner="crc32", partition_by={topic: "prefix:|"}))
    names = [b"customer-%d" % number for number in range(12)]

    def partitions() -> list[int]:
        limit = Deadline.after_ms(10_000, clock)
        return [written(log, topic, name + b"|1", b"v", limit).partition for name in names]

    assert partitions() == [routing.partition_for(name, 3, "crc32") for name in names]
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_partitions([NewPartitions(topic, 12)])[topic].result(30)
    grown_by_s = GROWTH_NOTICED_MS / 1000
    eventually(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 12)
    assert partitions() == [routing.partition_for(name, 12, "crc32") for name in names]
    log.close()
