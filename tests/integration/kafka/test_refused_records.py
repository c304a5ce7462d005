"""A record that Kafka refuses, among good ones: of one request, of several, and of several messages."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import create_topic, eventually, records_of
from tests.servers.standing import StandingServer, plain_variables
from tests.support.builders import a_topic, an_event, load_handler

from keylane.ports import Clock

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
):
    topic = a_topic()
    create_topic(kafka, topic, 1, config=settings)
    bad = a_record(key, b"bad") | more
    good = [a_record(b"k%d" % number, b"good-%d" % number) for number in range(10)]
    for _ in range(2):
        results = send(topic, [*good[:5], bad, bad, *good[5:]])
        refused = [entry for entry in results if entry["error_code"] is not None]
        assert [(entry["code"], entry["retriable"]) for entry in refused] == [(code, False)] * 2
        assert [entry["index"] for entry in refused] == [5, 6]
    values = [value for _, value in records_of(kafka, topic, 0)]
    assert sorted(value or b"" for value in values) == sorted(
        [b"good-%d" % number for number in range(10)] * 2
    )


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
