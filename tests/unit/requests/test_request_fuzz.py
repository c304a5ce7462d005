"""`make fuzz-requests`: what it sends, and that it sees what it looks for."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.requests.fuzz import RequestFuzz
from tests.requests.judge import FuzzTarget, fault_of
from tests.requests.mutations import Harvest, Mutator
from tests.requests.valid import DOCUMENT, SECRET, ValidRequests, parameters, written_requests
from tests.requests.wire import (
    CLOSED,
    HTTP_1,
    HTTP_2,
    LATE,
    RAW,
    FuzzAnswer,
    FuzzRequest,
    exchange,
    status_of,
)

from keylane.api.http import cursors
from keylane.errors import BadRequest
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENS = ("Bearer all-topics", "Bearer some")
READ = FuzzRequest("GET", "/topics/flights/keys/a", headers=(("Host", "x"),))


class NoRegistry:
    def register(self, *_: str) -> int:
        return 7


def a_mutator(seed: int, harvest: Harvest | None = None) -> Mutator:
    chance = random.Random(seed)
    valid = ValidRequests(chance, "cluster", written_requests("cluster", NoRegistry()))  # type: ignore[arg-type]
    return Mutator(chance, valid.next, parameters(), TOKENS, harvest or Harvest())


def test_a_seed_makes_the_same_requests_again():
    first, again = a_mutator(5), a_mutator(5)
    assert [first.next() for _ in range(300)] == [again.next() for _ in range(300)]
    assert a_mutator(6).next() != a_mutator(5).next()


def test_a_request_is_the_same_after_it_was_printed():
    mutator = a_mutator(5)
    for _ in range(300):
        request = mutator.next()
        assert FuzzRequest.of_json(request.to_json()) == request


def test_every_route_is_asked_as_it_is_and_changed():
    mutator = a_mutator(1)
    requests = [mutator.next() for _ in range(4_000)]
    asked = Counter(path for request in requests if (path := route_of(request)))
    assert asked.keys() == {path for path, operations in DOCUMENT["paths"].items() if operations}
    assert {request.over for request in requests} == {HTTP_1, HTTP_2, RAW}
    assert sum(not route_of(request) for request in requests) > 100


def route_of(request: FuzzRequest) -> str:
    """The route as the document has it; empty for none."""
    segments = request.path.split("/")
    for path in DOCUMENT["paths"]:
        known = path.split("/")
        if len(known) == len(segments) and all(
            each.startswith("{") or each == found for each, found in zip(known, segments, strict=True)
        ):
            return str(path)
    return ""


def test_forged_cursors_have_the_checksum_that_belongs_to_them():
    bounds = cursors.digest("keys")
    cursor = cursors.encode("flights", bounds, b"where the page ended")
    mutator = a_mutator(1)
    found = set()
    for _ in range(200):
        with contextlib.suppress(BadRequest):
            found.add(cursors.decode(mutator._forged(cursor), "flights", bounds))
    assert len(found) > 50


def test_what_answers_have_is_used_again():
    harvest, chance = Harvest(), random.Random(1)
    cursor = cursors.encode("flights", cursors.digest("keys"), b"a")
    harvest.note(READ, {"etag": '"1:2"'}, b'{"position": "1:2", "next": "%b"}' % cursor.encode(), chance)
    harvest.note(READ, {}, b"retry: 1\nid: 0:1@5\n", chance)
    assert harvest.texts == {"tag": ['"1:2"'], "position": ["1:2"], "cursor": [cursor], "event": ["0:1@5"]}
    assert dict(harvest.pages[0].query) == {"cursor": cursor}


@pytest.mark.parametrize(
    ("block", "status"),
    [
        ("88", 200),
        ("8d", 404),
        ("2088", 200),
        ("3fe11f88", 200),
        ("48826402", 302),
        ("4883640eff", 307),
        ("4803343133", 413),
    ],
)
def test_statuses_are_read_from_hpack(block, status):
    assert status_of(bytes.fromhex(block)) == status


@contextlib.contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """A server that gives each connection this answer, and closes it; None: it says nothing."""
    with socket.create_server((HOST, 0)) as listening:
        kept: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    kept.append(connection)
                    if answer is not None:
                        connection.recv(65_536)
                        connection.sendall(answer)
                        connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in kept:
                each.close()


def an_answer(status: int, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


PROBLEM = b'{"type": "urn:keylane:problem:%b"}'


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (an_answer(200), None),
        (an_answer(404), None),
        (an_answer(501), None),
        (an_answer(503, PROBLEM % b"overloaded"), None),
        (an_answer(503, PROBLEM % b"state-unavailable"), "status 503"),
        (an_answer(500), "status 500"),
        (an_answer(502), "status 502"),
        (an_answer(200, PROBLEM % b"internal"), "200 with urn:keylane:problem:internal"),
        (an_answer(400, b"Traceback (most recent call last)"), "400 with Traceback (most recent"),
        (an_answer(200, b'{"error_code": 500}'), '200 with "error_code": 500'),
        (an_answer(200, SECRET.encode()), "the answer has what the caller may not read"),
        (b"", CLOSED),
    ],
    ids=str,
)
def test_the_judge_sees(answer, fault):
    with answering(answer) as port:
        found = exchange(HOST, port, READ)
    assert fault_of(found, READ, may_have_secret=False) == fault


def test_the_judge_sees_silence(monkeypatch):
    monkeypatch.setattr("tests.requests.wire.NO_ANSWER_S", 0.1)
    with answering(None) as port:
        found = exchange(HOST, port, READ)
    assert fault_of(found, READ, may_have_secret=True) == LATE


def test_the_judge_sees_what_takes_long():
    assert fault_of(FuzzAnswer(200, {}, b"", 5.1), READ, may_have_secret=True) == LATE


def test_a_run_sees_a_trace_in_a_log_and_names_the_request(tmp_path):
    log = tmp_path / "log"
    log.write_text("before", encoding="utf-8")
    said: list[str] = []
    with answering(an_answer(404)) as port:
        target = FuzzTarget("open", port, [log], None)
        list(target.new_log())
        run = RequestFuzz(random.Random(1), [target], a_mutator(1), Harvest(), said.append)
        run.send(target, READ)
        assert not run.faults
        log.write_text("before, then Traceback (most recent call last)", encoding="utf-8")
        run.send(target, READ)
    assert run.faults[0].requests[-1] == READ
    assert READ.to_json() in said[0]
