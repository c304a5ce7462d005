"""What must hold of every answer, of the server's log and processes, and of valid requests in between."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psutil
from tests.requests.valid import SECRET, SECRET_TOPIC
from tests.requests.wire import CLOSED, HTTP_1, LATE, RAW, FuzzAnswer, FuzzRequest, exchange

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST_S = 5.0
MOST_MIB = 400
NOT_STREAMED, UNAVAILABLE = 501, 503
DOCUMENTED = re.compile(rb"urn:keylane:problem:overloaded")
"""Of 503: what a request of this run may be answered. Kafka, Redis and the job are there."""
INTERNAL = re.compile(
    rb"Traceback \(most recent|urn:keylane:problem:(internal|misconfigured|corrupt-state)"
    rb'|"error_code": ?5\d\d\b'
)
LOGGED = re.compile(r"Traceback \(most recent|ended with -?\d+: the next|MemoryError|panicked")
READABLE_S = 60.0


class FuzzTarget:
    """What requests are sent to. `pid`: of the server; `log`: its file. `may_refuse`: 501 is an answer."""

    def __init__(
        self, name: str, port: int, logs: list[Path], pid: int | None, *, is_guarded: bool = False
    ) -> None:
        self.name, self.port, self.is_guarded = name, port, is_guarded
        self._pid, self._logs = pid, logs
        self._read = dict.fromkeys(logs, 0)
        self._workers = self._find_workers()
        self.most_mib = 0.0

    def send(self, request: FuzzRequest) -> FuzzAnswer:
        return exchange(HOST, self.port, request)

    def _find_workers(self) -> set[int]:
        return {each.pid for each in psutil.Process(self._pid).children()} if self._pid else set()

    def new_log(self) -> Iterator[str]:
        """Yield what its logs have that a request must not cause, with what is around it."""
        for log in self._logs:
            with contextlib.suppress(FileNotFoundError):
                if log.stat().st_size == self._read[log]:
                    continue
                with log.open("rb") as file:
                    file.seek(self._read[log])
                    data = file.read()
                self._read[log] += len(data)
                text = data.decode("utf-8", "replace")
                if (found := LOGGED.search(text)) is not None:
                    yield f"{log.name}: {text[max(0, found.start() - 500) : found.start() + 4_000]}"

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its processes."""
        if self._pid is None:
            return
        if not psutil.pid_exists(self._pid) or self._find_workers() != self._workers:
            yield f"{self.name}: a process of the server has ended"
            return
        main, size = psutil.Process(self._pid), 0
        for each in (main, *main.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                size += each.memory_info().rss
        self.most_mib = max(self.most_mib, size / 2**20)
        if self.most_mib > MOST_MIB:
            yield f"{self.name}: the server has {self.most_mib:.0f} MiB"


def fault_of(answer: FuzzAnswer, request: FuzzRequest, *, may_have_secret: bool) -> str | None:
    """Return what is wrong with an answer, LATE among it; None for nothing."""
    if answer.ended == LATE:
        return None if request.over == RAW else LATE
    if answer.ended == CLOSED and not answer.status:
        return CLOSED if request.over == HTTP_1 else None
    if (found := INTERNAL.search(answer.body)) is not None:
        return f"{answer.status} with {found[0].decode()}"
    if not may_have_secret and SECRET.encode() in answer.body:
        return "the answer has what the caller may not read"
    if answer.status >= 500 and not _is_documented(answer):
        return f"status {answer.status}"
    return LATE if answer.taken_s > LONGEST_S else None


def _is_documented(answer: FuzzAnswer) -> bool:
    if answer.status == UNAVAILABLE:
        return DOCUMENTED.search(answer.body) is not None
    return answer.status == NOT_STREAMED


class ValidRounds:
    """Valid requests whose answers are known, again and again with new keys."""

    def __init__(self, target: FuzzTarget, token: str) -> None:
        self._target, self._token = target, token
        self._numbers = itertools.count()
        self.slowest_s = 0.0

    def run(self) -> Iterator[str]:
        """Write a record in each way, and read it in each; yield what is wrong."""
        number = next(self._numbers)
        key = f"valid-{number}"
        value = {"to": key, "fare": number}
        v2 = {"records": [{"key": f"{key}-2", "value": value}]}
        v3 = {"key": {"type": "STRING", "data": f"{key}-3"}, "value": {"type": "JSON", "data": value}}
        push = {
            "records": [{"topic": "bookings", "key": f"{key}-4", "data": json.dumps(value)}],
            "wait_for_send": True,
        }
        cluster = self._document(self._ask("GET", "/v3/clusters"))["data"][0]["cluster_id"]
        kind = "application/vnd.kafka.json.v2+json"
        sent = (
            (201, self._ask("PUT", f"/topics/bookings/keys/{key}", value)),
            (200, self._ask("POST", "/topics/bookings?key_format=text", v2, kind)),
            (200, self._ask("POST", f"/v3/clusters/{cluster}/topics/bookings/records", v3)),
            (200, self._ask("POST", "/push", push)),
        )
        for status, answer in sent:
            if answer.status != status:
                yield f"a valid write is {answer.status}: {answer.body[:500]!r}"
                return
        for each in (key, f"{key}-2", f"{key}-3", f"{key}-4"):
            if self._readable(f"/topics/bookings/keys/{each}") != value:
                yield f"{each} is not what was written"
        expected = {
            f"/topics/bookings/find?to={key}": 4,
            f"/topics/bookings/keys?prefix={key}&limit=10&from=": None,
            f"/topics/bookings/keys/{key}/history": 1,
        }
        for path, count in expected.items():
            answer = self._ask("GET", path)
            if count is not None and (answer.status != 200 or len(self._document(answer)["records"]) < count):
                yield f"{path} is {answer.status}: {answer.body[:500]!r}"
        answer = self._ask("POST", "/topics/bookings/keys:read", {"keys": [key, f"{key}-2"]})
        if answer.status != 200 or answer.body.count(b'"position"') < 2:
            yield f"keys:read is {answer.status}: {answer.body[:500]!r}"
        if (answer := self._ask("GET", f"/topics/{quote(SECRET_TOPIC)}/keys/1")).status != 200:
            yield f"a key that nobody changes is {answer.status}"

    def _readable(self, path: str) -> Any:
        until_s = time.monotonic() + READABLE_S
        while (answer := self._ask("GET", path)).status == 404 and time.monotonic() < until_s:
            time.sleep(0.02)
        return self._document(answer)

    @staticmethod
    def _document(answer: FuzzAnswer) -> Any:
        return json.loads(answer.body) if answer.status == 200 else answer.status

    def _ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> FuzzAnswer:
        path, _, query = path.partition("?")
        pairs = tuple(
            (name, value) for name, _, value in (each.partition("=") for each in query.split("&") if query)
        )
        headers = (("Host", "localhost"), ("Authorization", self._token), ("Content-Type", kind))
        sent = b"" if body is None else json.dumps(body).encode()
        answer = self._target.send(FuzzRequest(method, path, pairs, headers, sent))
        self.slowest_s = max(self.slowest_s, answer.taken_s)
        return answer
