"""Agents at a process of the server: writes take places of writes, rights are those of the token."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import create_topic, eventually, messages_of, suspended
from tests.support.agents import a_message
from tests.support.builders import a_topic
from tests.support.server_process import Process, with_tokens

from keylane_server.admission import Limits
from keylane_server.app import LARGE_BODY_BYTES
from keylane_server.options import TOKENS

if TYPE_CHECKING:
    from tests.support.server_process import Answer

    from keylane_local.servers.kafka import Kafka

TOKEN = "a-token-of-these-tests"
LARGE = "x" * LARGE_BODY_BYTES


@pytest.fixture(scope="module")
def variables(kafka: str, redis_cluster: str) -> dict[str, str]:
    return {
        "KEYLANE_KAFKA_BOOTSTRAP": kafka,
        "KEYLANE_REDIS_NODES": redis_cluster,
        "KEYLANE_MCP_WRITES": "true",
        "KEYLANE_PRODUCE_TIMEOUT_MS": "3000",
    }


@pytest.fixture
def topic(kafka: str) -> str:
    name = a_topic()
    create_topic(kafka, name, 2)
    return name


def post(process: Process, message: Any, **headers: str) -> Answer:
    body = json.dumps(message).encode()
    sized = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    return process.ask("POST", "/mcp", sized, body)


def put(process: Process, topic: str, key: str, value: Any, **headers: str) -> Answer:
    arguments = {"topic": topic, "key": key, "value": value}
    return post(process, a_message("tools/call", name="put", arguments=arguments), **headers)


def result_of(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.body
    found: dict[str, Any] = json.loads(answer.body)["result"]
    return found


@pytest.mark.parametrize(
    "value", ["a text", {"n": 1.5}, "x" * LARGE_BODY_BYTES], ids=["text", "json", "large"]
)
def test_a_put_is_in_kafka_at_the_position_that_it_returns(
    process: Process, kafka: str, topic: str, value: Any
):
    result = result_of(put(process, topic, "k", value))
    assert not result["isError"], result
    at = result["structuredContent"]
    found = messages_of(kafka, topic, at["partition"])
    written = value if isinstance(value, str) else json.dumps(value)
    assert found[at["offset"]].value() == written.encode()


def test_a_grant_decides_on_each_tool(variables: dict[str, str], kafka: str, topic: str):
    other = a_topic()
    create_topic(kafka, other, 1)
    granted = with_tokens(variables, TOKEN, write=[topic], read=[topic])
    with closing(Process(granted, authorization=TOKENS)) as process:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert not result_of(put(process, topic, "k", 1, **bearer))["isError"]
        for tool, more in (("put", {"value": 1}), ("get", {})):
            arguments = {"topic": other, "key": "k", **more}
            message = a_message("tools/call", name=tool, arguments=arguments)
            result = result_of(post(process, message, **bearer))
            assert result["isError"]
            assert result["structuredContent"]["problem"] == "outside-scope"
        assert post(process, a_message("ping")).status == 401


def test_a_stalled_kafka_takes_no_places_of_reads(variables: dict[str, str], broker: Kafka, topic: str):
    with closing(Process(variables, limits=Limits(writing=1))) as process:
        assert not result_of(put(process, topic, "k", 1))["isError"]
        admission = process.app._admission
        with suspended(broker.program.process.pid), ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(put, process, topic, "k", 2)
            eventually(lambda: admission.writes.running == 1)
            assert admission.reads.running == 0
            refused = put(process, topic, "k", 3)
            assert (refused.status, json.loads(refused.body)["type"][-10:]) == (503, "overloaded")
            assert result_of(waiting.result(30))["isError"]
        eventually(lambda: (admission.writes.running, admission.waiting) == (0, 0))
