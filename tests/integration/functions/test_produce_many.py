"""The produce function on a real broker: API Gateway events in, records out, one or many of a request."""

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
from tests.servers.own import create_topic, deadline, eventually, messages_of, records_of
from tests.support.builders import a_topic, an_event, kafka_settings, load_handler, written
from tests.support.stopwatch import takes_about

from keylane import routing
from keylane.adapters.kafka import producer
from keylane.adapters.kafka.options import GROWTH_NOTICED_MS
from keylane.adapters.kafka.producer import KafkaProducer
from keylane.errors import ProduceFailed
from keylane.model.records import NewRecord, Position
from keylane.ports import Clock, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Post = Produce = Callable[..., dict[str, Any]]

JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
PARTITIONS = 9


@pytest.fixture
def ask(kafka: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """One warm function: `ask(method, path, **event)`."""
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    function = load_handler("produce")

    def request(method: str, path: str, **event: Any) -> dict[str, Any]:
        answer: dict[str, Any] = function.lambda_handler(an_event(method, path, **event), None)
        json.dumps(answer)  # as the runtime does
        return answer

    return request


@pytest.fixture
def produce(ask: Callable[..., dict[str, Any]]) -> Produce:
    """`produce(method, topic, key, **event)`."""
    return lambda method, topic, key, **event: ask(
        method, f"/topics/{topic}/keys/{quote(key, safe='')}", **event
    )


@pytest.fixture
def post(ask: Callable[..., dict[str, Any]]) -> Post:
    """`post(path, body, media_type)`; the body is JSON."""
    return lambda path, body, media_type="application/json": ask(
        "POST", path, body=json.dumps(body).encode(), headers={"Content-Type": media_type}
    )


@pytest.fixture
def log(kafka: str) -> Iterator[KafkaProducer]:
    log = KafkaProducer(kafka_settings(kafka))
    yield log
    log.close()


def set_option(kafka: str, topic: str, name: str, value: str) -> None:
    """Set it, and wait until the broker reports it."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.incremental_alter_configs([resource])[resource].result(10)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    eventually(lambda: admin.describe_configs([asked])[asked].result(10)[name].value == value)


def test_value_over_the_topics_own_limit_is_413_too(produce: Produce, topic: str, kafka: str):
    set_option(kafka, topic, "max.message.bytes", "1000")
    answers: list[dict[str, Any]] = []

    def is_refused() -> bool:
        answers.append(produce("PUT", topic, b"k", body=b"v" * 5_000))
        return bool(answers[-1]["statusCode"] != 201)

    eventually(is_refused)
    document = json.loads(answers[-1]["body"])
    assert (answers[-1]["statusCode"], document["code"]) == (413, "MESSAGE_TOO_LARGE")
    assert document["type"] == "urn:keylane:problem:value-too-large"


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


def test_unknown_topics_fail_soon_however_many_records_name_them_and_are_found_once_created(
    post: Post, kafka: str
):
    names = [a_topic() for _ in range(5)]
    body = {"records": [{"topic": name, "data": "x"} for name in names * 400]}
    for _ in range(2):
        with takes_about(1):
            answer = post("/push", body)
        assert answer["statusCode"] == 404
    create_topic(kafka, names[0], 1)
    document = json.loads(post("/push", body)["body"])
    assert [bool(position) for position in document["positions"][:5]] == [True, False, False, False, False]


def test_record_that_kafka_refuses_takes_none_of_its_batch_with_it(
    log: KafkaProducer, topic: str, kafka: str
):
    far_ms = (round(time.time()) + 10 * 365 * 86_400) * 1000
    records = [NewRecord(topic, b"k%d" % (number % 7), b"%d" % number, 3) for number in range(100)]
    for bad in (0, 31, 99):
        records[bad] = NewRecord(topic, b"bad", b"x", 3, far_ms)
    results = log.append_all(records, deadline(10_000))
    for number, result in enumerate(results):
        if number in {0, 31, 99}:
            assert isinstance(result, ProduceFailed)
            assert (result.code, result.retriable) == ("INVALID_TIMESTAMP", False)
        else:
            assert isinstance(result, Position), result
    values = [int(value or b"") for _, value in records_of(kafka, topic, 3)]
    assert values == [number for number in range(100) if number not in {0, 31, 99}]


def test_topic_that_takes_single_records_of_a_size_but_no_such_batch_gets_them_all(
    log: KafkaProducer, topic: str, kafka: str
):
    set_option(kafka, topic, "max.message.bytes", "4000")
    records = [NewRecord(topic, b"%d" % (number % 3), b"%03d" % number * 300, 0) for number in range(40)]
    records[20] = NewRecord(topic, b"large", b"x" * 5_000, 0)
    results = log.append_all(records, deadline(20_000))
    assert [number for number, result in enumerate(results) if not isinstance(result, Position)] == [20]
    refused = results[20]
    assert isinstance(refused, ProduceFailed)
    assert refused.code == "MESSAGE_TOO_LARGE"
    values = [int((value or b"")[:3]) for _, value in records_of(kafka, topic, 0)]
    assert values == [number for number in range(40) if number != 20]


def test_ten_thousand_records_and_five_megabytes_are_taken_at_once(post: Post, topic: str, kafka: str):
    records = [
        {"topic": topic, "key": f"{number % 100}", "data": f"{number:0500}"} for number in range(10_000)
    ]
    answer = post("/push", {"records": records})
    assert answer["statusCode"] == 200
    positions = json.loads(answer["body"])["positions"]
    assert len(set(positions)) == 10_000
    for partition in range(9):
        of_key: dict[bytes, int] = {}
        for key, value in records_of(kafka, topic, partition):
            assert of_key.get(key, -1) < int(value or b"")
            of_key[key] = int(value or b"")


def test_rest_proxys_records_are_written_with_time_and_headers(post: Post, topic: str, kafka: str):
    now_ms = round(time.time() * 1000)
    headers = [{"name": "id", "value": "ü"}, {"name": "none", "value": None}]
    records = [
        {"key": "somekey", "value": {"foo": "bar"}, "timestamp": now_ms - 1_000, "headers": headers},
        {"key": None, "value": None},
    ]
    path = f"/topics/{topic}/partitions/2"
    answer = post(path, {"records": records}, JSON)
    assert json.loads(answer["body"]) == {
        "offsets": [
            {"partition": 2, "offset": 0, "error_code": None, "error": None},
            {"partition": 2, "offset": 1, "error_code": None, "error": None},
        ],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    first, second = messages_of(kafka, topic, 2)
    assert (first.key(), first.value()) == (b'"somekey"', b'{"foo":"bar"}')
    assert first.timestamp()[1] == now_ms - 1_000
    assert first.headers() == [("id", "ü".encode()), ("none", None)]
    assert (second.key(), second.value(), second.headers()) == (None, None, None)
    assert second.timestamp()[1] >= now_ms


def test_partition_that_was_just_added_is_found(log: KafkaProducer, topic: str, kafka: str):
    record = NewRecord(topic, None, b"v", 9)
    assert not isinstance(log.append_all([record], deadline(10_000))[0], Position)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_partitions([NewPartitions(topic, 10)])[topic].result(30)
    eventually(lambda: log.append_all([record], deadline(10_000)) == [Position(9, 0)])


def test_a_client_that_knows_many_unknown_topics_is_replaced(
    log: KafkaProducer, topic: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(producer, "UNKNOWN_TOPICS_LIMIT", 5)
    first = log.append_all([NewRecord(topic, b"k", b"1", 0), *_strangers(5)], deadline(10_000))[0]
    client = log._open
    assert (first, client is None) == (Position(0, 0), False)
    log.append_all(_strangers(1), deadline(10_000))
    assert log.append_all([NewRecord(topic, b"k", b"2", 0)], deadline(10_000)) == [Position(0, 1)]
    assert log._open is not client


def _strangers(count: int) -> list[NewRecord]:
    return [NewRecord(a_topic(), b"k", b"v") for _ in range(count)]
