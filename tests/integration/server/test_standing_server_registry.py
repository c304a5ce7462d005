"""`keylane serve` while a Schema Registry accepts connections and says nothing."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

import psutil
import pytest
import redis
from tests.servers.own import eventually, fill
from tests.servers.standing import StandingServer, standing
from tests.support.builders import a_lane, a_layout

from keylane.model.records import Options
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNNING = 8
READERS = 40
OF_SCHEMA_7 = b"\0\0\0\0\7\2"


@pytest.fixture(scope="module")
def server(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandingServer]:
    with socket.create_server((HOST, 0), backlog=1_000) as silent:
        registry = {"KEYLANE_SCHEMA_REGISTRY_URL": f"http://{HOST}:{silent.getsockname()[1]}"}
        log = tmp_path_factory.mktemp("serve") / "log"
        with standing(log, variables | registry, "--max-running", str(RUNNING)) as running:
            yield running


@pytest.fixture
def waiting(server: StandingServer, redis_cluster: str) -> Iterator[list[tuple[int, str]]]:
    """Requests for a value of the registry go on and on; this has their answers."""
    layout = a_layout(options=Options(value_format="registry"))
    fill(redis_cluster, a_lane(layout, b"k", OF_SCHEMA_7))
    answers: list[tuple[int, str]] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            status, _, body = server.ask("GET", f"/topics/{layout.topic}/keys/k")
            answers.append((status, json.loads(body)["type"]))

    threads = [threading.Thread(target=read) for _ in range(READERS)]
    for each in threads:
        each.start()
    try:
        eventually(lambda: len(answers) >= READERS)
        yield answers
    finally:
        over.set()
        for each in threads:
            each.join()


def test_reads_of_other_topics_go_on(server: StandingServer, waiting: list[tuple[int, str]], topic: str):
    assert {server.ask("GET", f"/topics/{topic}/keys/k")[0] for _ in range(100)} == {200}
    body = json.dumps({"keys": ["k"]}).encode()
    assert {server.ask("POST", f"/topics/{topic}/keys:read", body)[0] for _ in range(20)} == {200}
    assert set(waiting) == {(503, "urn:keylane:problem:registry-unavailable")}


def test_connections_to_redis_are_made_again_meanwhile(
    server: StandingServer, waiting: list[tuple[int, str]], topic: str, redis_cluster: str
):
    ports = {int(address.rpartition(":")[2]) for address in redis_cluster.split(",")}
    before = len(waiting)
    for _ in range(20):
        assert close_connections(server, ports)
        assert server.ask("GET", f"/topics/{topic}/keys/k")[0] == 200
    eventually(lambda: len(waiting) > before)


def close_connections(server: StandingServer, ports: set[int]) -> int:
    """Have the nodes of these ports close the server's connections; return how many there were."""
    (worker,) = psutil.Process(server.process.pid).children()
    closed = 0
    for connection in worker.net_connections("tcp"):
        if connection.raddr and connection.raddr.port in ports:
            with redis.Redis(HOST, connection.raddr.port) as node:
                address = f"{connection.laddr.ip}:{connection.laddr.port}"
                closed += node.client_kill_filter(addr=address)
    return closed
