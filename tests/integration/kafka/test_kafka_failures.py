"""Writes while a real broker is away, hangs, and comes back."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Uuid
from tests.servers.own import (
    create_topic,
    deadline,
    eventually,
    own_kafka,
    records_of,
    repair,
    suspended,
    wait_writable,
)
from tests.support.builders import a_topic, an_event, headers_of, kafka_settings, load_handler, written
from tests.support.stopwatch import takes_about

from keylane.adapters.kafka.options import Connection
from keylane.adapters.kafka.producer import KafkaProducer
from keylane.errors import LogUnavailable
from keylane_spark.log.kafka_admin import JobKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane_local.servers.kafka import Kafka

TIMEOUT_MS = 1_500


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with own_kafka(tmp_path_factory.mktemp("breaking-kafka")) as broker:
        yield broker


@pytest.fixture
def breaking(one_broker: Kafka) -> Kafka:
    """A broker to break, up again for each test and ready for its writes."""
    one_broker.start()
    wait_writable(one_broker)
    return one_broker


@pytest.fixture
def topic(breaking: Kafka) -> str:
    name = a_topic()
    create_topic(breaking.bootstrap, name, 1)
    return name


@pytest.fixture
def put(breaking: Kafka, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], dict[str, Any]]:
    """One warm produce function: `put(topic, value)`."""
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", breaking.bootstrap)
    monkeypatch.setenv("KEYLANE_PRODUCE_TIMEOUT_MS", str(TIMEOUT_MS))
    function = load_handler("produce")

    def ask(topic: str, value: bytes) -> dict[str, Any]:
        event = an_event("PUT", f"/topics/{topic}/keys/k", body=value)
        answer: dict[str, Any] = function.lambda_handler(event, None)
        return answer

    return ask


def assert_503_in_time(put: Callable[[str, bytes], dict[str, Any]], topic: str, value: bytes) -> None:
    with takes_about(TIMEOUT_MS / 1000):
        answer = put(topic, value)
    assert answer["statusCode"] == 503
    assert headers_of(answer)["Retry-After"] == "1"
    assert json.loads(answer["body"])["type"] == "urn:keylane:problem:log-unavailable"


def test_broker_that_goes_away_is_503_and_the_next_write_works_when_it_is_back(
    breaking: Kafka, topic: str, put: Callable[[str, bytes], dict[str, Any]]
):
    eventually(lambda: put(topic, b"before")["statusCode"] == 201)
    breaking.stop()
    assert_503_in_time(put, topic, b"lost")
    assert_503_in_time(put, topic, b"lost too")
    repair(breaking)
    eventually(lambda: put(topic, b"after")["statusCode"] == 201)
    values = [value for _, value in records_of(breaking.bootstrap, topic, 0)]
    # A record that was reported as failed is not sent later, when the broker is up again.
    assert set(values) == {b"before", b"after"}


def test_broker_that_is_away_at_the_start_is_503_until_it_is_there(
    breaking: Kafka, topic: str, put: Callable[[str, bytes], dict[str, Any]]
):
    breaking.stop()
    assert_503_in_time(put, topic, b"lost")
    repair(breaking)
    eventually(lambda: put(topic, b"first")["statusCode"] == 201)
    assert records_of(breaking.bootstrap, topic, 0)[0] == (b"k", b"first")


def test_broker_that_hangs_is_503_and_its_outcome_is_called_unknown(breaking: Kafka, topic: str):
    log = KafkaProducer(kafka_settings(breaking.bootstrap, timeout_ms=TIMEOUT_MS))
    assert written(log, topic, b"k", b"before", deadline(20_000)).offset == 0
    process = breaking.program.process
    assert process
    unknown = pytest.raises(LogUnavailable, match="may or may not have been written")
    with suspended(process.pid), takes_about(1), unknown:
        written(log, topic, b"k", b"uncertain", deadline(500))
    position = written(log, topic, b"k", b"after", deadline(20_000))
    assert records_of(breaking.bootstrap, topic, 0)[position.offset] == (b"k", b"after")
    log.close()


def test_records_of_a_push_to_a_broker_that_is_away_are_uncertain_each_and_not_sent_later(
    breaking: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", breaking.bootstrap)
    monkeypatch.setenv("KEYLANE_PRODUCE_TIMEOUT_MS", str(TIMEOUT_MS))
    function = load_handler("produce")

    def push(value: str) -> dict[str, Any]:
        body = {"records": [{"topic": topic, "key": f"k{number}", "data": value} for number in range(3)]}
        answer: dict[str, Any] = function.lambda_handler(
            an_event("POST", "/push", body=json.dumps(body).encode()), None
        )
        return answer

    eventually(lambda: push("before")["statusCode"] == 200)
    breaking.stop()
    with takes_about(TIMEOUT_MS / 1000):
        answer = push("lost")
    assert (answer["statusCode"], headers_of(answer)["Retry-After"]) == (503, "1")
    document = json.loads(answer["body"])
    assert document["positions"] == [None] * 3
    assert all(entry["retriable"] and entry["uncertain"] for entry in document["errors"])
    repair(breaking)
    eventually(lambda: push("after")["statusCode"] == 200)
    values = [value for _, value in records_of(breaking.bootstrap, topic, 0)]
    assert values[:3] == [b"before"] * 3
    assert values[-3:] == [b"after"] * 3
    assert set(values) == {b"before", b"after"}


def test_address_where_no_broker_is_is_log_unavailable_in_time():
    log = KafkaProducer(kafka_settings("127.0.0.1:1", timeout_ms=300))
    for _ in range(2):
        with takes_about(0.5), pytest.raises(LogUnavailable):
            written(log, "t", b"k", b"v", deadline(300))
    log.close()


def test_the_job_sees_the_offsets_of_a_broker_that_crashed_and_came_back(breaking: Kafka, topic: str):
    """Its client knows the partition under a leader epoch that is over."""
    broker = JobKafka(Connection(breaking.bootstrap))
    assert broker.end_offsets({topic: 1}) == {(topic, 0): 0}
    breaking.kill()
    repair(breaking)

    def sees_it() -> bool:
        try:
            return broker.end_offsets({topic: 1}) == {(topic, 0): 0}
        except LogUnavailable:
            return False

    eventually(sees_it)


def test_a_topic_that_is_described_with_each_heartbeat_leaves_nothing_in_memory(kafka: str):
    topic = a_topic()
    create_topic(kafka, topic, 2)
    broker = JobKafka(Connection(kafka))

    def topic_ids() -> int:
        gc.collect()
        return sum(isinstance(each, Uuid) for each in gc.get_objects())

    before = topic_ids()
    for _ in range(50):
        assert broker.describe([topic])[topic].partition_count == 2
    assert topic_ids() <= before
