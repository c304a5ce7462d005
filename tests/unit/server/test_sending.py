"""Answers that their clients do not read: what waits, whom it concerns, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.becoming import becomes

from keylane.api.http.response import Response
from keylane_server import sending
from keylane_server.admission import AdmissionControl, Limits, Overloaded
from keylane_server.app import ServerApp
from keylane_server.sending import Outbox, is_direct, shut_down

LIMIT = 800_000
BODY = b"x" * 90_000


class Wire:
    """granian and a client: `room`, how many messages are taken before one waits; None: all."""

    def __init__(self, room: int | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone, self.full = asyncio.Event(), asyncio.Event()
        self._room = room

    async def send(self, message: dict[str, Any]) -> None:
        if self._room is not None and len(self.sent) >= self._room:
            self.full.set()
            await asyncio.Event().wait()
        self.sent.append(message)

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.sent)


def scope(version: str = "1.1", client: tuple[str, int] = ("10.0.0.1", 5)) -> dict[str, Any]:
    return {"http_version": version, "client": client}


def start() -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": []}


def outbox(monkeypatch: pytest.MonkeyPatch, piece_s: float = 20.0) -> Outbox:
    monkeypatch.setattr("keylane_server.admission.LOOK_S", 0.01)
    monkeypatch.setattr(sending, "PIECE_S", piece_s)
    return Outbox(AdmissionControl(Limits(sending_bytes=LIMIT)))


@pytest.mark.parametrize("body", [BODY, BODY.decode()], ids=["bytes", "ASCII"])
@pytest.mark.parametrize("version", ["1.1", "2"])
async def test_an_answer_that_is_read_is_whole_and_nothing_of_it_is_counted_afterwards(
    version: str, body: bytes | str, monkeypatch: pytest.MonkeyPatch
):
    found, wire, begun = outbox(monkeypatch), Wire(), start()
    await found.send(wire.send, wire.receive, scope(version), begun, body)
    assert (wire.body, found.waiting_bytes) == (BODY, 0)
    assert begun["headers"] == [(b"content-length", b"90000")]
    assert [message.get("more_body", False) for message in wire.sent[1:]][-2:] == [True, False]
    # Beyond what granian takes for a client that reads nothing.
    assert [len(message["body"]) for message in wire.sent[-6:]] == [0] * 6


def test_what_waits_is_bounded_for_a_connection_an_address_and_all(monkeypatch: pytest.MonkeyPatch):
    found = outbox(monkeypatch)
    one, other = ("10.0.0.1", 5), ("10.0.0.1", 6)
    found.hold(one, 700_000)  # a single one fits, however large
    for client, expected in (
        (one, "this connection"),
        (other, "this address"),
        (("10.0.0.2", 1), "answers wait"),
    ):
        with pytest.raises(Overloaded, match=expected):
            found.hold(client, 99_000 if client != ("10.0.0.2", 1) else 110_000)
    found.hold(("10.0.0.2", 1), 90_000)
    found.release(one, 700_000)
    found.hold(one, 90_000)
    assert found.waiting_bytes == 180_000
    for client in (one, ("10.0.0.2", 1)):
        found.release(client, 90_000)
    assert (found.waiting_bytes, found._of_connection, found._of_address) == (0, {}, {})


async def test_an_answer_over_a_bound_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch):
    found, wire = outbox(monkeypatch), Wire()
    found.hold(("10.0.0.2", 1), LIMIT - 10)
    with pytest.raises(Overloaded):
        await found.send(wire.send, wire.receive, scope(), start(), BODY)
    assert (wire.sent, found.waiting_bytes) == ([], LIMIT - 10)


async def test_a_client_of_http_1_that_reads_nothing_gets_no_more(monkeypatch: pytest.MonkeyPatch):
    found, wire = outbox(monkeypatch, 0.02), Wire(room=2)
    await asyncio.wait_for(found.send(wire.send, wire.receive, scope(), start(), BODY), 5)
    assert (len(wire.sent), found.waiting_bytes) == (2, 0)
    assert wire.sent[-1]["more_body"]


async def test_what_a_client_of_http_2_does_not_read_counts_until_it_goes(monkeypatch: pytest.MonkeyPatch):
    closed: list[object] = []
    monkeypatch.setattr(sending, "shut_down", closed.append)

    found, wire = outbox(monkeypatch, 0.02), Wire(room=4)
    task = asyncio.ensure_future(found.send(wire.send, wire.receive, scope("2"), start(), BODY))
    await becomes(lambda: found._stalled)
    assert found.waiting_bytes == len(BODY)
    with pytest.raises(Overloaded):
        found.hold(("10.0.0.2", 1), LIMIT)
    found.hold(("10.0.0.1", 7), 300_000)
    with pytest.raises(Overloaded):
        found.hold(("10.0.0.1", 8), 50_000)
    assert closed == [("10.0.0.1", 5)] * 2
    found.release(("10.0.0.1", 7), 300_000)
    wire.gone.set()
    await asyncio.wait_for(task, 5)
    assert (found.waiting_bytes, found._stalled) == (0, {})


async def test_a_server_that_stops_ends_what_is_sent(monkeypatch: pytest.MonkeyPatch):
    found, wire = outbox(monkeypatch), Wire(room=2)
    task = asyncio.ensure_future(found.send(wire.send, wire.receive, scope(), start(), BODY))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert found.waiting_bytes == 0


@pytest.mark.parametrize(
    ("size", "version", "expected"),
    [(8_192, "2", True), (8_193, "2", False), (8_193, "1.1", True), (32_769, "1.1", False), (0, "2", True)],
)
def test_small_answers_are_given_whole(size: int, version: str, expected: bool):
    assert is_direct(b"x" * size, scope(version)) is expected


def descriptors_of(sockets: list[socket.socket]) -> list[str]:
    """The descriptors of this process that are these sockets; threads of others may open and close theirs."""
    folder = Path("/proc/self/fd")
    wanted = {(folder / str(each.fileno())).readlink() for each in sockets}
    found = []
    for descriptor in folder.iterdir():
        with contextlib.suppress(OSError):
            if descriptor.readlink() in wanted:
                found.append(descriptor.name)
    return sorted(found)


def test_a_connection_is_closed_by_its_clients_address():
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = listening.getsockname()
        clients = [opened.enter_context(socket.create_connection(address, timeout=5)) for _ in range(2)]
        accepted = [opened.enter_context(listening.accept()[0]) for _ in clients]
        before = descriptors_of([*clients, *accepted])
        assert len(before) == 4
        shut_down(clients[0].getsockname())
        assert descriptors_of([*clients, *accepted]) == before, "a look leaves no descriptor open"
        assert clients[0].recv(1) == b""
        accepted[1].sendall(b"x")
        assert clients[1].recv(1) == b"x"


async def test_the_text_of_an_answer_does_not_wait_with_its_bytes(monkeypatch: pytest.MonkeyPatch):
    app, wire = ServerApp.__new__(ServerApp), Wire(room=2)
    app._outbox = outbox(monkeypatch)
    response = Response(200, None, BODY.decode())
    answering = asyncio.ensure_future(
        app._send_response(scope(), wire.receive, wire.send, response, "1")  # type: ignore[arg-type]
    )
    await asyncio.wait_for(wire.full.wait(), 10)
    assert app._outbox.waiting_bytes == len(BODY)
    assert response.body is None
    answering.cancel()
    await asyncio.wait([answering])
