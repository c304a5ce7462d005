"""`keylane serve` while its Kafka stalls and comes back, and while one of its processes dies."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.servers.own import create_topic, eventually, suspended
from tests.servers.standing import StandingServer, plain_variables, standing
from tests.support.steady import SteadyReads

from keylane_server import child_process
from keylane_server.server import START_EVERY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.client import HTTPConnection

    from keylane_local.servers.kafka import Kafka

ASKING = ("/v3/clusters", "/clusters", "/brokers")
ASKERS = 18


@pytest.fixture
def server(tmp_path, redis_cluster: str, broker: Kafka) -> Iterator[StandingServer]:
    with standing(tmp_path / "log", plain_variables(redis_cluster, broker.bootstrap)) as running:
        yield running


@contextlib.contextmanager
def stalled(kafka: Kafka) -> Iterator[None]:
    """Stop the broker's process, and let it go on at the end."""
    process = kafka.program.process
    assert process is not None
    with suspended(process.pid):
        yield


def children(pid: int, program: str = "") -> list[int]:
    """Return the processes that a process has started, and whose command has the text."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(each) for each in found if program in Path(f"/proc/{each}/cmdline").read_text("utf-8")]


def one_child(pid: int, program: str = "") -> int:
    eventually(lambda: len(children(pid, program)) == 1)
    [found] = children(pid, program)
    return found


def test_a_process_that_asks_kafka_and_dies_costs_no_answer(server: StandingServer, topic: str):
    def asked() -> bool:
        counted = b'http_requests_duration_ms_count{code="200",method="get_clusters"} 2.0'
        return counted in server.ask("GET", "/metrics")[2]

    for _ in range(2):
        assert server.ask("GET", "/clusters")[0] == 200
    eventually(asked)
    worker = one_child(server.process.pid)
    for _ in range(2):
        asking = one_child(worker, child_process.PROGRAM)
        with ThreadPoolExecutor() as pool:
            answers = [pool.submit(server.ask, "GET", path) for path in ASKING * 4]
            os.kill(asking, signal.SIGABRT)
            assert server.ask("GET", f"/topics/{topic}/keys/k")[0] == 200
        found = [each.result() for each in answers]
        assert {each[0] for each in found} <= {200, 503}, (
            f"503: it has just been started again: {found} {server.log}"
        )
        eventually(lambda: server.ask("GET", "/clusters")[0] == 200)
        assert one_child(worker, child_process.PROGRAM) != asking
    assert one_child(server.process.pid) == worker
    assert server.stop() == 0
    assert "Traceback" not in server.log


@pytest.mark.long
def test_the_only_process_is_started_again_each_time_it_dies_and_not_too_often(
    server: StandingServer, topic: str
):
    assert server.ask("GET", "/clusters")[0] == 200
    asking = one_child(one_child(server.process.pid), child_process.PROGRAM)
    begun_s = time.monotonic()
    for _ in range(3):
        killed = psutil.Process(one_child(server.process.pid))
        killed.kill()
        killed.wait(60)
        server.wait_ready()
        assert server.ask("GET", f"/topics/{topic}/keys/k")[0] == 200
    assert time.monotonic() - begun_s > 2 * START_EVERY_S
    eventually(lambda: not Path(f"/proc/{asking}").exists())
    assert server.stop() == 0


def test_writes_that_wait_for_kafka_take_no_places_of_reads(
    tmp_path, redis_cluster: str, broker: Kafka, topic: str
):
    variables = plain_variables(redis_cluster, broker.bootstrap) | {"KEYLANE_PRODUCE_TIMEOUT_MS": "5000"}
    few = ("--max-running", "8", "--max-writing", "4", "--max-waiting", "8")
    create_topic(broker.bootstrap, topic, 9)
    with standing(tmp_path / "log", variables, *few) as server:
        path = f"/topics/{topic}/keys/k"
        assert server.ask("PUT", path, b"1")[0] == 201
        connections = [server.connect() for _ in range(4)]

        def reader(connection: HTTPConnection) -> Callable[[int], None]:
            def read(_: int) -> None:
                connection.request("GET", path)
                answer = connection.getresponse()
                assert (answer.status, answer.read()) == (200, b"1")

            return read

        with ThreadPoolExecutor(40) as pool, SteadyReads([reader(each) for each in connections]) as reads:
            with stalled(broker):
                writes = [pool.submit(server.ask, "PUT", path, b"2") for _ in range(40)]
                eventually(lambda: all(each.done() for each in writes))
            reads.wait_for_more()
        assert reads.failures == []
        assert {each.result()[0] for each in writes} <= {503, 504}
        for each in connections:
            each.close()


@pytest.mark.long
def test_a_kafka_that_resumes_while_its_brokers_are_asked_costs_no_read(
    broker: Kafka, server: StandingServer, topic: str
):
    """librdkafka's admin client aborted its process, in about one of two such rounds."""
    over = threading.Event()
    statuses: list[int] = []

    def ask(turn: int) -> None:
        while not over.is_set():
            path = ASKING[(turn + len(statuses)) % len(ASKING)]
            statuses.append(server.ask("GET", path)[0])

    def read() -> int:
        return server.ask("GET", f"/topics/{topic}/keys/k")[0]

    assert server.ask("GET", "/clusters")[0] == 200
    worker = one_child(server.process.pid)
    with ThreadPoolExecutor(ASKERS) as pool:
        with stalled(broker):
            # Until the connections are given up that there were before.
            assert [server.ask("GET", "/clusters")[0] for _ in range(4)] == [503] * 4
            asking = [pool.submit(ask, turn) for turn in range(ASKERS)]
            eventually(lambda: 503 in statuses)
            assert read() == 200
        eventually(lambda: statuses.count(200) >= 20 * ASKERS)
        assert [read() for _ in range(20)] == [200] * 20
        over.set()
    for each in asking:
        each.result()
    assert set(statuses) <= {200, 503}
    assert one_child(server.process.pid) == worker, "no process that serves has ended"
