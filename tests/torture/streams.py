"""Compares what clients of changes heard with the log. Each fault is a sentence.

A stream may leave out changes that a later one of the same key follows. But when it announces a position, the
client must have each key as the records below it say, or newer.
"""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.servers.own import CLOCK
from tests.torture.checks import EXPIRY_MS
from tests.torture.listeners import SideListener, position_of
from tests.torture.oracle import show

from keylane.api.reads.changes import LAST_OFFSETS
from keylane.errors import KeylaneError
from keylane.model.changes import ABSENT, GAP, RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.torture.checks import Facts
    from tests.torture.listeners import Heard, Listener, Listeners
    from tests.torture.oracle import KeyLog, Logged

    from keylane.model.changes import ChangeEvent
    from keylane.query.changes import TopicPosition

HEARD_WITHIN_S = 60
_TRAIL = 6
"""What a fault names of what was heard before: enough for a record, an absence and what came between."""


@dataclass(slots=True)
class StreamCheck:
    """What a client of a topic, or of a key, has heard over all schedules.

    `held`: of each key the record that the client has, None for absence, and when it came. `floors`: the
    records that what comes later may not be older than. `trails`: what was heard last of each key.
    """

    topic: str
    of_key: bool = False
    held: dict[bytes, tuple[Logged | None, float]] = field(default_factory=dict)
    floors: dict[bytes, Logged] = field(default_factory=dict)
    trails: dict[bytes, deque[str]] = field(default_factory=dict)
    position: TopicPosition | None = None
    heard_s: float = 0.0

    def check(self, heard: list[Heard], facts: Facts) -> Iterator[str]:
        """Check what was heard since the last call."""
        for now in heard:
            for event in now.events:
                if event.name == GAP:
                    yield from self._check_gap(now, facts, event)
                elif event.name in (RECORD, ABSENT):
                    yield from self._check_change(now, facts, event)
                elif event.id:
                    yield from self._check_position(now, facts, LAST_OFFSETS.parse(event.id))
            self.heard_s = now.ended_s

    def _check_gap(self, now: Heard, facts: Facts, event: ChangeEvent) -> Iterator[str]:
        """Only a topic that begins again with an emptied Redis has gaps: its log only grows."""
        if not facts.has_lost_all(now.ended_s):
            yield f"{self.topic}: a stream has a gap, and nothing was removed: {event.data}"

    def _check_change(self, now: Heard, facts: Facts, event: ChangeEvent) -> Iterator[str]:
        where, key_log = f"{self.topic}/{event.key.decode()}", facts.log.of(self.topic, event.key)
        found = None
        if event.name == RECORD:
            document = json.loads(event.data)
            found = key_log.at(document["partition"], document["offset"])
            if found is None or found.value is None or not is_value(found.value, document):
                yield f"{where}: the log has {show(found)}, and a stream sent {event.data[:200]}"
                return
        trail = self.trails.setdefault(event.key, deque(maxlen=_TRAIL))
        trail.append(_show_heard(now, event, found))
        before, before_s = self.held.get(event.key, (None, 0.0))
        self.held[event.key] = found, now.ended_s
        floor = self.floors.get(event.key)
        if floor is None:
            self.floors |= {event.key: found} if found else {}
            return
        fault = _older(key_log, found, floor, now)
        if fault is not None and not facts.has_trouble(before_s, now.ended_s):
            stream = "its own stream" if self.of_key else "the topic's stream"
            yield (
                f"{where}: {stream} went back after {now.ended_s - before_s:.3f} s, "
                f"it heard {show(before)} before, it had {fault}; what it heard at last: {'; '.join(trail)}"
            )
        self.floors[event.key] = found or _least_of_absence(key_log, floor, now.ended_ms)

    def _check_position(self, now: Heard, facts: Facts, position: TopicPosition) -> Iterator[str]:
        """Everything below an announced position has been sent."""
        before, self.position = self.position, position
        if before is None:
            return
        since = before.next_offsets
        if before.incarnation != position.incarnation:
            if not facts.has_lost_all(now.ended_s):
                yield f"{self.topic}: a stream begins again, though its topic does not"
            self.held, self.floors, since = {}, {}, {}
        for partition, end in position.next_offsets.items():
            begin = since.get(partition, 0)
            is_excused = facts.has_lost_data(now.ended_s) or facts.has_trouble(self.heard_s, now.ended_s)
            if end < begin and not is_excused:
                yield f"{self.topic}: a stream went back from {partition}:{begin} to {partition}:{end}"
            for key in facts.log.keys_between(self.topic, partition, begin, end):
                yield from self._check_sent(now, facts, key, (partition, end))

    def _check_sent(self, now: Heard, facts: Facts, key: bytes, below: tuple[int, int]) -> Iterator[str]:
        key_log = facts.log.of(self.topic, key)
        due = key_log.newest_of(*below)
        assert due is not None
        where = f"{self.topic}/{key.decode()}: a stream announced {below[0]}:{below[1]}"
        if key not in self.held:
            yield f"{where}, and {show(due)} was never sent"
        elif (fault := _older(key_log, self.held[key][0], due, now)) is not None:
            yield f"{where} without {fault}"


def _show_heard(now: Heard, event: ChangeEvent, found: Logged | None) -> str:
    """What was heard, when, by which connection, and what was read for it."""
    answer = event.answer
    return f"{show(found)} from {now.began_s:.3f} to {now.ended_s:.3f} by connection {now.connection}" + (
        f" ({answer.layout.generation} {answer.layout.stripes} {answer.watermark})" if answer else ""
    )


def _older(key_log: KeyLog, found: Logged | None, known: Logged, now: Heard) -> str | None:
    """What is wrong if what was found is older than what is known; None: it is not."""
    if found is None:
        is_older = not _is_over(key_log, known, now.ended_ms)
    else:
        # Where markers do not last, an older stray may bring a deleted key back.
        may_be_back = key_log.shape.is_forgetful and _is_over(key_log, known, now.ended_ms)
        is_older = key_log.rank(found) < key_log.rank(known) and not may_be_back
    return f"{show(known)}: it sent {show(found)}" if is_older else None


def _is_over(key_log: KeyLog, record: Logged, at_ms: int) -> bool:
    """Whether a key may be absent that had this record."""
    return key_log.is_gone(record, at_ms + EXPIRY_MS) or _gone_above(key_log, record, at_ms) is not None


def is_value(value: bytes, document: dict[str, Any]) -> bool:
    """Whether a stream's document has this value: as text, or as the JSON that it is."""
    wanted = json.loads(value) if document.get("value_format") == "json" else value.decode()
    return bool(document["value"] == wanted)


def _least_of_absence(key_log: KeyLog, floor: Logged, at_ms: int) -> Logged:
    """The least record that a client has certainly got past that hears of an absence.

    It may be that of the record that is known: a tombstone, of which a client hears again that comes back, or
    one whose time is over.
    """
    if key_log.is_gone(floor, at_ms + EXPIRY_MS):
        return floor
    return _gone_above(key_log, floor, at_ms) or floor


def _gone_above(key_log: KeyLog, record: Logged, at_ms: int) -> Logged | None:
    """The lowest record above this one that leaves nothing: a tombstone, or one whose time is over."""
    gone = (
        other
        for records in key_log.records.values()
        for other in records
        if key_log.rank(other) > key_log.rank(record) and key_log.is_gone(other, at_ms + EXPIRY_MS)
    )
    return min(gone, key=key_log.rank, default=None)


class StreamChecks:
    """The checks of all clients of changes. Those of keys are new in each schedule."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._of_topics = {each.topic: StreamCheck(each.topic) for each in listeners.topics}

    def check(self, facts: Facts, note_troubles: Callable[[], None]) -> Iterator[str]:
        """Let every client hear all there is, then check what it heard. The listeners must rest.

        `note_troubles` adds to the facts what has been in the way since: nodes can be slow here, too.
        """
        for listener in self._listeners.topics:
            yield from _finish(listener, lambda: _has_ends(listener, facts))  # noqa: B023 - runs at once
            note_troubles()
            yield from self._of_topics[listener.topic].check(listener.take(), facts)
        for listener in self._listeners.keys:
            check = KeyCheck(listener, StreamCheck(listener.topic, of_key=True), facts, note_troubles)
            yield from _finish(listener, check.has_newest)
            yield from check.faults
        for side in self._listeners.sides:
            yield from _finish(side, lambda: not missing(side))  # noqa: B023 - runs at once
            side.take()


@dataclass(slots=True)
class KeyCheck:
    """The check of a client of one key; it has the key's newest record in the end."""

    listener: Listener
    check: StreamCheck
    facts: Facts
    note_troubles: Callable[[], None]
    faults: list[str] = field(default_factory=list)

    def has_newest(self) -> bool:
        """Check what was heard since the last call; returns whether the client has what the log ends with."""
        key = self.listener.key
        assert key
        heard = self.listener.take()
        self.note_troubles()
        self.faults += self.check.check(heard, self.facts)
        key_log = self.facts.log.of(self.listener.topic, key)
        newest, found = key_log.newest(), self.check.held.get(key, (None, 0.0))[0]
        if found is None:
            return newest is None or key_log.is_gone(newest, CLOCK.now_ms() + EXPIRY_MS)
        return found == newest or (key_log.shape.is_forgetful and newest is not None and newest.value is None)


def _finish(listener: Listener, is_done: Callable[[], bool]) -> Iterator[str]:
    """Let a client listen until it has everything."""
    until_s = time.monotonic() + HEARD_WITHIN_S
    left = ""
    while time.monotonic() < until_s:
        try:
            listener.listen(0.0)
            if is_done():
                return
            left = missing(listener) if isinstance(listener, SideListener) else ""
        except KeylaneError as error:
            left = repr(error)
        time.sleep(0.02)
    key = f"/{listener.key.decode()}" if listener.key else ""
    yield f"{listener.topic}{key}: a stream does not reach the end, it stands at {listener.last_id} {left}"


def _has_ends(listener: Listener, facts: Facts) -> bool:
    if not listener.last_id:
        return False
    reached = LAST_OFFSETS.parse(listener.last_id).next_offsets
    return all(
        reached.get(partition, 0) >= end
        for (topic, partition), end in facts.log.next_offsets.items()
        if topic == listener.topic
    )


def missing(side: SideListener) -> str:
    """What a client of a side topic has otherwise than the state; "": nothing.

    A state that is incomplete may have lost by a rebuild what the client was sent. A key that a rebuild
    brings back has no new record.
    """
    reads = {
        key: position_of(answer)
        for key, answer in side.read().items()
        if not answer.watermark.incomplete and key not in side.journal.may_come_back
    }
    differing = [key for key, position in reads.items() if side.has.get(key, "") != position]
    return ", ".join(
        f"{key.decode()}: it has {side.has.get(key)!r}, the state {reads[key]!r}" for key in differing[:4]
    )
