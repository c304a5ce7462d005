"""`keylane serve` over a real Redis Cluster: bounds, access, its stop, and clients that go."""

from __future__ import annotations

import contextlib
import json
import select
import ssl
import threading
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import eventually, fill
from tests.servers.standing import StandingServer, standing
from tests.support.builders import a_lane, a_layout
from tests.support.certificates import certify

from keylane_local.process.ports import HOST, is_free

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def topic(redis_cluster: str) -> str:
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, b"k", b'{"n": 1}'))
    return layout.topic


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Iterator[StandingServer]:
    log = tmp_path_factory.mktemp("serve") / "log"
    options = ("--max-long-polls", "1", "--workers", "2")
    with standing(log, variables, *options, workers=2) as running:
        yield running


def problem_of(body: bytes) -> str:
    return json.loads(body)["type"].removeprefix("urn:keylane:problem:")


def test_the_metrics_are_those_of_all_processes(server: StandingServer, topic: str):
    def reads() -> float:
        text = server.ask("GET", "/metrics")[2].decode()
        counts = (line for line in text.splitlines() if line.startswith("http_requests_duration_ms_count"))
        return sum(float(line.rpartition(" ")[2]) for line in counts if 'method="get_keys"' in line)

    before = reads()
    for _ in range(20):
        server.ask("GET", f"/topics/{topic}/keys")
    eventually(lambda: reads() == before + 20)


def test_health_pages_need_nothing(server: StandingServer):
    assert server.ask("GET", "/health/live")[0] == 200
    assert server.ask("GET", "/health/ready")[0] == 200


def test_long_polls_over_the_bound_are_refused_until_a_client_goes(
    tmp_path, variables: dict[str, str], topic: str
):
    path = f"/topics/{topic}/keys/k"
    with standing(tmp_path / "log", variables, "--max-long-polls", "1") as server:
        clients = [server.connect(), server.connect()]
        for client in clients:
            client.request("GET", path, headers={"Prefer": "wait=60", "If-None-Match": "*"})
        by_socket = {client.sock: client for client in clients}
        [answered], _, _ = select.select(list(by_socket), [], [], 20)
        with contextlib.closing(by_socket.pop(answered)) as refused:
            answer = refused.getresponse()
            found = answer.status, problem_of(answer.read()), answer.headers["Retry-After"]
        assert found == (503, "overloaded", "1")
        assert server.ask("GET", path)[0] == 200, "a read that does not wait has its own bound"
        [waiting] = by_socket.values()
        waiting.close()
        eventually(lambda: server.ask("GET", path, Prefer="wait=0", If_None_Match="*")[0] == 304)


def test_what_runs_at_sigterm_is_answered_and_in_the_metrics_and_nothing_more_is_accepted(
    tmp_path, variables: dict[str, str], topic: str
):
    named = variables | {"KEYLANE_METRICS_NAMESPACE": "Keylane/server"}
    with standing(tmp_path / "log", named, "--emf") as server:
        path, answers = f"/topics/{topic}/keys/k", []
        reader = threading.Thread(
            target=lambda: answers.append(server.ask("GET", path, Prefer="wait=3", If_None_Match="*")[0])
        )
        reader.start()
        # Each of these is answered after the first request has begun: there is one process.
        for _ in range(20):
            assert server.ask("GET", path)[0] == 200
        assert server.stop() == 0
        reader.join(60)
        assert answers == [304]
        with pytest.raises(ConnectionRefusedError):
            server.ask("GET", path)
        assert "Traceback" not in server.log
        lines = [json.loads(line) for line in server.log.splitlines() if line.startswith('{"_aws"')]
    reads = [line for line in lines if line.get("method") == "get_key"]
    assert {read["_aws"]["CloudWatchMetrics"][0]["Namespace"] for read in reads} == {"Keylane/server"}
    counts = [(read["code"], read["RequestDuration"]["Count"]) for read in reads]
    assert sum(count for code, count in counts if code == "200") == 20
    assert ("304", 1) in counts


def test_a_server_whose_first_process_was_killed_gives_its_port_back(tmp_path, variables: dict[str, str]):
    with standing(tmp_path / "log", variables) as server:
        server.process.kill()
        server.process.wait(60)
        eventually(lambda: is_free(server.port))
        assert "its first process has ended" in server.log
        assert "Traceback" not in server.log


def test_what_takes_longer_than_the_drain_is_answered_before_the_end(
    tmp_path, variables: dict[str, str], topic: str
):
    away = {"KEYLANE_KAFKA_BOOTSTRAP": f"{HOST}:1", "KEYLANE_PRODUCE_TIMEOUT_MS": "25000"}
    path = f"/topics/{topic}/keys/k"
    with (
        standing(tmp_path / "log", {**variables, **away}, "--drain-s", "10") as server,
        contextlib.ExitStack() as connections,
    ):
        sent = (
            ("GET", path, None, {"Prefer": "wait=60", "If-None-Match": "*"}),
            ("PUT", path, b"1", {}),
            ("POST", f"/topics/{topic}/keys:read", b"{", {"Content-Length": "100"}),
        )
        asked = []
        for method, target, body, headers in sent:
            connection = connections.enter_context(contextlib.closing(server.connect()))
            connection.request(method, target, body, headers)
            asked.append(connection)
        for _ in range(20):
            assert server.ask("GET", path)[0] == 200
        assert server.stop() == 0
        answers = [connection.getresponse() for connection in asked]
        assert [(each.status, problem_of(each.read())) for each in answers] == [(504, "timeout")] * 3
        assert "3 requests are answered with 504" in server.log
        assert "Killing" not in server.log


def test_tls_and_http2_are_spoken(tmp_path, variables: dict[str, str], topic: str):
    certificate, key = certify(tmp_path)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    trusting = ssl.create_default_context(cafile=str(certificate))
    with standing(tmp_path / "log", variables, *options) as server:
        with contextlib.closing(server.connect(trusting)) as connection:
            connection.request("GET", f"/topics/{topic}/keys/k")
            assert connection.getresponse().read() == b'{"n": 1}'
        trusting.set_alpn_protocols(["h2"])
        with contextlib.closing(server.connect(trusting)) as connection:
            connection.connect()
            assert connection.sock.selected_alpn_protocol() == "h2"


def test_a_port_that_is_taken_and_settings_that_are_missing_end_the_start(
    tmp_path, server: StandingServer, variables: dict[str, str]
):
    second = StandingServer(tmp_path / "second", variables, "--port", str(server.port))
    assert second.process.wait(60) == 1
    assert f"can't listen on http://{HOST}:{server.port}" in second.log
    unset = StandingServer(tmp_path / "unset", {})
    assert unset.process.wait(60) == 1
    assert "KEYLANE_REDIS_NODES is not set" in unset.log
