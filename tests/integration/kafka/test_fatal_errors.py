"""Errors that end librdkafka's client for good, or mislead it: hosts say what is uncertain, and go on."""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.mock_kafka import NOT_LEADER_OR_FOLLOWER, OUT_OF_ORDER_SEQUENCE_NUMBER, MockKafka
from tests.servers.own import deadline, eventually, records_of
from tests.servers.standing import StandingServer, plain_variables
from tests.support.builders import a_topic, an_event, headers_of, kafka_settings, load_handler
from tests.support.fakes import FakeQueue

from keylane.adapters.kafka.producer import KafkaProducer
from keylane.drain.drain import QueuedMessage, drain
from keylane.errors import Unacknowledged
from keylane.model.records import NewRecord, Position
from keylane.produce import message_codec
from keylane.produce.message_codec import MessageBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with contextlib.closing(MockKafka()) as mock:
        yield mock


@pytest.fixture
def topic(kafka: MockKafka) -> str:
    name = a_topic()
    kafka.create_topic(name)
    return name


def test_a_function_says_that_the_write_is_uncertain_and_takes_the_next_one(
    kafka: MockKafka,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: Any,
):
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka.bootstrap)
    function = load_handler("produce")

    def put() -> dict[str, Any]:
        answer: dict[str, Any] = function.lambda_handler(
            an_event("PUT", f"/topics/{topic}/keys/k", body=b"v"), None
        )
        return answer

    assert put()["statusCode"] == 201
    kafka.answer_with(OUT_OF_ORDER_SEQUENCE_NUMBER)
    with caplog.at_level(logging.ERROR, "keylane.kafka"):
        answer = put()
    problem = json.loads(answer["body"])
    assert (answer["statusCode"], problem["code"]) == (503, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert problem["uncertain"] is True
    assert "Retry-After" in headers_of(answer)
    assert [line for line in caplog.messages if "has ended and is replaced" in line]
    assert '"ProducersReplaced": 1' in capsys.readouterr().out
    assert put()["statusCode"] == 201


def test_drain_writes_the_message_with_a_new_client_at_its_next_delivery(kafka: MockKafka, topic: str):
    log = KafkaProducer(kafka_settings(kafka.bootstrap, timeout_ms=20_000))

    def deliver(number: int) -> tuple[int, list[str]]:
        batch = MessageBatch(bytes([number]) * 16, 1, topic, ((0, NewRecord(topic, b"k", b"v")),))
        message = QueuedMessage(f"m{number}", message_codec.to_body(message_codec.encode(batch)), "g")
        drained = drain(log, None, FakeQueue(), [message], deadline(10_000))
        return drained.written, drained.failed

    assert deliver(0) == (1, [])
    kafka.answer_with(OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert deliver(1) == (0, ["m1"])
    assert deliver(1) == (1, [])
    log.close()


def test_the_standing_server_goes_on_writing(kafka: MockKafka, topic: str, redis_cluster: str, tmp_path: Any):
    server = StandingServer(tmp_path / "serve.log", plain_variables(redis_cluster, kafka.bootstrap))
    try:
        server.wait_ready()

        def put() -> tuple[int, dict[str, Any]]:
            status, _, body = server.ask("PUT", f"/topics/{topic}/keys/k", b"v")
            return status, json.loads(body)

        eventually(lambda: put()[0] == 201)
        for _ in range(3):
            kafka.answer_with(OUT_OF_ORDER_SEQUENCE_NUMBER)
            status, problem = put()
            assert (status, problem.get("uncertain")) == (503, True)
            assert put()[0] == 201
        assert server.log.count("has ended and is replaced") == 3
    finally:
        server.process.terminate()
        server.process.wait(120)


def test_a_record_that_is_lost_behind_a_later_one_is_not_said_to_be_written(kafka: MockKafka, topic: str):
    settings = kafka_settings(kafka.bootstrap)
    one_by_one = replace(settings, producer=replace(settings.producer, batch_records=1))
    log = KafkaProducer(one_by_one)
    # Both are on the way before the first is answered, whose error says that the broker does not lead.
    kafka.answer_after(300)
    kafka.answer_with(NOT_LEADER_OR_FOLLOWER)
    records = [NewRecord(topic, b"a", b"lost", 0), NewRecord(topic, b"b", b"kept", 0)]
    lost, kept = log.append_all(records, deadline(10_000))
    log.close()
    assert records_of(kafka.bootstrap, topic, 0) == [(b"b", b"kept")]
    assert kept == Position(0, 0)
    assert isinstance(lost, Unacknowledged)
    assert lost.uncertain
    assert "may or may not have been written" in str(lost)
