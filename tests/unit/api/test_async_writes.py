"""Writes that nobody waits for, over HTTP events, a fake log and a fake queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import headers_of, load_produce
from tests.support.fakes import FakeLog, FakeQueue

from keylane.adapters.aws.settings import AwsSettings
from keylane.config.queue import DrainSettings, QueueSettings, drain_settings, queue_settings
from keylane.errors import SettingsError, Unconfirmed
from keylane.model.records import NewRecord
from keylane.produce import message_codec
from keylane.produce.enqueue import Batching, WriteAheadLog

if TYPE_CHECKING:
    from collections.abc import Callable

    Send = Callable[..., dict[str, Any]]

ASYNC = {"Prefer": "respond-async"}
JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/log.fifo"


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue()


@pytest.fixture
def send(log: FakeLog, queue: FakeQueue) -> Send:
    return load_produce(log, WriteAheadLog(queue, None, Batching(4)))


def queued(queue: FakeQueue) -> dict[str, NewRecord]:
    batches = [message_codec.decode(message_codec.from_body(message.body)) for message in queue.messages]
    return {batch.record_id(number): record for batch in batches for number, record in batch.records}


@pytest.mark.parametrize("wait_for_send", [{}, {"wait_for_send": False}, {"wait_for_send": None}])
def test_an_asynchronous_push_is_answered_as_kprf_does_once_it_is_queued(
    send: Send, queue: FakeQueue, log: FakeLog, wait_for_send: dict[str, Any]
):
    answer = send("/push", {"records": [{"topic": "t", "key": "k", "data": "v"}], **wait_for_send})
    assert answer["statusCode"] == 200
    [record_id] = queued(queue)
    assert json.loads(answer["body"]) == {
        "status": "ok",
        "errors": [],
        "positions": [None],
        "queued": [record_id],
    }
    assert queued(queue)[record_id] == NewRecord("t", b"k", b"v")
    assert not log.sent


def test_a_push_that_waits_is_delivered(send: Send, queue: FakeQueue):
    body = {"records": [{"topic": "t", "data": "v"}], "wait_for_send": True}
    answer = json.loads(send("/push", body)["body"])
    assert answer == {"status": "ok", "errors": [], "positions": ["0:0"]}
    assert not queue.messages


def test_a_push_reports_queued_records_among_failed_ones(send: Send, queue: FakeQueue):
    records = [{"topic": "t", "data": "v"}, {"topic": "no/topic", "data": "v"}]
    answer = send("/push", {"records": records})
    assert answer["statusCode"] == 400
    document = json.loads(answer["body"])
    assert document["errors"][0] == {"status": "queued", "error": False, "message": None}
    assert document["errors"][1]["code"] == "INVALID_TOPIC_EXCEPTION"
    assert document["queued"] == [*queued(queue), None]


@pytest.mark.parametrize(("method", "value"), [("PUT", b"v"), ("DELETE", None)])
def test_a_key_can_be_written_without_waiting(send: Send, queue: FakeQueue, method: str, value: bytes | None):
    answer = send("/topics/t/keys/k", value or b"", method=method, headers=ASYNC)
    assert answer["statusCode"] == 202
    assert headers_of(answer)["Preference-Applied"] == "respond-async"
    assert "Keylane-Position" not in headers_of(answer)
    [(record_id, record)] = queued(queue).items()
    assert json.loads(answer["body"]) == {"status": "queued", "id": record_id}
    assert record == NewRecord("t", b"k", value)


@pytest.mark.parametrize(
    "prefer", ["respond-async", "Respond-Async", "wait=10, respond-async", 'respond-async;x="1", wait=1']
)
def test_the_preference_is_read_as_rfc_7240_has_it(send: Send, prefer: str):
    assert send("/topics/t/keys/k", b"v", method="PUT", headers={"Prefer": prefer})["statusCode"] == 202


@pytest.mark.parametrize("prefer", ["", "respond-sync", "wait=10", "handling=respond-async"])
def test_other_preferences_are_not_asynchronous(send: Send, prefer: str):
    answer = send("/topics/t/keys/k", b"v", method="PUT", headers={"Prefer": prefer})
    assert answer["statusCode"] == 201
    assert "Preference-Applied" not in headers_of(answer)


def test_rest_proxys_records_can_be_written_without_waiting(send: Send, queue: FakeQueue):
    body = {"records": [{"key": "k", "value": 1}, {"value": 2}]}
    answer = send("/topics/t", body, headers=JSON | ASYNC)
    assert answer["statusCode"] == 202
    assert headers_of(answer)["Preference-Applied"] == "respond-async"
    offsets = json.loads(answer["body"])["offsets"]
    nowhere = {"partition": None, "offset": None, "error_code": None, "error": None, "status": "queued"}
    assert [offset | {"id": None} for offset in offsets] == [nowhere | {"id": None}] * 2
    assert {offset["id"] for offset in offsets} == set(queued(queue))


def test_with_the_queue_away_the_write_is_refused_and_not_written_elsewhere(
    send: Send, queue: FakeQueue, log: FakeLog
):
    queue.away = True
    answer = send("/topics/t/keys/k", b"v", method="PUT", headers=ASYNC)
    assert answer["statusCode"] == 503
    assert json.loads(answer["body"])["type"] == "urn:keylane:problem:queue-unavailable"
    assert int(headers_of(answer)["Retry-After"]) >= 1
    assert not log.sent


def test_a_record_that_may_be_queued_is_reported_as_uncertain(send: Send, queue: FakeQueue):
    queue.refusals["t:p3"] = Unconfirmed()
    answer = send("/push", {"records": [{"topic": "t", "partition": 3, "data": "v"}]})
    assert answer["statusCode"] == 503
    [entry] = json.loads(answer["body"])["errors"]
    assert (entry["uncertain"], entry["retriable"]) == (True, True)


def test_a_write_that_kafka_does_not_take_now_is_accepted_where_that_is_set(log: FakeLog, queue: FakeQueue):
    log.away = True
    send = load_produce(log, WriteAheadLog(queue, None, Batching(4), takes_async=False, takes_failed=True))
    answer = send("/topics/t/keys/k", b"v", method="PUT")
    assert answer["statusCode"] == 202
    assert "Preference-Applied" not in headers_of(answer)
    assert send("/topics/t", {"records": [{"value": 1}]}, headers=JSON)["statusCode"] == 202
    pushed = send("/push", {"records": [{"topic": "t", "data": "v"}], "wait_for_send": True})
    assert pushed["statusCode"] == 200
    assert len(queue.messages) == 3


def test_without_a_queue_there_is_no_log():
    assert queue_settings({}, 1_000) is None
    assert queue_settings({"KEYLANE_ASYNC": "deliver"}, 1_000) is None


def test_a_queue_takes_asynchronous_writes_by_default():
    aws = AwsSettings("eu-west-1", 1_000)
    assert queue_settings({"KEYLANE_QUEUE_URL": URL}, 1_000) == QueueSettings(
        URL, aws, 262_144, 16, None, takes_async=True, takes_failed=False
    )
    everything = {
        "KEYLANE_QUEUE_URL": URL.removesuffix(".fifo"),
        "KEYLANE_ASYNC": "deliver",
        "KEYLANE_QUEUE_ON_FAILURE": "true",
        "KEYLANE_QUEUE_GROUPS": "3",
        "KEYLANE_QUEUE_LIMIT_BYTES": "1048576",
        "KEYLANE_QUEUE_BUCKET": "our-log",
        "AWS_REGION": "eu-central-2",
    }
    found = queue_settings(everything, 1_000)
    assert found == QueueSettings(
        URL.removesuffix(".fifo"),
        AwsSettings("eu-central-2", 1_000),
        1_048_576,
        3,
        "our-log",
        takes_async=False,
        takes_failed=True,
    )
    assert not found.is_fifo


def test_the_drain_needs_its_dead_letters():
    found = drain_settings({"KEYLANE_DLQ_URL": URL})
    assert found == DrainSettings(URL, AwsSettings("eu-west-1", 5_000), 262_144, None, 20_000)
    with pytest.raises(SettingsError) as caught:
        drain_settings({})
    assert caught.value.variable == "KEYLANE_DLQ_URL"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KEYLANE_QUEUE_URL", "log.fifo"),
        ("KEYLANE_QUEUE_URL", "https://user:password@sqs/1/log"),
        ("KEYLANE_ASYNC", "maybe"),
        ("KEYLANE_QUEUE_ON_FAILURE", "yes"),
        ("KEYLANE_QUEUE_GROUPS", "0"),
        ("KEYLANE_QUEUE_GROUPS", "10001"),
        ("KEYLANE_QUEUE_LIMIT_BYTES", "4095"),
        ("KEYLANE_QUEUE_LIMIT_BYTES", "1048577"),
        ("KEYLANE_QUEUE_BUCKET", "Our Log"),
    ],
)
def test_a_variable_that_is_wrong_is_named_and_no_secret_shown(variable: str, value: str):
    with pytest.raises(SettingsError) as caught:
        queue_settings({"KEYLANE_QUEUE_URL": URL, variable: value}, 1_000)
    assert caught.value.variable == variable
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("given", [{"KEYLANE_ASYNC": "queue"}, {"KEYLANE_QUEUE_ON_FAILURE": "true"}])
def test_what_wants_a_queue_needs_one(given: dict[str, str]):
    with pytest.raises(SettingsError) as caught:
        queue_settings(given, 1_000)
    assert caught.value.variable in given
