"""The reads of a random reader: latest, many, joined, ranges, histories, as of a time; noted by key."""

from __future__ import annotations

import functools
import json
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.own import CLOCK
from tests.torture.configurations import PLAIN, Configuration

from keylane.errors import BadRequest, HistoryTooShort, KeylaneError
from keylane.model.records import Answer
from keylane.query.as_of import HistoryScan
from keylane.query.history import read_as_of, read_history
from keylane.query.join import read_joined
from keylane.query.latest import Wait, read_latest
from keylane.query.multi_get import read_many
from keylane.query.range_rows import RangeScan
from keylane.query.ranges import read_range
from keylane.query.span import Span
from keylane.query.store import ReadTerms
from keylane.query.views import WindowScan, read_windows
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from keylane.model.records import HistoryEntry, Position
    from keylane.query.store import Store, Watermarks

TIMEOUT_MS = 3_000
"""The timeout of one read: more than a function's second, because Spark takes most of the processors."""
WAIT_MS = 120_000
TERMS = ReadTerms(timeout_ms=TIMEOUT_MS)
MANY = 20
WHOLE = HistoryScan(limit=10_000)
_BACK_MS = 2_000
"""Reads as of a time go back so far."""


class Seen(NamedTuple):
    """What one read says of a key, or its error. `waited_for`: its min_position.

    Times in monotonic seconds, `ended_ms` by the wall clock. `exact`: the read is of one moment; others are
    as new as their watermark or newer. `entries`: a history, newest first. `as_of_ms`: it is as of then.
    `counts`: what a view counts of the key, by start and end of the window.
    """

    reader: int
    topic: str
    key: bytes
    began_s: float
    ended_s: float
    answer: Answer | None
    error: KeylaneError | None
    waited_for: Position | None = None
    ended_ms: int = 0
    kind: str = "latest"
    exact: bool = True
    entries: tuple[HistoryEntry, ...] | None = None
    as_of_ms: int | None = None
    view: str = ""
    counts: Mapping[tuple[int | None, int | None], int] | None = None

    @property
    def is_wide(self) -> bool:
        """Whether the read met the lanes of other keys too."""
        return self.kind in ("many", "range", "view")


class Reads:
    """One reader's reads."""

    def __init__(self, number: int, store: Store, configuration: Configuration) -> None:
        self._number = number
        self._store = store
        self._shapes = {shape.name: shape for shape in configuration.shapes}
        self._views = configuration.views

    def read_any(self, source: random.Random, keys: Sequence[tuple[str, bytes]]) -> list[Seen]:
        """Read one of the keys in a way that its topic allows; half of the reads are the simplest."""
        topic, key = source.choice(keys)
        if source.random() < 0.5:
            return [self.read_one(topic, key)]
        options = self._shapes[topic].options
        of_topic = sorted(each for name, each in keys if name == topic)
        ways: list[Callable[[], list[Seen]]] = [
            lambda: self._many(topic, source.sample(of_topic, min(MANY, len(of_topic)))),
            lambda: self._joined(self._joinable(topic), key),
        ]
        if options.index:
            limit = source.choice((5, 50, 1_000))
            ways.append(lambda: self._range(topic, of_topic, source.choice((None, key)), limit))
        if options.has_history:
            at_ms = CLOCK.now_ms() - source.randrange(_BACK_MS)
            ways += [lambda: self._history(topic, key), lambda: self._as_of(topic, key, at_ms)]
        if topic == PLAIN:
            ways += [functools.partial(self._windows, view, key) for view in self._views]
        return source.choice(ways)()

    def read_one(self, topic: str, key: bytes, position: Position | None = None) -> Seen:
        """Read the latest record of a key, which may be awaited."""
        seen = self._timed("latest", topic, key)
        try:
            wait = Wait(position, WAIT_MS if position else 0)
            answer = read_latest(self._store, topic, key, TERMS, wait)
        except KeylaneError as error:
            return seen(error=error)._replace(waited_for=position)
        return seen(answer)._replace(waited_for=position)

    def _joinable(self, topic: str) -> list[str]:
        """The topics with the same lanes, this one first."""
        own = self._shapes[topic]
        alike = [
            shape.name
            for shape in self._shapes.values()
            if (shape.partitions, shape.stripes) == (own.partitions, own.stripes) and shape != own
        ]
        return [topic, *alike]

    def _many(self, topic: str, keys: list[bytes]) -> list[Seen]:
        seen = self._timed("many", topic, keys[0])
        try:
            lanes, _ = read_many(self._store, topic, keys, TERMS)
        except KeylaneError as error:
            return [seen(error=error)]
        answers = dict(row for lane in lanes for row in lane.rows())
        return [seen(answers[key])._replace(key=key) for key in keys]

    def _joined(self, topics: list[str], key: bytes) -> list[Seen]:
        seen = self._timed("join", topics[0], key)
        try:
            answers = read_joined(self._store, topics, key, TERMS)
        except BadRequest:
            # A layout that was switched has other stripes: its topic can't be joined with the others.
            return []
        except KeylaneError as error:
            return [seen(error=error)]
        return [seen(answer)._replace(topic=topic) for topic, answer in zip(topics, answers, strict=True)]

    def _range(self, topic: str, known: list[bytes], after: bytes | None, limit: int) -> list[Seen]:
        """A page of the keys of one schedule: it says of each key in it what is there, or that nothing is."""
        prefix = known[0].partition(b"/")[0] + b"/"
        seen = self._timed("range", topic, known[0])
        try:
            page = read_range(
                self._store, topic, RangeScan(Span.of_prefix(prefix), limit=limit, after=after), TERMS
            )
        except KeylaneError as error:
            return [seen(error=error)]
        found = {key: answer for key, answer in page.rows if isinstance(answer, Answer)}
        covered = [
            key
            for key in known
            if (after is None or key > after) and (page.next_after is None or key <= page.next_after)
        ]
        return [
            seen(found.get(key) or _absent(page.watermarks, key))._replace(key=key, exact=False)
            for key in sorted({*covered, *found})
        ]

    def _history(self, topic: str, key: bytes) -> list[Seen]:
        seen = self._timed("history", topic, key)
        try:
            page = read_history(self._store, topic, key, WHOLE, TERMS)
        except KeylaneError as error:
            return [seen(error=error)]
        answer = _absent(page.watermarks, key)
        return [seen(answer)._replace(exact=False, entries=tuple(page.entries))]

    def _as_of(self, topic: str, key: bytes, at_ms: int) -> list[Seen]:
        seen = self._timed("as of", topic, key)
        try:
            answer = read_as_of(self._store, topic, key, at_ms, TERMS)
        except HistoryTooShort:
            return []
        except KeylaneError as error:
            return [seen(error=error)]
        return [seen(answer)._replace(exact=False, as_of_ms=at_ms)]

    def _windows(self, view: str, key: bytes) -> list[Seen]:
        seen = self._timed("view", PLAIN, key)
        try:
            page = read_windows(self._store, WindowScan(view, key, limit=1_000), TERMS)
        except KeylaneError as error:
            return [seen(error=error)]
        counts = {
            (window.start_ms, window.end_ms): int(json.loads(window.columns)["n"]) for window in page.rows
        }
        return [seen()._replace(view=view, counts=counts)]

    def _timed(self, kind: str, topic: str, key: bytes) -> Callable[..., Seen]:
        """Begin a read; returns what makes an observation of its result."""
        began_s = time.monotonic()

        def end(answer: Answer | None = None, error: KeylaneError | None = None) -> Seen:
            ended_s, ended_ms = time.monotonic(), CLOCK.now_ms()
            return Seen(
                self._number, topic, key, began_s, ended_s, answer, error, ended_ms=ended_ms, kind=kind
            )

        return end


def _absent(watermarks: Watermarks, key: bytes) -> Answer:
    """The answer that a page gives for a key which is not in it."""
    lane = lane_of_key(watermarks.layout, key)
    return Answer(watermarks.layout, lane.partition, None, watermarks.by_lane[lane])
