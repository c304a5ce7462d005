"""A stream of the scoped caller: no event shows what may not be seen, and none of what may be is missing."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, NamedTuple

from tests.support.events import EventLines
from tests.torture.answers import row_at
from tests.torture.oracle import show
from tests.torture.stack import wait_until

from keylane.api.reads.changes import LAST_OFFSETS
from keylane.model.changes import ABSENT, GAP, LEFT, RECORD
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.events import ReceivedEvent
    from tests.torture.checks import Facts
    from tests.torture.oracle import Logged
    from tests.torture.rights import Rights

HEARD_WITHIN_S = 30
"""What is in the state is heard of within this time."""
_SILENT_S = 60
"""A stream has a comment each 15 s."""
_PAUSE_S = 0.1
_ENDS_WITHIN_S = 10


class ShownEvent(NamedTuple):
    """An event about a key: `name` is that of the event. A record has its position and value."""

    name: str
    key: bytes
    partition: int = -1
    offset: int = -1
    value: bytes = b""
    has_value: bool = False


class ScopedStream:
    """Keeps one stream of a topic open; after it broke, it opens another.

    `events`: all that were heard. `since`: where the present connection began; None where that is unknown, or
    something was left out since. `latest`: what the present connection has heard last of each key.
    """

    def __init__(self, port: int, topic: str, token: str) -> None:
        self.topic = topic
        self.events: list[ShownEvent] = []
        self.since: Mapping[int, int] | None = None
        self.latest: dict[bytes, ShownEvent] = {}
        self.began_s = 0.0
        self.refused: list[str] = []
        self.is_compared = False
        self._port, self._headers = port, {"Authorization": f"Bearer {token}"}
        self._socket: socket.socket | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"scoped-stream-{topic}")
        self._thread.start()

    @property
    def heard(self) -> int:
        """The number of events."""
        return len(self.events)

    def close(self) -> None:
        """Listen no more."""
        self._stop.set()
        with contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(_ENDS_WITHIN_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(HTTPException, OSError):
                self._listen()
            self.since = None
            self._stop.wait(_PAUSE_S)

    def _listen(self) -> None:
        connection = HTTPConnection(HOST, self._port, timeout=_SILENT_S)
        connection.connect()
        self._socket = connection.sock
        self.since, self.latest, self.began_s = None, {}, time.monotonic()
        try:
            connection.request("GET", f"/topics/{self.topic}/changes", headers=self._headers)
            answer = connection.getresponse()
            if answer.status != 200:
                if answer.status in {401, 403, 500}:
                    self.refused.append(f"{answer.status} {answer.read()[:500]!r}")
                return
            lines = EventLines()
            while line := answer.readline():
                if event := lines.take(line):
                    self._take(event)
        finally:
            connection.close()

    def _take(self, event: ReceivedEvent) -> None:
        if event.name in {RECORD, ABSENT, LEFT}:
            (row, value), _ = row_at(event.data, 0)
            place = row.get("partition", -1), row.get("offset", -1)
            shown = ShownEvent(event.name, row["key"].encode(), *place, value, "value" in row)
            self.events.append(shown)
            self.latest[shown.key] = shown
        elif event.name == GAP:
            self.since = None
            self.began_s = float("inf")
        if self.since is None and self.began_s < float("inf") and event.id:
            self.since = LAST_OFFSETS.parse(event.id).next_offsets


def check_stream(stream: ScopedStream, facts: Facts, rights: Rights, *, is_at_rest: bool) -> Iterator[str]:
    """Check what was heard; at rest also that it has all, unless Redis lost data since it began."""
    where = f"a stream of {stream.topic} of a scoped caller"
    if is_at_rest and stream.since is not None and not facts.is_harmed(stream.began_s, time.monotonic()):
        stream.is_compared = True
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: not list(_lacking(stream, facts, rights)), HEARD_WITHIN_S, where)
        yield from (f"{where}: {fault}" for fault in _lacking(stream, facts, rights))
    stream.close()
    yield from (f"{where} was refused: {each}" for each in stream.refused)
    for event in stream.events:
        if fault := _fault_of(event, stream.topic, facts, rights):
            yield f"{where}, {event.key.decode()}: `{event.name}` {fault}"


def _fault_of(event: ShownEvent, topic: str, facts: Facts, rights: Rights) -> str:
    key_log = facts.log.of(topic, event.key)
    question = rights.question(topic, event.key)
    if event.name == RECORD:
        logged = key_log.at(event.partition, event.offset)
        if logged is None or logged.value != event.value:
            at = f"{event.partition}:{event.offset}"
            return f"has {event.value[:24]!r} at {at}, the log has {show(logged)}"
        return "" if question.is_met(logged) else f"is not permitted: {logged}"
    if event.has_value:
        return f"has a value: {event.value[:200]!r}"
    known = (each for records in key_log.records.values() for each in records if each.value is not None)
    is_by_key = topic != rights.by_field and rights.has_key(topic, event.key)
    if is_by_key or any(map(question.is_met, known)):
        return ""
    return "is of a key that never had a permitted record"


def _lacking(stream: ScopedStream, facts: Facts, rights: Rights) -> Iterator[str]:
    """What the stream has not sent of the records from its beginning on."""
    since, topic = stream.since, stream.topic
    if since is None:
        return
    for key in facts.log.keys_of(topic):
        key_log = facts.log.of(topic, key)
        newest = key_log.newest()
        if newest is None or key_log.shape.options.ttl_ms or key_log.shape.is_forgetful:
            continue
        is_met = newest.value is not None and rights.question(topic, key).is_met(newest)
        heard = stream.latest.get(key)
        if is_met and newest.offset >= since[newest.partition] and not _has(heard, newest):
            yield f"it has not sent {show(newest)} of {key.decode()}, but {heard}"
        if not is_met and heard is not None and heard.name == RECORD:
            yield f"it has not sent that {key.decode()} has left, with {newest}, but {heard}"


def _has(heard: ShownEvent | None, logged: Logged) -> bool:
    return heard is not None and heard.name == RECORD and heard[2:4] == (logged.partition, logged.offset)
