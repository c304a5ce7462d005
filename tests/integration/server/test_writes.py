"""Writes in a process of the server: admitted, authorized, answered and counted like all requests."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import create_topic, eventually, messages_of, suspended
from tests.support.builders import a_topic
from tests.support.server_process import Process, with_tokens

from keylane.access.policy import Policy
from keylane_server.admission import MIB, Limits
from keylane_server.app import LARGE_BODY_BYTES
from keylane_server.options import TOKENS

if TYPE_CHECKING:
    from tests.support.server_process import Answer

    from keylane_local.servers.kafka import Kafka

TOKEN = "a-token-of-these-tests"


@pytest.fixture(scope="module")
def variables(kafka: str) -> dict[str, str]:
    return {"KEYLANE_KAFKA_BOOTSTRAP": kafka, "KEYLANE_PRODUCE_TIMEOUT_MS": "3000"}


@pytest.fixture(scope="module")
def topic(kafka: str, process: Process) -> str:
    """A topic with two partitions, to which the process has written."""
    name = a_topic()
    create_topic(kafka, name, 2)
    assert put(process, name, "first", b"1").status == 201
    return name


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


def problem_of(answer: Answer) -> tuple[int, str]:
    """The status of a refusal, and the last part of its problem's type."""
    return answer.status, json.loads(answer.body)["type"].rpartition(":")[2]


@pytest.mark.parametrize("value", [b"1", b"", b"\xff\x00", b"x" * LARGE_BODY_BYTES, b"x" * 200_000], ids=len)
def test_a_put_writes_the_body_and_answers_its_position(
    process: Process, topic: str, kafka: str, value: bytes
):
    key = f"k-{uuid.uuid4().hex}"
    first, second = (put(process, topic, key, value) for _ in range(2))
    assert (first.status, second.status) == (201, 201)
    partition, offset = (json.loads(first.body)[name] for name in ("partition", "offset"))
    assert {name for name, _ in first.headers} == {
        *("Keylane-Position", "Cache-Control", "Content-Type", "x-amzn-RequestId"),
    }
    assert dict(first.headers)["Keylane-Position"] == f"{partition}:{offset}"
    written = {each.offset(): each for each in messages_of(kafka, topic, partition)}[offset]
    assert (written.key(), written.value(), written.headers()) == (key.encode(), value, None)
    assert json.loads(second.body) == {
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
def test_a_push_of_one_record_is_written_and_answered(
    process: Process, topic: str, kafka: str, fields: dict[str, Any], wait_for_send: bool | None
):
    document = one_record(topic, **fields) | {"wait_for_send": wait_for_send}
    answer = push(process, document)
    assert answer.status == 200
    (position,) = json.loads(answer.body)["positions"]
    partition, offset = map(int, position.split(":"))
    assert partition == fields.get("partition", partition) or fields["partition"] == -1
    written = {each.offset(): each for each in messages_of(kafka, topic, partition)}[offset]
    record = document["records"][0]
    assert written.value() == record["data"].encode()
    assert written.key() == (None if record["key"] is None else record["key"].encode())


def test_a_body_that_comes_in_parts_is_written_whole(process: Process, topic: str):
    found = process.ask("PUT", f"/topics/{topic}/keys/parts", {"content-length": "4"}, b"ab", b"", b"cd")
    assert found.status == 201


def test_a_record_that_kafka_refuses_is_refused_again(process: Process, kafka: str, topic: str):
    compacted = a_topic()
    create_topic(kafka, compacted, 1, config={"cleanup.policy": "compact"})
    # The second one is sent alone, like what the topic has refused.
    refused, again = (push(process, one_record(compacted, key=None)) for _ in range(2))
    errors = [(each.status, json.loads(each.body)["errors"]) for each in (refused, again)]
    assert errors[0] == errors[1]
    assert (refused.status, errors[0][1][0]["code"]) == (400, "INVALID_RECORD")


def test_what_is_written_is_counted_with_the_writes_of_all(process: Process, topic: str):
    def count(metric: str) -> float:
        lines = process.metrics.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))

    counted = {
        'http_requests_duration_ms_count{code="201",method="put_key"}': 2,
        'http_requests_duration_ms_count{code="200",method="push/sync"}': 1,
        f'kafka_messages_sent_total{{topic="{topic}"}}': 3,
    }
    before = {metric: count(metric) for metric in counted}
    assert put(process, topic, "a", b"1").status == 201
    assert put(process, topic, "b", b"1").status == 201
    assert push(process, one_record(topic)).status == 200
    assert {metric: count(metric) - before[metric] for metric in counted} == counted


def test_a_write_that_kafka_does_not_acknowledge_is_uncertain_in_its_time(
    variables: dict[str, str], broker: Kafka
):
    topic = a_topic()
    create_topic(broker.bootstrap, topic, 1)
    with closing(Process(variables | {"KEYLANE_PRODUCE_TIMEOUT_MS": "1000"})) as process:
        assert put(process, topic, "k", b"0").status == 201
        with suspended(broker.program.process.pid):
            stalled = put(process, topic, "k", b"1")
        assert stalled.status == 503
        assert json.loads(stalled.body)["uncertain"]
        eventually(lambda: put(process, topic, "k", b"2").status == 201)


def test_a_token_writes_what_it_is_granted_alone(variables: dict[str, str], kafka: str, topic: str):
    other = a_topic()
    create_topic(kafka, other, 1)
    with closing(Process(with_tokens(variables, TOKEN, write=[topic]), authorization=TOKENS)) as process:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert put(process, topic, "k", b"1", bearer).status == 201
        for headers in ({}, {"authorization": f"Bearer {TOKEN}x"}):
            assert problem_of(put(process, topic, "k", b"1", headers)) == (401, "unauthorized")
        for found in (put(process, other, "k", b"1", bearer), push(process, one_record(topic), bearer)):
            assert problem_of(found) == (403, "forbidden")
        authorizer = process.app._authorizer
        assert authorizer is not None
        authorizer._replace(Policy())
        assert problem_of(put(process, topic, "k", b"1", bearer)) == (401, "unauthorized")


def test_a_record_has_the_id_of_its_request(variables: dict[str, str], kafka: str, topic: str):
    with closing(Process(variables | {"KEYLANE_REQUEST_ID_HEADER": "request-id"})) as process:
        answer = put(process, topic, "k", b"1")
    partition, offset = (json.loads(answer.body)[name] for name in ("partition", "offset"))
    written = {each.offset(): each for each in messages_of(kafka, topic, partition)}[offset]
    request_id = dict(answer.headers)["x-amzn-RequestId"]
    assert written.headers() == [("request-id", request_id.encode())]


def test_a_write_is_refused_where_all_bodies_take_too_much_memory(process: Process, topic: str):
    admission = process.app._admission
    admission.held_bytes += 256 * MIB
    try:
        found = put(process, topic, "k", b"1")
    finally:
        admission.held_bytes -= 256 * MIB
    assert problem_of(found) == (503, "overloaded")
    assert admission.held_bytes == 0
    assert admission.writes.running == 0


def test_a_write_is_refused_where_as_many_run_as_may(variables: dict[str, str], topic: str):
    with closing(Process(variables, limits=Limits(writing=1, waiting=0))) as process:
        writes = process.app._admission.writes
        assert writes.enter_at_once()
        for found in (put(process, topic, "k", b"1"), push(process, one_record(topic))):
            assert problem_of(found) == (503, "overloaded")
        writes.leave()
        assert put(process, topic, "k", b"1").status == 201
        assert writes.running == 0


def test_a_write_counts_among_the_requests_of_its_address(variables: dict[str, str], topic: str):
    with closing(Process(variables, limits=Limits(of_address=1))) as process:
        admission = process.app._admission
        admission.begin("127.0.0.1")
        assert problem_of(put(process, topic, "k", b"1")) == (429, "throttled")
        admission.end("127.0.0.1")
        assert put(process, topic, "k", b"1").status == 201
