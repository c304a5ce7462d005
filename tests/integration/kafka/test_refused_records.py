"""A record that Kafka refuses, among good ones: of one request, of several, and of several messages."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import create_topic, deadline, eventually, records_of
from tests.servers.standing import StandingServer, plain_variables
from tests.support.builders import a_topic, an_event, kafka_settings, load_handler
from tests.support.fakes import FakeQueue

from keylane.adapters.kafka.producer import KafkaProducer
from keylane.drain.drain import REASON, QueuedMessage, drain
from keylane.model.records import NewRecord
from keylane.ports import Clock
from keylane.produce import message_codec
from keylane.produce.message_codec import MessageBatch

if TYPE_CHECKING:
    import http.client
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.integration

BINARY = "application/vnd.kafka.binary.v2+json"
DAY_MS = 86_400_000


def far_ms() -> int:
    """A time that every topic refuses by default: more than an hour ahead."""
    return Clock().now_ms() + 10 * DAY_MS


def a_record(key: bytes | None, value: bytes, **more: Any) -> dict[str, Any]:
    named = {} if key is None else {"key": base64.b64encode(key).decode()}
    return {"value": base64.b64encode(value).decode(), **named, **more}


@pytest.fixture
def send(kafka: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, list[dict[str, Any]]], list[Any]]:
    """`send(topic, records)` by a function; returns the result of each record."""
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", kafka)
    monkeypatch.setenv("KEYLANE_PRODUCE_TIMEOUT_MS", "15000")
    function = load_handler("produce")

    def ask(topic: str, records: list[dict[str, Any]]) -> list[Any]:
        event = an_event(
            "POST",
            f"/topics/{topic}",
            body=json.dumps({"records": records}).encode(),
            headers={"Content-Type": BINARY},
        )
        return list(json.loads(function.lambda_handler(event, None)["body"])["offsets"])

    return ask


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("settings", "key", "more", "code"),
    [
        ({}, b"x", {"timestamp": far_ms()}, "INVALID_TIMESTAMP"),
        ({"cleanup.policy": "compact"}, None, {}, "INVALID_RECORD"),
        ({"max.message.bytes": "20000"}, b"x", {"value": "A" * 40_000}, "MESSAGE_TOO_LARGE"),
    ],
)
def test_only_the_records_at_fault_are_refused(
    kafka: str,
    send: Callable[[str, list[dict[str, Any]]], list[Any]],
    settings: dict[str, str],
    key: bytes | None,
    more: dict[str, Any],
    code: str,
    count: int,
):
    topic = a_topic()
    create_topic(kafka, topic, 1, config=settings)
    bad = a_record(key, b"bad") | more
    good = [a_record(b"k%d" % number, b"good-%d" % number) for number in range(10)]
    for _ in range(2):
        results = send(topic, [*good[:5], *[bad] * count, *good[5:]])
        refused = [entry for entry in results if entry["error_code"] is not None]
        assert [(entry["code"], entry["retriable"]) for entry in refused] == [(code, False)] * count
        assert [entry["index"] for entry in refused] == list(range(5, 5 + count))
    values = [value for _, value in records_of(kafka, topic, 0)]
    assert sorted(value or b"" for value in values) == sorted(
        [b"good-%d" % number for number in range(10)] * 2
    )


def test_an_older_record_of_a_key_that_has_a_newer_one_is_superseded(
    kafka: str, send: Callable[[str, list[dict[str, Any]]], list[Any]]
):
    """The older one shares its batch with bad ones; the newer one lies in another batch."""
    topic = a_topic()
    create_topic(kafka, topic, 1)
    first = [a_record(b"k", b"older"), *[a_record(b"x", b"bad", timestamp=far_ms())] * 2]
    fill = [a_record(b"f%d" % number, b"z" * 90_000) for number in range(24)]
    older, bad, _, *others = send(topic, [*first, *fill, a_record(b"k", b"newer")])
    assert others[-1]["offset"] is not None
    assert (bad["code"], bad["retriable"], "superseded" in bad) == ("INVALID_TIMESTAMP", False, False)
    assert (older["retriable"], older["superseded"], older["error_code"]) == (False, True, 50002)
    assert "a newer record of its key was written" in older["error"]
    values = [value for key, value in records_of(kafka, topic, 0) if key == b"k"]
    assert values == [b"newer"]


def test_records_of_other_callers_are_written_while_one_sends_bad_ones(
    kafka: str, redis_cluster: str, tmp_path: Path
):
    topic = a_topic()
    create_topic(kafka, topic, 1)
    server = StandingServer(tmp_path / "serve.log", plain_variables(redis_cluster, kafka))
    stop = threading.Event()
    bad_results: list[Any] = []

    def send_bad() -> None:
        body = json.dumps({"records": [a_record(b"x", b"bad", timestamp=far_ms())]})
        with closing(server.connect()) as connection:
            while not stop.is_set():
                connection.request("POST", f"/topics/{topic}", body, {"Content-Type": BINARY})
                bad_results.extend(json.loads(connection.getresponse().read())["offsets"])

    def put(connection: http.client.HTTPConnection, key: str) -> int:
        connection.request("PUT", f"/topics/{topic}/keys/{key}", b"good")
        answer = connection.getresponse()
        answer.read()
        return answer.status

    strangers = [threading.Thread(target=send_bad) for _ in range(2)]
    try:
        server.wait_ready()
        with closing(server.connect()) as connection:
            eventually(lambda: put(connection, "first") == 201)
            for stranger in strangers:
                stranger.start()
            eventually(lambda: len(bad_results) > 2)
            assert [put(connection, f"k{number}") for number in range(150)] == [201] * 150
    finally:
        stop.set()
        for stranger in strangers:
            stranger.join(60)
        server.process.terminate()
        server.process.wait(120)
    assert {entry["code"] for entry in bad_results} == {"INVALID_TIMESTAMP"}
    assert b"bad" not in {value for _, value in records_of(kafka, topic, 0)}


def test_of_several_messages_the_bad_record_alone_becomes_a_dead_letter(kafka: str):
    topic = a_topic()
    create_topic(kafka, topic, 1)
    log, dead = KafkaProducer(kafka_settings(kafka, timeout_ms=20_000)), FakeQueue()
    messages = []
    for number in range(3):
        records = [NewRecord(topic, b"%d-%d" % (number, each), b"good") for each in range(3)]
        if number == 1:
            records[1] = NewRecord(topic, b"x", b"bad", timestamp_ms=far_ms())
        batch = MessageBatch(bytes([number]) * 16, Clock().now_ms(), topic, tuple(enumerate(records)))
        body = message_codec.to_body(message_codec.encode(batch))
        messages.append(QueuedMessage(f"m{number}", body, f"g{number}"))
    drained = drain(log, None, dead, messages, deadline(20_000))
    log.close()
    assert (drained.written, drained.failed, dict(drained.dead)) == (8, [], {"INVALID_TIMESTAMP": 1})
    [letter] = dead.messages
    assert letter.attributes[REASON] == "INVALID_TIMESTAMP"
    assert [
        record.value for _, record in message_codec.decode(message_codec.from_body(letter.body)).records
    ] == [b"bad"]
