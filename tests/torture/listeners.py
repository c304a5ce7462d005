"""Clients of changes, by key and by topic: they leave and come back with the last id that they got."""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.own import CLOCK
from tests.torture.background import Background
from tests.torture.configurations import COMPACTED, RETAINED, SIDE
from tests.torture.sources import TERMS, change_reader, read_key

from keylane.api.reads.change_sources import KeyChanges, TopicChanges
from keylane.api.reads.changes import LAST_OFFSETS, LAST_POSITION, ChangesRequest, any_key
from keylane.errors import KeylaneError, Unavailable
from keylane.model.changes import ABSENT, GAP, RECORD
from keylane.query.changes import ChangeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.torture.journal import Journal
    from tests.torture.stack import TortureStack

    from keylane.model.changes import ChangeEvent
    from keylane.model.records import Answer

KEYS_AT_ONCE = 4
_STAYS_S = (0.1, 0.4, 1.0)
_WAIT_S = 0.2
_PAUSE_S = 0.1


class Heard(NamedTuple):
    """What a client got at once. Times in monotonic seconds, `ended_ms` by the wall clock.

    `connection`: which of the client's, counted from 1.
    """

    began_s: float
    ended_s: float
    ended_ms: int
    events: Sequence[ChangeEvent]
    connection: int = 0


class Listener:
    """A client of a topic's changes, or of a key's. `heard`: what it got since that was last taken."""

    def __init__(self, reader: ChangeReader, topic: str, key: bytes | None = None) -> None:
        self.topic = topic
        self.key = key
        self.last_id = ""
        self.heard: list[Heard] = []
        self.connections = 0
        self._reader = reader
        self._request = ChangesRequest(topic, key or b"", TERMS, None, None)

    def listen(self, stay_s: float) -> None:
        """Connect with the last id, and stay for so long. Raises KeylaneError."""
        until_s = time.monotonic() + stay_s
        self.connections += 1
        kind, since = (TopicChanges, LAST_OFFSETS) if self.key is None else (KeyChanges, LAST_POSITION)
        source = kind(self._reader, self._request)
        source.start()
        position = since.parse(self.last_id) if self.last_id else None
        while True:
            began_s = time.monotonic()
            events, position = source.catch_up(position, any_key)  # type: ignore[arg-type]
            self.hear(began_s, events)
            if position is None:
                break
            if time.monotonic() > until_s:
                return
        while (left_s := until_s - time.monotonic()) > 0:
            began_s = time.monotonic()
            try:
                self.hear(began_s, source.wait(min(left_s, _WAIT_S)))
            except Unavailable:
                # The server says so once, and the stream stays.
                time.sleep(min(left_s, _PAUSE_S))

    def hear(self, began_s: float, events: Sequence[ChangeEvent]) -> None:
        for event in events:
            self.last_id = event.id or self.last_id
        if events:
            self.heard.append(Heard(began_s, time.monotonic(), CLOCK.now_ms(), events, self.connections))

    def take(self) -> list[Heard]:
        """What it heard since the last call."""
        taken, self.heard = self.heard, []
        return taken


class SideListener(Listener):
    """A client of a side topic, which reads all keys again after a gap.

    So it does when it comes back after tombstones were removed from a compacted log: it may have missed them.
    `has`: the position that it knows of each key, "" for none.
    """

    def __init__(
        self, reader: ChangeReader, topic: str, keys: Callable[[], Iterable[bytes]], journal: Journal
    ) -> None:
        super().__init__(reader, topic)
        self.has: dict[bytes, str] = {}
        self._keys = keys
        self.journal = journal
        self._left_s = 0.0
        self._unsure_since_ms: int | None = reader.store.clock.now_ms()

    def listen(self, stay_s: float) -> None:
        if self._left_s < self.journal.forgets_since_s:
            self._unsure_since_ms = self._reader.store.clock.now_ms()
        try:
            super().listen(stay_s)
        finally:
            self._left_s = time.monotonic()
        if self._unsure_since_ms is None:
            return
        answers = self.read()
        # A replica that answers may be behind what the stream has passed.
        if all(each.watermark.complete_as_of_ms >= self._unsure_since_ms for each in answers.values()):
            self._unsure_since_ms = None
            self.has = {key: position_of(answer) for key, answer in answers.items()}

    def hear(self, began_s: float, events: Sequence[ChangeEvent]) -> None:
        super().hear(began_s, events)
        for event in events:
            if event.name == GAP:
                self._unsure_since_ms = self._reader.store.clock.now_ms()
            if event.name in (RECORD, ABSENT):
                self.has[event.key] = position_in(event)

    def read(self) -> dict[bytes, Answer]:
        """What the state has of each key. Raises KeylaneError."""
        return {key: read_key(self._reader.store, self.topic, key) for key in self._keys()}


def position_of(answer: Answer) -> str:
    """The position of an answer's record; "" without one."""
    return str(answer.record.position) if answer.record else ""


def position_in(event: ChangeEvent) -> str:
    """The position of an event's record; "" if it says that there is none."""
    if event.name != RECORD:
        return ""
    _, _, after = event.data.partition('"position": "')
    return after.partition('"')[0]


class Listeners(Background):
    """A thread with clients of every topic and of some keys, which connect one after the other."""

    def __init__(self, stack: TortureStack, seed: int) -> None:
        super().__init__("listeners")
        self._stack = stack
        self._source = random.Random(f"{seed}/listeners")
        self._connections = contextlib.ExitStack()
        self._reader = self._connections.enter_context(change_reader(stack))
        self.topics = [Listener(self._reader, topic) for topic in stack.shapes]
        self.sides = [
            SideListener(self._reader, topic, self._keys_of(topic), stack.journals[topic])
            for topic in (SIDE, COMPACTED, RETAINED)
        ]
        self.keys: list[Listener] = []

    def listen_to(self, keys: Sequence[tuple[str, bytes]]) -> None:
        """Listen from now on, to some of these keys too."""
        chosen = self._source.sample(keys, min(KEYS_AT_ONCE, len(keys)))
        self.keys = [Listener(self._reader, topic, key) for topic, key in chosen]
        self.begin()

    def close(self) -> None:
        super().close()
        self._connections.close()

    def _keys_of(self, topic: str) -> Callable[[], list[bytes]]:
        return lambda: [key for name, key in list(self._stack.side_keys) if name == topic]

    def _act(self) -> None:
        listener = self._source.choice([*self.topics, *self.sides, *self.keys])
        try:
            listener.listen(self._source.choice(_STAYS_S))
        except KeylaneError:
            # A problem ends the stream, or refuses it: the client comes back later.
            time.sleep(_PAUSE_S)
