"""Large bodies are parsed beside the process of `keylane serve` that answers all others."""

from __future__ import annotations

import gzip
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.integration.server.test_standing_server_and_kafka import children, one_child, stalled
from tests.servers.own import create_topic, eventually
from tests.servers.standing import StandingServer, plain_variables, standing

from keylane_server import child_process
from keylane_server.app import LARGE_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane_local.servers.kafka import Kafka

V2 = {"Content-Type": "application/vnd.kafka.json.v2+json"}


@pytest.fixture(scope="module")
def topic(topic: str, kafka: str) -> str:
    create_topic(kafka, topic, 9)
    return topic


@pytest.fixture
def server(tmp_path, redis_cluster: str, kafka: str) -> Iterator[StandingServer]:
    with standing(tmp_path / "log", plain_variables(redis_cluster, kafka)) as running:
        yield running


def records(count: int, *, size: int = 100) -> bytes:
    found = [{"key": f"k{number}", "value": "x" * size} for number in range(count)]
    return json.dumps({"records": found}).encode()


def beside(server: StandingServer) -> list[int]:
    return children(one_child(server.process.pid), child_process.PROGRAM)


def used_s(process: int) -> float:
    """The CPU time of a process: it rises once it parses a body."""
    return psutil.Process(process).cpu_times().user


def test_a_large_body_is_parsed_in_a_process_of_its_own_and_a_small_one_is_not(
    server: StandingServer, topic: str
):
    for count in (3, 2_000):
        body = records(count)
        assert (len(body) > LARGE_BODY_BYTES) is (count > 3)
        status, _, answer = server.ask("POST", f"/topics/{topic}", body, **V2)
        assert status == 200
        offsets = json.loads(answer)["offsets"]
        assert [each["error"] for each in offsets] == [None] * count
        assert bool(beside(server)) is (count > 3)
    assert server.stop() == 0


def test_a_compressed_body_is_inflated_beside_too(server: StandingServer, topic: str):
    body = gzip.compress(records(10))
    status, _, answer = server.ask("POST", f"/topics/{topic}", body, **V2, **{"Content-Encoding": "gzip"})
    assert (status, len(json.loads(answer)["offsets"])) == (200, 10)
    assert beside(server)


def test_a_large_value_is_written_as_it_is_without_another_process(server: StandingServer, topic: str):
    value = b"x" * (LARGE_BODY_BYTES + 1)
    assert server.ask("PUT", f"/topics/{topic}/keys/k", value)[0] == 201
    assert not beside(server)


def test_a_large_body_that_is_wrong_is_refused_with_the_reason(server: StandingServer, topic: str):
    status, _, answer = server.ask("POST", f"/topics/{topic}", b"[" + b" " * LARGE_BODY_BYTES, **V2)
    assert (status, json.loads(answer)["type"]) == (400, "urn:keylane:problem:bad-request")


def test_many_keys_are_read_beside_and_as_by_a_small_request(server: StandingServer, topic: str):
    path = f"/topics/{topic}/keys:read"
    small = json.loads(server.ask("POST", path, json.dumps({"keys": ["k"]}).encode())[2])
    padded = json.dumps({"keys": ["k"]}).encode() + b" " * LARGE_BODY_BYTES
    status, _, answer = server.ask("POST", path, padded)
    large = json.loads(answer)
    assert status == 200
    assert [row["value"] for row in large["records"]] == [row["value"] for row in small["records"]] == [1]
    assert beside(server)


def test_a_write_whose_process_dies_may_have_happened_and_reads_go_on(
    server: StandingServer, broker: Kafka, topic: str
):
    path, body = f"/topics/{topic}", records(10_000)
    assert server.ask("POST", path, body, **V2)[0] == 200
    [process] = beside(server)
    before_s = used_s(process)
    with ThreadPoolExecutor(1) as pool, stalled(broker):
        writing = pool.submit(server.ask, "POST", path, body, **V2)
        eventually(lambda: used_s(process) > before_s)
        os.kill(process, signal.SIGKILL)
        status, _, answer = writing.result()
        assert server.ask("GET", f"/topics/{topic}/keys/k")[0] == 200
    assert status == 504
    assert "a write may have happened" in json.loads(answer)["detail"]
    eventually(lambda: server.ask("POST", path, body, **V2)[0] == 200)
    assert beside(server) != [process]


def test_what_is_answered_beside_is_in_the_metrics(server: StandingServer, topic: str):
    assert server.ask("POST", f"/topics/{topic}", records(2_000), **V2)[0] == 200
    page = server.ask("GET", "/metrics")[2].decode()
    assert 'http_requests_duration_ms_count{code="200",method="post_records"} 1.0' in page
