"""Large bodies are parsed beside the process of `keylane serve` that answers all others."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.integration.server.test_standing_server_and_kafka import children, one_child, stalled
from tests.servers.own import create_topic, eventually
from tests.servers.standing import StandingServer, plain_variables

from keylane_server.app import LARGE_BODY_BYTES
from keylane_server.child_process import PROGRAM, START_EVERY_S

if TYPE_CHECKING:
    from keylane_local.servers.kafka import Kafka

V2 = {"Content-Type": "application/vnd.kafka.json.v2+json"}


@pytest.fixture(scope="module")
def topic(topic: str, kafka: str) -> str:
    create_topic(kafka, topic, 9)
    return topic


@pytest.fixture(scope="module")
def variables(redis_cluster: str, kafka: str) -> dict[str, str]:
    return plain_variables(redis_cluster, kafka)


@pytest.fixture
def alone(server: StandingServer) -> StandingServer:
    """The server without a process beside it, and with the right to start one: that is once a second."""
    for each in beside(server):
        eventually(lambda each=each: time.time() - psutil.Process(each).create_time() > 2 * START_EVERY_S)
        os.kill(each, signal.SIGKILL)
        eventually(lambda each=each: not psutil.pid_exists(each))
    return server


def records(count: int, *, size: int = 100) -> bytes:
    found = [{"key": f"k{number}", "value": "x" * size} for number in range(count)]
    return json.dumps({"records": found}).encode()


def beside(server: StandingServer) -> list[int]:
    return children(one_child(server.process.pid), PROGRAM)


def used_s(process: int) -> float:
    """The CPU time of a process: it rises once it parses a body."""
    return psutil.Process(process).cpu_times().user


def test_a_large_body_is_parsed_in_a_process_of_its_own_and_a_small_one_is_not(
    alone: StandingServer, topic: str
):
    for count in (3, 2_000):
        body = records(count)
        assert (len(body) > LARGE_BODY_BYTES) is (count > 3)
        before = posted(alone)
        status, _, answer = alone.ask("POST", f"/topics/{topic}", body, **V2)
        assert status == 200
        offsets = json.loads(answer)["offsets"]
        assert [each["error"] for each in offsets] == [None] * count
        assert bool(beside(alone)) is (count > 3)
        eventually(lambda before=before: posted(alone) == before + 1)


def posted(server: StandingServer) -> float:
    """How many requests with records were answered, by any process, says the page of metrics."""
    name = 'http_requests_duration_ms_count{code="200",method="post_records"} '
    lines = server.ask("GET", "/metrics")[2].decode().splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_compressed_body_is_inflated_beside_too(alone: StandingServer, topic: str):
    body = gzip.compress(records(10))
    status, _, answer = alone.ask("POST", f"/topics/{topic}", body, **V2, **{"Content-Encoding": "gzip"})
    assert (status, len(json.loads(answer)["offsets"])) == (200, 10)
    assert beside(alone)


def test_a_large_value_is_written_as_it_is_without_another_process(alone: StandingServer, topic: str):
    value = b"x" * (LARGE_BODY_BYTES + 1)
    assert alone.ask("PUT", f"/topics/{topic}/keys/large", value)[0] == 201
    assert not beside(alone)


def test_a_large_body_that_is_wrong_is_refused_with_the_reason(server: StandingServer, topic: str):
    status, _, answer = server.ask("POST", f"/topics/{topic}", b"[" + b" " * LARGE_BODY_BYTES, **V2)
    assert (status, json.loads(answer)["type"]) == (400, "urn:keylane:problem:bad-request")


def test_many_keys_are_read_beside_and_as_by_a_small_request(alone: StandingServer, topic: str):
    path = f"/topics/{topic}/keys:read"
    small = json.loads(alone.ask("POST", path, json.dumps({"keys": ["k"]}).encode())[2])
    padded = json.dumps({"keys": ["k"]}).encode() + b" " * LARGE_BODY_BYTES
    status, _, answer = alone.ask("POST", path, padded)
    large = json.loads(answer)
    assert status == 200
    assert [row["value"] for row in large["records"]] == [row["value"] for row in small["records"]] == [1]
    assert beside(alone)


def test_a_write_whose_process_dies_may_have_happened_and_reads_go_on(
    alone: StandingServer, broker: Kafka, topic: str
):
    path, body = f"/topics/{topic}", records(10_000)
    assert alone.ask("POST", path, body, **V2)[0] == 200
    [process] = beside(alone)
    before_s = used_s(process)
    with ThreadPoolExecutor(1) as pool, stalled(broker):
        writing = pool.submit(alone.ask, "POST", path, body, **V2)
        eventually(lambda: used_s(process) > before_s)
        os.kill(process, signal.SIGKILL)
        status, _, answer = writing.result()
        assert alone.ask("GET", f"/topics/{topic}/keys/k")[0] == 200
    assert status == 504
    assert "a write may have happened" in json.loads(answer)["detail"]
    eventually(lambda: alone.ask("POST", path, body, **V2)[0] == 200)
    assert beside(alone) != [process]
