"""The short way of plain writes in a process of the server: it writes and answers as the way of all."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import create_topic, eventually, messages_of, suspended
from tests.support.builders import a_topic
from tests.support.server_process import OTHER_WAY, Process, with_tokens

from keylane.api.http.parameters import HEADER
from keylane.app.produce import OPERATIONS
from keylane_server.admission import MIB
from keylane_server.options import TOKENS
from keylane_server.writes import LARGEST_BYTES, NOT_PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.server_process import Answer

    from keylane_local.servers.kafka import Kafka

TOKEN = "a-token-of-these-tests"


@pytest.fixture(scope="module")
def variables(kafka: str) -> dict[str, str]:
    return {"KEYLANE_KAFKA_BOOTSTRAP": kafka, "KEYLANE_PRODUCE_TIMEOUT_MS": "3000"}


@pytest.fixture(scope="module")
def process(variables: dict[str, str]) -> Iterator[Process]:
    running = Process(variables)
    yield running
    running.close()


@pytest.fixture(scope="module")
def topic(kafka: str, process: Process) -> str:
    """A topic with two partitions, to which the process has written."""
    name = a_topic()
    create_topic(kafka, name, 2)
    warm(process, name)
    return name


def warm(process: Process, topic: str) -> None:
    """Have the process make its producer, and look the topic up."""
    assert put(process, topic, "warm", b"1", OTHER_WAY).status == 201


def put(
    process: Process, topic: str, key: str, value: bytes, headers: dict[str, str] | None = None
) -> Answer:
    sized = {"content-length": str(len(value)), **(headers or {})}
    return process.ask("PUT", f"/topics/{topic}/keys/{key}", sized, value)


def push(process: Process, document: Any, headers: dict[str, str] | None = None) -> Answer:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    sized = {"content-length": str(len(body)), **(headers or {})}
    return process.ask("POST", "/push", sized, body)


def one_record(topic: str, **fields: Any) -> dict[str, Any]:
    return {"records": [{"topic": topic, "key": "k", "data": "v", **fields}], "wait_for_send": True}


def without_positions(answer: Answer) -> tuple[int, set[str], Any]:
    """What two writes have in common."""
    document = json.loads(answer.body)
    for name in ("offset", "position", "positions", "instance"):
        document.pop(name, None)
    return answer.status, {name for name, _ in answer.headers}, document


@pytest.mark.parametrize("value", [b"1", b"", b"\xff\x00", b"x" * LARGEST_BYTES], ids=len)
def test_a_plain_put_is_written_and_answered_as_on_the_way_of_all(
    process: Process, topic: str, kafka: str, value: bytes
):
    key = f"k-{uuid.uuid4().hex}"
    plain, other = (put(process, topic, key, value, headers) for headers in ({}, OTHER_WAY))
    assert (plain.is_short, other.is_short) == (True, False)
    assert without_positions(plain) == without_positions(other)
    partition, offset = (json.loads(plain.body)[name] for name in ("partition", "offset"))
    assert dict(plain.headers)["Keylane-Position"] == f"{partition}:{offset}"
    written = {each.offset(): each for each in messages_of(kafka, topic, partition)}[offset]
    assert (written.key(), written.value(), written.headers()) == (key.encode(), value, None)
    assert json.loads(other.body) == {
        "partition": partition,
        "offset": offset + 1,
        "position": f"{partition}:{offset + 1}",
    }


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"key": None},
        {"partition": 1},
        {"partition": -1},
        {"more": [1]},
        {"data": ""},
        {"data": "ü\u2028"},
    ],
    ids=str,
)
@pytest.mark.parametrize("wait_for_send", [True, False, None])
def test_a_plain_push_is_written_and_answered_as_on_the_way_of_all(
    process: Process, topic: str, kafka: str, fields: dict[str, Any], wait_for_send: bool | None
):
    document = one_record(topic, **fields) | {"wait_for_send": wait_for_send}
    plain, other = (push(process, document, headers) for headers in ({}, OTHER_WAY))
    assert (plain.is_short, other.is_short) == (True, False)
    assert without_positions(plain) == without_positions(other)
    (position,) = json.loads(plain.body)["positions"]
    partition, offset = map(int, position.split(":"))
    assert partition == fields.get("partition", partition) or fields["partition"] == -1
    written = {each.offset(): each for each in messages_of(kafka, topic, partition)}[offset]
    record = document["records"][0]
    assert written.value() == record["data"].encode()
    assert written.key() == (None if record["key"] is None else record["key"].encode())


def test_a_body_that_comes_in_parts_is_written_whole(process: Process, topic: str):
    found = process.ask("PUT", f"/topics/{topic}/keys/parts", {"content-length": "4"}, b"ab", b"", b"cd")
    assert (found.status, found.is_short) == (201, True)


def test_every_header_that_a_write_looks_at_is_not_plain():
    for name in ("put_key", "push"):
        named = {each.name for each in OPERATIONS[name].parameters if each.place == HEADER}
        assert {each.lower().encode() for each in named} <= NOT_PLAIN
        assert named, name


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        pytest.param("{path}?key_format=base64", {}, id="a query"),
        pytest.param("{path}%41", {}, id="an encoded key"),
        pytest.param("{path}", {"prefer": "respond-async"}, id="a preference"),
        pytest.param("{path}", {"if-match": '"0-0"'}, id="a condition"),
        pytest.param("{path}", {"content-encoding": "gzip"}, id="a compressed body"),
        pytest.param("{path}", {"transfer-encoding": "chunked"}, id="chunks"),
        pytest.param("{path}", {"traceparent": "00-" + "1" * 32 + "-" + "1" * 16 + "-01"}, id="a trace"),
        pytest.param("{path}", {"host": ""}, id="no host"),
        pytest.param("{path}", {"content-length": "70000"}, id="a large body"),
        pytest.param("/topics/{topic}/keys/", {}, id="no key"),
    ],
)
def test_a_put_that_is_not_plain_takes_the_way_of_all(
    process: Process, topic: str, change: str, headers: dict[str, str]
):
    path = change.format(path=f"/topics/{topic}/keys/k", topic=topic)
    found = process.ask("PUT", path, {"content-length": "1"} | headers, b"1")
    assert not found.is_short


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"{", id="no JSON"),
        pytest.param({"records": []}, id="no record"),
        pytest.param({"records": [{"topic": "t", "data": 1}]}, id="a wrong field"),
        pytest.param({"records": [{"topic": "t t", "data": "v"}]}, id="no topic's name"),
        pytest.param({"records": [{"topic": "t", "data": "v", "partition": -2}]}, id="a negative partition"),
        pytest.param({"records": [{"topic": "t", "data": "v"}] * 2}, id="two records"),
        pytest.param({"records": [{"topic": "t", "data": "v" * LARGEST_BYTES}]}, id="a large body"),
    ],
)
def test_a_push_that_is_not_plain_is_answered_by_the_way_of_all(process: Process, topic: str, document: Any):
    if isinstance(document, dict):
        for record in document["records"]:
            record["topic"] = record["topic"].replace("t", topic)
    plain, other = (push(process, document, headers) for headers in ({}, OTHER_WAY))
    assert not plain.is_short
    assert without_positions(plain) == without_positions(other)


def test_a_record_that_kafka_refuses_is_refused_as_on_the_way_of_all(
    process: Process, kafka: str, topic: str
):
    compacted = a_topic()
    create_topic(kafka, compacted, 1, config={"cleanup.policy": "compact"})
    warm(process, compacted)
    document = one_record(compacted, key=None)
    refused = push(process, document)
    assert (refused.status, refused.is_short) == (400, True)
    # Such a record is sent alone for a while, which the short way does not do.
    again = push(process, document)
    assert not again.is_short
    assert without_positions(refused) == without_positions(again)


def test_a_topic_that_kafka_does_not_have_is_answered_as_on_the_way_of_all(process: Process, topic: str):
    plain, other = (put(process, a_topic(), "k", b"1", headers) for headers in ({}, OTHER_WAY))
    assert plain.status == 404
    assert without_positions(plain)[:2] == without_positions(other)[:2]


def test_what_is_written_is_counted_with_the_writes_of_all(process: Process, topic: str):
    def count(metric: str) -> float:
        lines = process.metrics.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))

    counted = {
        'http_requests_duration_count{code="201",method="put_key"}': 2,
        'http_requests_duration_count{code="200",method="push/sync"}': 1,
        f'kafka_sent_messages{{topic="{topic}"}}': 3,
    }
    before = {metric: count(metric) for metric in counted}
    assert put(process, topic, "a", b"1").is_short
    assert put(process, topic, "b", b"1").is_short
    assert push(process, one_record(topic)).is_short
    assert {metric: count(metric) - before[metric] for metric in counted} == counted


def test_a_write_that_kafka_does_not_acknowledge_is_uncertain_in_its_time(
    variables: dict[str, str], broker: Kafka
):
    topic = a_topic()
    create_topic(broker.bootstrap, topic, 1)
    process = Process(variables | {"KEYLANE_PRODUCE_TIMEOUT_MS": "1000"})
    try:
        warm(process, topic)
        with suspended(broker.program.process.pid):
            stalled = put(process, topic, "k", b"1")
        assert (stalled.status, stalled.is_short) == (503, True)
        assert json.loads(stalled.body)["uncertain"]
        eventually(lambda: put(process, topic, "k", b"2").status == 201)
    finally:
        process.close()


def test_a_token_opens_the_short_way_to_what_it_may_write_alone(
    variables: dict[str, str], kafka: str, topic: str
):
    other = a_topic()
    create_topic(kafka, other, 1)
    process = Process(with_tokens(variables, TOKEN, write=[topic]), authorization=TOKENS)
    bearer = {"authorization": f"Bearer {TOKEN}"}
    try:
        # The first write makes the producer.
        assert put(process, topic, "k", b"1", bearer).status == 201
        found = put(process, topic, "k", b"1", bearer)
        assert (found.status, found.is_short) == (201, True)
        for headers in ({}, {"authorization": f"Bearer {TOKEN}x"}):
            found = put(process, topic, "k", b"1", headers)
            assert (found.status, found.is_short) == (401, False)
        for found in (put(process, other, "k", b"1", bearer), push(process, one_record(topic), bearer)):
            assert (found.status, found.is_short) == (403, False)
        authorizer = process.app._authorizer
        assert authorizer is not None
        authorizer._replace({})
        found = put(process, topic, "k", b"1", bearer)
        assert (found.status, found.is_short) == (401, False)
    finally:
        process.close()


@pytest.mark.parametrize(
    "setting",
    [
        {"KEYLANE_TOPICS": '{"write": ["orders.*"]}'},
        {"KEYLANE_REQUEST_ID_HEADER": "request-id"},
    ],
    ids=str,
)
def test_writes_that_are_refused_or_named_have_no_short_way(
    variables: dict[str, str], topic: str, setting: dict[str, str]
):
    process = Process(variables | setting)
    try:
        statuses = {put(process, topic, "k", b"1").status for _ in range(2)}
        assert not put(process, topic, "k", b"1").is_short
        assert statuses <= {201, 403}
    finally:
        process.close()


def test_a_push_is_refused_where_all_bodies_take_too_much_memory(process: Process, topic: str):
    admission = process.app._admission
    admission.held_bytes += 256 * MIB
    try:
        found = put(process, topic, "k", b"1")
    finally:
        admission.held_bytes -= 256 * MIB
    assert (found.status, found.is_short) == (503, False)
    assert admission.held_bytes == 0
    assert admission.writes.running == 0
