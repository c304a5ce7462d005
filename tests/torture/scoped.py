"""The scoped reader of a schedule: what it reads is judged by what its rules permit, and by the log as ever.

A read of a key that a rule permits is one as of any reader. Any other read, and each of the topic whose rule
compares a field, is a find: of what was asked for, and may be seen. So its rows are permitted records, each
at its position in the log, and a key that it lacks must have had a reason.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tests.torture.checks import EXPIRY_MS, check_seen
from tests.torture.found import Scan, may_be_unfound
from tests.torture.over_http import ServerSource
from tests.torture.reading import MANY, Reads
from tests.torture.rights import is_scoped
from tests.torture.scoped_streams import ScopedStream, check_stream
from tests.torture.stack import rest

from keylane.errors import KeylaneError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.torture.checks import Facts
    from tests.torture.configurations import Configuration
    from tests.torture.oracle import KeyLog
    from tests.torture.reading import Seen
    from tests.torture.rights import Rights
    from tests.torture.schedule import Schedule
    from tests.torture.stack import TortureStack

NUMBER = 6
"""Of this reader, behind all others."""
SCOPED, SHOWN, COUNTED, STREAMED, WHOLE = (
    *("scoped", "scoped, with a record", "scoped, counts"),
    *("scoped, changes", "scoped, streams compared with the log"),
)
_PAUSE_S = 0.01
_OF_COUNTS = 0.1
_ENDS_WITHIN_S = 130


class CountSeen(NamedTuple):
    """A count of a topic. `absent`: for each key that was known what the answer says of how fresh it is."""

    topic: str
    number: int
    absent: Sequence[Seen]
    is_last: bool


class ScopedReads(Reads):
    """As `Reads`, without histories where a rule compares fields; and counts."""

    def __init__(self, where: ServerSource, configuration: Configuration, by_field: str | None) -> None:
        shapes = tuple(
            replace(each, options=replace(each.options, history_count=None, history_age_ms=None))
            if each.name == by_field
            else each
            for each in configuration.shapes
        )
        super().__init__(NUMBER, where, replace(configuration, shapes=shapes, views=()))
        self._where = where

    def count(self, topic: str, known: Sequence[bytes], *, is_last: bool) -> CountSeen | Seen:
        """Count the keys of a topic; an error is a read that has failed."""
        seen = self._timed("count", topic, known[0])
        try:
            count, found = self._where.count(topic, known)
        except KeylaneError as error:
            return seen(error=error)
        absent = [seen(each)._replace(key=key) for key, each in found.items()]
        return CountSeen(topic, count, absent, is_last)

    def read_all(self, topic: str, keys: Sequence[bytes]) -> list[Seen]:
        return [
            each
            for begin in range(0, len(keys), MANY)
            for each in self._many(topic, list(keys[begin : begin + MANY]))
        ]


class ScopedReader:
    """Reads while a schedule runs that has a scoped reader; listens to two topics meanwhile.

    `counts`: what it has done in the schedule.
    """

    def __init__(self, stack: TortureStack, seed: int) -> None:
        self._stack = stack
        self._seed = seed
        self._schedule: Schedule | None = None
        self._keys: Sequence[tuple[str, bytes]] = ()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._streams: list[ScopedStream] = []
        self._begin_anew()

    def begin(self, schedule: Schedule, keys: Sequence[tuple[str, bytes]]) -> None:
        """Read these keys until `rest`, if the schedule has a scoped reader."""
        self._begin_anew()
        self._schedule = schedule if is_scoped(schedule) else None
        if self._schedule is None:
            return
        self._keys = keys
        issuer = self._stack.issuer
        self._rights = issuer.rights(schedule)
        token = issuer.token(self._rights)
        port, name = self._stack.hosts.scoped_port, f"{self._seed}/{schedule.seed}"
        self._source = ServerSource(port, self._stack.shapes, f"{name}/ways", token)
        self._reads = ScopedReads(self._source, self._stack.configuration, issuer.by_field)
        self._random = random.Random(f"{name}/scoped")
        topics = [each for each in (issuer.by_field, *issuer.by_key[:1]) if each is not None]
        self._streams = [ScopedStream(port, topic, token) for topic in topics]
        self._thread = threading.Thread(target=self._run, daemon=True, name="scoped-reader")
        self._thread.start()

    def rest(self, *, is_at_rest: bool) -> None:
        """Read no more, but all once where the lanes have reached the ends of the log."""
        if self._schedule is None:
            return
        self._end()
        if is_at_rest:
            self._read_at_last()
        self._source.close()

    def check(self, facts: Facts, *, is_at_rest: bool) -> Iterator[str]:
        """Check everything that it has seen and heard; then listen no more."""
        if self._schedule is None:
            return
        yield from self._broken
        if not self.counts[SCOPED] - self._failed:
            yield f"no scoped read was answered: {dict(self.counts)}"
        yield from check_seen([[one for each in self._seen for one in judged(each, self._rights)]], facts)
        for each in self._counted:
            yield from check_count(each, facts, self._rights)
        for stream in self._streams:
            yield from check_stream(stream, facts, self._rights, is_at_rest=is_at_rest)
            self.counts[STREAMED] += stream.heard
            self.counts[WHOLE] += stream.is_compared

    def close(self) -> None:
        """End, whatever goes on."""
        self._end()
        self._close_streams()

    def _begin_anew(self) -> None:
        self._close_streams()
        self.counts = Counter[str]()
        self._seen: list[Seen] = []
        self._counted: list[CountSeen] = []
        self._broken: list[str] = []
        self._failed = 0

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams = []

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_ENDS_WITHIN_S)
            if self._thread.is_alive():
                self._broken.append(f"the scoped reader does not end within {_ENDS_WITHIN_S} s")
        self._thread = None
        self._stop.clear()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began_s = time.monotonic()
                if self._random.random() < _OF_COUNTS:
                    self._count(self._random.choice(self._keys)[0], is_last=False)
                else:
                    self._note(self._reads.read_any(self._random, self._keys))
                rest(began_s, _PAUSE_S, 10 * _PAUSE_S)
        except Exception as error:  # noqa: BLE001 - any other error is a finding
            self._broken.append(f"the scoped reader broke: {error!r}")

    def _read_at_last(self) -> None:
        for topic in self._stack.shapes:
            self._note(self._reads.read_all(topic, self._keys_of(topic)))
            self._count(topic, is_last=True)

    def _count(self, topic: str, *, is_last: bool) -> None:
        if not self._stack.shapes[topic].options.index:
            return
        found = self._reads.count(topic, self._keys_of(topic), is_last=is_last)
        if isinstance(found, CountSeen):
            self.counts[COUNTED] += 1
            self._counted.append(found)
        else:
            self._note([found])

    def _keys_of(self, topic: str) -> list[bytes]:
        return sorted({key for name, key in self._keys if name == topic})

    def _note(self, seen: Sequence[Seen]) -> None:
        self._seen += seen
        self._failed += sum(each.error is not None for each in seen)
        self.counts[SCOPED] += len(seen)
        self.counts[SHOWN] += sum(each.answer is not None and each.answer.record is not None for each in seen)
        self.counts[SHOWN] += sum(len(each.scan.rows) for each in seen if each.scan)


def judged(seen: Seen, rights: Rights) -> list[Seen]:
    """What is to be checked of a read: itself, or what it has found of what may be seen."""
    if seen.error is not None:
        return [seen]
    if seen.scan is None:
        return _judged_read(seen, rights)
    scan = seen.scan
    inside = [row for row in scan.rows if rights.has_key(row.topic, row.key)]
    outside = [row for row in scan.rows if not rights.has_key(row.topic, row.key)]
    absent = [each for each in scan.absent if rights.has_key(each.topic, each.key)]
    question = rights.question(seen.topic, seen.key, scan.question)
    if inside or absent:
        question = rights.question(seen.topic, (inside or absent)[0].key, scan.question)
    found = [seen._replace(scan=Scan(question, inside, absent, scan.is_whole))]
    found += [_found(row, rights, [row]) for row in outside]
    return found


def _judged_read(seen: Seen, rights: Rights) -> list[Seen]:
    is_by_field = seen.topic == rights.by_field
    if rights.has_key(seen.topic, seen.key) and not is_by_field:
        return [seen]
    assert seen.answer
    if seen.answer.record is not None or seen.entries:
        return [_found(seen, rights, [seen])]
    return [_found(seen, rights, [], [seen])] if is_by_field else []


def _found(seen: Seen, rights: Rights, rows: Sequence[Seen], absent: Sequence[Seen] = ()) -> Seen:
    scan = Scan(rights.question(seen.topic, seen.key), rows, absent, is_whole=True)
    return seen._replace(answer=None, entries=None, as_of_ms=None, scan=scan)


def check_count(now: CountSeen, facts: Facts, rights: Rights) -> Iterator[str]:
    """A count has each key that is permitted for certain, and no key that never was.

    While records come, one that changes between two values may be counted with both.
    """
    least = sum(_is_due(each, facts, rights) for each in now.absent)
    ended_ms = max(each.ended_ms for each in now.absent)
    began_ms = min(each.ended_ms - round((each.ended_s - each.began_s) * 1000) for each in now.absent)
    logs = [(key, facts.log.of(now.topic, key)) for key in facts.log.keys_of(now.topic)]
    logs = [(key, key_log) for key, key_log in logs if rights.has_key(now.topic, key)]
    if now.is_last:
        most = sum(_is_there(now.topic, *each, began_ms - EXPIRY_MS, rights) for each in logs)
    else:
        most = sum(_most(now.topic, *each, rights) for each in logs)
    if not least <= now.number <= most:
        when = "at rest" if now.is_last else f"as of {ended_ms}"
        yield (
            f"{now.topic}: a count of a caller who may see {' or '.join(rights.states)} of"
            f" {rights.by_field}, and some keys of others, {when}, is {now.number}; by the log it is"
            f" {least} to {most}"
        )


def _is_due(now: Seen, facts: Facts, rights: Rights) -> bool:
    key_log = facts.log.of(now.topic, now.key)
    floor = facts.floor(now, key_log)
    if floor is None or key_log.shape.is_forgetful or not rights.has_key(now.topic, now.key):
        return False
    question = rights.question(now.topic, now.key)
    return not may_be_unfound(question, key_log, floor, now.ended_ms + EXPIRY_MS)


def _is_there(topic: str, key: bytes, key_log: KeyLog, at_ms: int, rights: Rights) -> bool:
    newest = key_log.newest()
    if newest is None or key_log.is_gone(newest, at_ms):
        return False
    return rights.question(topic, key).is_met(newest)


def _most(topic: str, key: bytes, key_log: KeyLog, rights: Rights) -> int:
    """How often a key may be counted at once: for each of its values that were permitted at a time."""
    question = rights.question(topic, key)
    permitted = [
        each
        for records in key_log.records.values()
        for each in records
        if each.value is not None and question.is_met(each)
    ]
    if topic != rights.by_field:
        return min(1, len(permitted))
    return sum(
        any(question._replace(permitted=(state,)).is_met(each) for each in permitted)
        for state in rights.states
    )
