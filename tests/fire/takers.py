"""Scenarios of clients that take without reading, waiting or naming anything: memory and places of others."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

from tests.fire.figures import fact_below, none_failed, p99_below
from tests.fire.load import NICE
from tests.fire.stage import ACCESS, CALLER, LARGE_TOPIC, TOPIC
from tests.fire.trial import AFTER, DURING, READ_MS, open_trial
from tests.integration.server.test_standing_server_strangers import HEADERS, PREFACE, SETTINGS, frame, literal
from tests.servers.own import eventually
from tests.servers.schema_registry import Registry

from keylane_local.process.ports import HOST, Ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.fire.figures import Found
    from tests.fire.stage import FireStage
    from tests.fire.trial import Trial

    Attack = Callable[[Trial, threading.Event], None]

MIB, MOST_MIB = "MiB of the server at most", 400
SECONDS = 15.0
CONNECTIONS, STREAMS = 60, 200
LONG, LONG_REQUESTS = 100_000, 1_200
LISTENERS, WAITING, WAIT_S = 300, 600, 5.0
LARGE, LARGE_KEYS, READERS = 900_000, 12, 16
PATTERNS, SCHEMAS = 300, 8
_GET, _HTTP = b"\x82", b"\x86"
_NO_WINDOW = struct.pack(">HI", 4, 0)
_TOKEN = f"Authorization: {CALLER['Authorization']}\r\n"
_KEY = f"/topics/{TOPIC}/keys/none"
_SCHEMA_TYPE = "application/vnd.kafka.jsonschema.v2+json"

EXPECTED = (
    *(none_failed(kind, phase) for kind in ("read", "write") for phase in (DURING, AFTER)),
    *(p99_below(READ_MS, "read", phase) for phase in (DURING, AFTER)),
    fact_below(MOST_MIB, MIB),
)
"""Of each of them."""


def unread_answers(stage: FireStage) -> Found:
    """60 HTTP/2 connections of strangers with a window of 0, each with 200 GETs of the API's document."""
    return _taken(stage, _leave_unread)


def long_texts(stage: FireStage) -> Found:
    """1,200 requests with another Host, Accept and spaces before the token each, of 100 KB."""
    return _taken(stage, _send_long_texts)


def unread_changes(stage: FireStage) -> Found:
    """300 listeners of a topic's changes that read nothing, while records of 900 KB are written."""
    return _taken(stage, _listen)


def positions(stage: FireStage) -> Found:
    """600 clients that wait for an offset that never comes, again and again."""
    return _taken(stage, _wait)


def pages(stage: FireStage) -> Found:
    """16 clients that read pages of 12 values of 900 KB, half of them a field of each."""
    return _taken(stage, _read_pages)


def patterns(stage: FireStage) -> Found:
    """Writes of 8 KB, one after the other, whose schemas have 300 patterns that take long to compile."""
    return _taken(stage, _send_patterns)


def all_takers(stage: FireStage) -> Found:
    """All of these at the same time."""
    attacks = (_leave_unread, _send_long_texts, _listen, _wait, _read_pages, _send_patterns)
    return _taken(stage, *attacks)


def _leave_unread(trial: Trial, ended: threading.Event) -> None:
    fields = _GET + _HTTP + literal(b":path", b"/openapi.json") + literal(b":authority", b"x")
    begun = b"".join(frame(HEADERS, 5, 2 * number + 1, fields) for number in range(STREAMS))
    first = PREFACE + frame(SETTINGS, 0, 0, _NO_WINDOW) + frame(SETTINGS, 1, 0) + begun
    with _opened(trial, CONNECTIONS) as opened:
        _send(opened, first)
        ended.wait()


def _send_long_texts(trial: Trial, ended: threading.Event) -> None:
    token = CALLER["Authorization"].split()[1]
    for number in range(LONG_REQUESTS):
        text = f"{number:06}" + "a" * LONG
        headers = (
            f"Host: {text}\r\n",
            f"Host: x\r\n{_TOKEN}Accept: application/octet-stream,{'a/b,' * (LONG // 4)}{number}/x\r\n",
            f"Host: x\r\nAuthorization: Bearer{' ' * (LONG + number)}{token}\r\n",
        )
        request = f"GET {_KEY} HTTP/1.1\r\nConnection: close\r\n{headers[number % 3]}\r\n".encode()
        with _opened(trial, 1) as opened, contextlib.suppress(OSError):
            _send(opened, request)
            opened[0].recv(100)
        if ended.is_set():
            return
    ended.wait()


def _listen(trial: Trial, ended: threading.Event) -> None:
    head = f"GET /topics/{LARGE_TOPIC}/changes HTTP/1.1\r\nHost: x\r\n{_TOKEN}\r\n".encode()
    with _opened(trial, LISTENERS) as opened:
        _send(opened, head)
        for number in range(LARGE_KEYS):
            if ended.wait(SECONDS / LARGE_KEYS / 2):
                return
            _put_large(trial, number)
        ended.wait()


def _wait(trial: Trial, ended: threading.Event) -> None:
    head = f"GET {_KEY}?min_offset=999999999 HTTP/1.1\r\nHost: x\r\n{_TOKEN}\r\n".encode()
    with _opened(trial, WAITING) as opened:
        while not ended.is_set():
            _send(opened, head)
            ended.wait(WAIT_S)


def _read_pages(trial: Trial, ended: threading.Event) -> None:
    def read(path: str) -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                trial.server.ask("GET", path, **CALLER)

    page = f"/topics/{LARGE_TOPIC}/keys?limit={LARGE_KEYS}"
    readers = [
        threading.Thread(target=read, args=(page + "&fields=n" * (number % 2),)) for number in range(READERS)
    ]
    for each in readers:
        each.start()
    for each in readers:
        each.join()


def _send_patterns(trial: Trial, ended: threading.Event) -> None:
    for number in range(SCHEMAS):
        schema = {"patternProperties": {rf"\p{{L}}{{1,60}}z{number}x{n}": {} for n in range(PATTERNS)}}
        body = {"value_schema": json.dumps(schema), "records": [{"value": {"q": 1}}]}
        with contextlib.suppress(OSError):
            trial.server.ask(
                "POST",
                f"/topics/{LARGE_TOPIC}",
                json.dumps(body).encode(),
                Content_Type=_SCHEMA_TYPE,
                **CALLER,
            )
        if ended.wait(1):
            return


def _put_large(trial: Trial, number: int) -> None:
    body = json.dumps({"n": number, "filler": "x" * LARGE}).encode()
    trial.server.ask("PUT", f"/topics/{LARGE_TOPIC}/keys/large-{number}", body, **CALLER)


def _is_written(trial: Trial) -> bool:
    last = f"/topics/{LARGE_TOPIC}/keys/large-{LARGE_KEYS - 1}?fields=n"
    return trial.server.ask("GET", last, **CALLER)[0] == http.HTTPStatus.OK


def _taken(stage: FireStage, *attacks: Attack) -> Found:
    """Let them all take what they can; note the most that the server has of the memory."""
    with _with_registry(stage) as variables, _open_watched(stage, variables) as trial:
        for number in range(LARGE_KEYS):
            _put_large(trial, number)
        eventually(lambda: _is_written(trial))
        ended = threading.Event()
        taking = [threading.Thread(target=_attack, args=(attack, trial, ended)) for attack in attacks]
        trial.phase(DURING)
        for each in taking:
            each.start()
        time.sleep(SECONDS)
        ended.set()
        for each in taking:
            each.join()
        return trial.rest_and_finish(3)


def _attack(attack: Attack, trial: Trial, ended: threading.Event) -> None:
    """Attack at the low priority of a load: real attackers have processors of their own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    attack(trial, ended)


@contextlib.contextmanager
def _open_watched(stage: FireStage, variables: Mapping[str, str]) -> Iterator[Trial]:
    """Yield a trial of a server with tokens, whose memory is looked at all the time."""
    options = ("--authorization", "tokens")
    with open_trial(stage, *options, variables=variables, headers=CALLER) as trial, _sampled(trial):
        yield trial


@contextlib.contextmanager
def _with_registry(stage: FireStage) -> Iterator[Mapping[str, str]]:
    """Yield the variables of a server with tokens and a registry."""
    registry = Registry(stage.folder, Ports().any())
    registry.start()
    try:
        yield {"KEYLANE_ACCESS": ACCESS, "KEYLANE_SCHEMA_REGISTRY_URL": registry.url}
    finally:
        registry.kill()
        registry.close()


def _send(connections: list[socket.socket], data: bytes) -> None:
    for each in connections:
        with contextlib.suppress(OSError):
            each.sendall(data)


@contextlib.contextmanager
def _opened(trial: Trial, count: int) -> Iterator[list[socket.socket]]:
    """Yield so many connections."""
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(_connected(trial)) for _ in range(count)]


def _connected(trial: Trial) -> socket.socket:
    return socket.create_connection((HOST, trial.server.port), timeout=60)


@contextlib.contextmanager
def _sampled(trial: Trial) -> Iterator[None]:
    """Look at the server's memory all the time."""
    ended, facts = threading.Event(), trial.found.facts
    facts[MIB] = 0.0

    def sample() -> None:
        while not ended.wait(0.5):
            trial.rss_mib(DURING)
            facts[MIB] = max(facts[MIB], trial.found.rss_mib[DURING])

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield
    finally:
        ended.set()
        sampler.join()
