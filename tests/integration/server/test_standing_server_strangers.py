"""`keylane serve` while clients without credentials take connections, streams and bodies, and their time."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import eventually
from tests.servers.standing import StandingServer, standing
from tests.support.server_process import with_tokens

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "a-token-of-these-tests"
CALLER = {"Authorization": f"Bearer {TOKEN}"}
FEW = ("--max-running", "2", "--max-waiting", "1")
STRANGERS = 16
DECLARED_BYTES = 6 * 1024 * 1024
STREAMS = 150
DATA, HEADERS, SETTINGS = 0, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
POST_OVER_HTTP = b"\x83\x86"
"""`:method: POST` and `:scheme: http` in HPACK's static table."""


@pytest.fixture(scope="module")
def variables(redis_cluster: str) -> dict[str, str]:
    plain = {"KEYLANE_REDIS_NODES": redis_cluster, "KEYLANE_REDIS_TLS": "false"}
    return with_tokens(plain | {"KEYLANE_CORS_ORIGIN": "https://app.example"}, TOKEN, read=["*"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Iterator[StandingServer]:
    log = tmp_path_factory.mktemp("serve") / "log"
    with standing(log, variables, "--authorization", "tokens", *FEW) as running:
        yield running


def head(topic: str, length: int, authorization: str = "") -> bytes:
    """Return the head of a request with a body: it reads keys."""
    extra = f"Authorization: {authorization}\r\n" if authorization else ""
    return (
        f"POST /topics/{topic}/keys:read HTTP/1.1\r\nHost: x\r\n{extra}"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def opened(server: StandingServer, sent: bytes) -> socket.socket:
    connection = socket.create_connection((HOST, server.port), timeout=60)
    connection.sendall(sent)
    return connection


def first_line(connection: socket.socket) -> bytes:
    """Return the status line of the answer."""
    with connection.makefile("rb") as answer:
        return answer.readline().strip()


def check_callers(server: StandingServer, topic: str, times: int = 20) -> None:
    """A caller reads a key, and sends a body."""
    for _ in range(times):
        assert server.ask("GET", f"/topics/{topic}/keys/k", **CALLER)[0] == 200
        body = json.dumps({"keys": ["k"]}).encode()
        assert server.ask("POST", f"/topics/{topic}/keys:read", body, **CALLER)[0] == 200


def test_a_request_without_a_token_is_refused_before_its_body_arrives(server: StandingServer, topic: str):
    with opened(server, head(topic, 5)) as connection:
        assert first_line(connection).startswith(b"HTTP/1.1 401 ")


def test_a_preflight_is_answered_before_a_body_arrives(server: StandingServer, topic: str):
    sent = head(topic, DECLARED_BYTES).replace(b"POST", b"OPTIONS") + b"{" * 1_000
    with opened(server, sent) as connection:
        connection.settimeout(10)
        assert first_line(connection).startswith(b"HTTP/1.1 204 ")


def test_strangers_whose_bodies_drip_cost_callers_no_answer(server: StandingServer, topic: str):
    with contextlib.ExitStack() as connections:
        for _ in range(STRANGERS):
            connections.enter_context(opened(server, head(topic, 100) + b"{"))
        check_callers(server, topic)


def test_callers_whose_bodies_drip_take_no_place(server: StandingServer, topic: str):
    with contextlib.ExitStack() as connections:
        for _ in range(STRANGERS):
            connections.enter_context(opened(server, head(topic, 100, CALLER["Authorization"]) + b"{"))
        check_callers(server, topic)


def test_bytes_that_are_declared_and_do_not_come_are_not_counted(server: StandingServer, topic: str):
    with contextlib.ExitStack() as connections:
        for _ in range(50):
            sent = head(topic, DECLARED_BYTES, CALLER["Authorization"]) + b"{"
            connections.enter_context(opened(server, sent))
        check_callers(server, topic)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header in HPACK, without its table."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def test_streams_of_http2_without_credentials_cost_callers_no_answer(server: StandingServer, topic: str):
    fields = POST_OVER_HTTP + literal(b":path", f"/topics/{topic}".encode()) + literal(b":authority", b"x")
    begun = b"".join(frame(HEADERS, 4, 2 * number + 1, fields) for number in range(STREAMS))
    dripped = b"".join(frame(DATA, 0, 2 * number + 1, b" ") for number in range(STREAMS))
    with opened(server, PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0)) as connection:
        connection.sendall(begun + dripped)
        check_callers(server, topic)


def test_one_address_has_so_many_requests_at_a_time(tmp_path, variables: dict[str, str], topic: str):
    with standing(tmp_path / "log", variables, "--max-of-address", "3") as server:
        waiting = [opened(server, head(topic, 100) + b"{") for _ in range(3)]
        eventually(lambda: server.ask("GET", f"/topics/{topic}/keys/k")[0] == 429)
        status, headers, body = server.ask("GET", f"/topics/{topic}/keys/k")
        assert (status, headers["retry-after"]) == (429, "1")
        assert json.loads(body)["type"] == "urn:keylane:problem:throttled"
        assert server.ask("GET", "/health/ready")[0] == 200
        for connection in waiting:
            connection.close()
        eventually(lambda: server.ask("GET", f"/topics/{topic}/keys/k")[0] == 200)
