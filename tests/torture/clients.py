"""A client that writes through the product while a schedule runs, and keeps the answer to each record.

It has keys of its own, and one request at a time, so the order of a key's records is that of its requests.
A record that was not written for certain is at times sent again, as clients do.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import random
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.servers.own import CLOCK
from tests.torture.stack import wait_until
from tests.torture.written import OF_SERVER, Sent, results_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.torture.hosts import Host
    from tests.torture.schedule import Schedule

FUNCTION, QUEUE = "function", "queue"
CLIENTS = (FUNCTION, *OF_SERVER, QUEUE)
KEYS = 5
"""Of each client, in every topic."""
ENDS_WITHIN_S = 60
FAR_MS = 10 * 86_400_000
"""So far ahead of now no topic takes a timestamp by default."""
TOO_LARGE_BYTES = 1_100_000
"""More than any topic here takes."""
_PAUSE_S = 0.15
_V2 = "application/vnd.kafka.binary.v2+json"


class Client:
    """One client: a thread that writes to topics, and the records that it has sent."""

    def __init__(self, name: str, host: Host, numbers: itertools.count[int]) -> None:
        self.name = name
        self.sent: list[Sent] = []
        self.faults: list[str] = []
        self._host = host
        self._numbers = numbers
        self._requests = itertools.count()
        self._answered: Callable[[Sent], None] = lambda _: None
        self._source = random.Random()
        self._topics: Sequence[str] = ()
        self._keys: Sequence[bytes] = ()
        self._bad: list[bool] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, schedule: Schedule, topics: Sequence[str], answered: Callable[[Sent], None]) -> None:
        """Write to these topics until `finish`. `answered`: called with each record that has a new result."""
        self.sent, self.faults, self._answered = [], [], answered
        self._source = random.Random(f"{schedule.seed}/{self.name}")
        self._topics, self._keys = topics, keys_of(schedule, self.name)
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"client-{self.name}")
        self._thread.start()

    def spoil(self, *, is_large: bool) -> None:
        """Let the next request have a record among others that Kafka refuses: for its size, or its time."""
        self._bad.append(is_large and self.name != QUEUE)

    @property
    def is_spoiling(self) -> bool:
        """Whether such a request has not begun yet."""
        return bool(self._bad)

    def stop(self) -> None:
        """End with the request that it waits for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(ENDS_WITHIN_S)
            if self._thread.is_alive():
                self.faults.append(f"client {self.name}: no answer within {ENDS_WITHIN_S} s")
        self._thread, self._bad = None, []

    def write_at_last(self) -> None:
        """Write one record to each topic: it must succeed within a time."""
        for topic in self._topics:
            if not self.faults and not self.send(sent := self._record(topic)):
                self.faults.append(f"{self.name} can't write to {topic} any more: {sent.results[-1]}")

    def send(self, sent: Sent) -> bool:
        """Send a record until it is certainly written; returns whether it is, within a time."""

        def is_written() -> bool:
            self._post([sent])
            return sent.is_certain

        with contextlib.suppress(TimeoutError):
            wait_until(is_written, ENDS_WITHIN_S, "")
        return sent.is_certain

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                sent = self._write()
                if self._source.random() < 0.5 and (again := [each for each in sent if _may_repeat(each)]):
                    self._post(again)
                self._stop.wait(_PAUSE_S)
        except Exception as error:  # noqa: BLE001 - any error is a finding
            self.faults.append(f"client {self.name} broke: {error!r}")

    def _write(self) -> list[Sent]:
        topic, kind = self._source.choice(self._topics), self._source.random()
        if self._bad:
            spoilt = [self._record(topic) for _ in range(6)]
            bad = self._source.choice(spoilt)
            bad.is_bad = True
            if self._bad.pop():
                bad.value = (bad.value or b"").ljust(TOO_LARGE_BYTES, b"x")
            else:
                bad.timestamp_ms = CLOCK.now_ms() + FAR_MS
            self._post(spoilt)
            return spoilt
        if kind < 0.4:
            single = self._record(topic)
            self._send_alone(single, is_push=kind < 0.1)
            return [single]
        records = [self._record(topic) for _ in range(self._source.choice((1, 2, 6)))]
        self._post(records)
        return records

    def _record(self, topic: str) -> Sent:
        number = next(self._numbers) + 1
        key = self._source.choice(self._keys)
        is_tombstone = self._source.random() < 0.15
        value = (
            None if is_tombstone else b"%b-%d-" % (key, number) + b"y" * self._source.choice((0, 200, 9_000))
        )
        return Sent(self.name, topic, key, value, f"{number:032x}")

    def _send_alone(self, sent: Sent, *, is_push: bool) -> None:
        """Send one record by its key, or as kprf has it, which knows no tombstones."""
        headers = {"traceparent": _traceparent(sent), "Content-Type": "text/plain"}
        path = f"/topics/{sent.topic}/keys/{quote(sent.key, safe='')}"
        if sent.value is None:
            self._ask([sent], "DELETE", path, headers | self._headers, b"")
        elif is_push:
            record = {"topic": sent.topic, "key": sent.key.decode(), "data": sent.value.decode()}
            body = {"records": [record], "wait_for_send": self.name != QUEUE}
            headers["Content-Type"] = "application/json"
            self._ask([sent], "POST", "/push", headers, json.dumps(body).encode())
        else:
            self._ask([sent], "PUT", path, headers | self._headers, sent.value)

    def _post(self, records: Sequence[Sent]) -> None:
        """Send records of one topic as REST Proxy v2 has them."""
        headers = self._headers | {"Content-Type": _V2}
        body = json.dumps({"records": [_as_v2(each) for each in records]}).encode()
        self._ask(records, "POST", f"/topics/{records[0].topic}", headers, body)

    @property
    def _headers(self) -> dict[str, str]:
        return {"Prefer": "respond-async"} if self.name == QUEUE else {}

    def _ask(
        self, records: Sequence[Sent], method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        request = next(self._requests)
        new = [each for each in records if not each.results]
        for each in records:
            each.request = request
        began_s = time.monotonic()
        reply = self._host.ask(method, path, headers, body)
        ended_s = time.monotonic()
        if reply is not None and reply.status == 500:
            self.faults.append(f"client {self.name}: {method} {path} was answered with 500: {reply.document}")
        results = results_of(reply, len(records))
        for each, result in zip(records, results, strict=True):
            each.results.append(replace(result, began_s=began_s, ended_s=ended_s))
            self._answered(each)
        self.sent += new


def keys_of(schedule: Schedule, client: str) -> list[bytes]:
    return [b"%b%b-%d" % (schedule.prefix, client.encode(), number) for number in range(KEYS)]


def _may_repeat(sent: Sent) -> bool:
    last = sent.results[-1]
    if last.is_superseded:
        return False
    return last.kind == "uncertain" or (last.kind == "refused" and last.is_retriable)


def _traceparent(sent: Sent) -> str:
    return f"00-{sent.trace}-{1:016x}-01"


def _as_v2(sent: Sent) -> dict[str, Any]:
    record: dict[str, Any] = {
        "key": base64.b64encode(sent.key).decode(),
        "value": None if sent.value is None else base64.b64encode(sent.value).decode(),
        "headers": [{"name": "traceparent", "value": _traceparent(sent), "value_format": "text"}],
    }
    return record if sent.timestamp_ms is None else record | {"timestamp": sent.timestamp_ms}
