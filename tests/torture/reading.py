"""The reads of a random reader: latest, many, joined, ranges, histories, as of a time; noted by key."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.servers.own import CLOCK
from tests.torture.configurations import PLAIN, Configuration
from tests.torture.found import Question, Scan, draw_question
from tests.torture.sources import STORE, Found, as_of_both

from keylane.errors import BadRequest, HistoryTooShort, KeylaneError
from keylane.query.conditions import PREFIX, Asked

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from tests.torture.sources import Source

    from keylane.model.records import Answer, HistoryEntry, Position

MANY = 20
_MOST_PAGES = 30
_OF_GROUP = 0.3
"""How many finds are of keys that share what stands before the `_`."""
_BACK_MS = 2_000
"""Reads as of a time go back so far."""


class Seen(NamedTuple):
    """What one read says of a key, or its error. `waited_for`: its min_position.

    Times in monotonic seconds, `ended_ms` by the wall clock. `exact`: the read is of one moment; others are
    as new as their watermark or newer. `entries`: a history, newest first. `as_of_ms`: it is as of then.
    `counts`: what a view counts of the key, by start and end of the window. `source`: see `Source.name`.
    `is_of_lane`: as in `Found`. `scan`: what was found by fields.
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
    source: str = STORE
    is_of_lane: bool = True
    scan: Scan | None = None

    @property
    def is_wide(self) -> bool:
        """Whether the read met the lanes of other keys too."""
        return self.kind in ("many", "range", "view", "find", "count")


class Reads:
    """One reader's reads."""

    def __init__(self, number: int, source: Source, configuration: Configuration) -> None:
        self._number = number
        self._source = source
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
            separator = source.choice((b"-", b"_")) if b"_" in key else b"-"
            prefix = key.partition(separator)[0] + separator
            alike = [each for each in of_topic if each.startswith(prefix)]
            ways.append(lambda: self._range(topic, prefix, alike, source.choice((None, key)), limit))
        if options.has_history:
            at_ms = CLOCK.now_ms() - source.randrange(_BACK_MS)
            ways += [lambda: self._history(topic, key), lambda: self._as_of(topic, key, at_ms)]
        if options.fields:
            limit = source.choice((3, 20, 200))
            ways.append(lambda: self._find(source, topic, of_topic, limit))
        if topic == PLAIN:
            ways += [functools.partial(self._windows, view, key) for view in self._views]
        return source.choice(ways)()

    def read_one(self, topic: str, key: bytes, position: Position | None = None) -> Seen:
        """Read the latest record of a key, which may be awaited."""
        seen = self._timed("latest", topic, key)
        try:
            found = self._source.latest(topic, key, position)
        except KeylaneError as error:
            return seen(error=error)._replace(waited_for=position)
        return seen(found)._replace(waited_for=position)

    def await_one(self, source: random.Random, topic: str, key: bytes, position: Position) -> list[Seen]:
        """Read a key as of a position, at times by a find of its record."""
        if not self._shapes[topic].options.fields or source.random() < 0.5:
            return [self.read_one(topic, key, position)]
        run = key.partition(b"-")[0].decode()
        question = Question((Asked("status", PREFIX, f"{run}-"),), prefix=key.decode())
        whole = self._timed("find", topic, key)
        try:
            page = self._source.find(topic, question, [key], MANY, None, position)
        except KeylaneError as error:
            return [whole(error=error)._replace(waited_for=position)]
        rows = [whole(found)._replace(key=name, waited_for=position) for name, found in page.rows]
        absent = (
            () if rows else [whole(found)._replace(waited_for=position) for found in page.absent.values()]
        )
        return [whole()._replace(scan=Scan(question, rows, absent, is_whole=page.next_after is None))]

    def _joinable(self, topic: str) -> list[str]:
        """The topics with the same lanes, this one first."""
        own = self._shapes[topic]
        alike = [shape.name for shape in self._shapes.values() if shape.lanes == own.lanes and shape != own]
        return [topic, *alike]

    def _many(self, topic: str, keys: list[bytes]) -> list[Seen]:
        seen = self._timed("many", topic, keys[0])
        try:
            found = self._source.many(topic, keys)
        except KeylaneError as error:
            return [seen(error=error)]
        return [seen(found[key])._replace(key=key) for key in keys]

    def _joined(self, topics: list[str], key: bytes) -> list[Seen]:
        seen = self._timed("join", topics[0], key)
        try:
            found = self._source.joined(topics, key)
        except BadRequest:
            # A layout that was switched has other stripes: its topic can't be joined with the others.
            return []
        except KeylaneError as error:
            return [seen(error=error)]
        return [seen(each)._replace(topic=topic) for topic, each in zip(topics, found, strict=True)]

    def _range(
        self, topic: str, prefix: bytes, known: list[bytes], after: bytes | None, limit: int
    ) -> list[Seen]:
        """A page of keys with a prefix: it says of each key in it what is there, or that nothing is."""
        asked = [key for key in known if after is None or key > after]
        seen = self._timed("range", topic, known[0])
        try:
            page = self._source.page(topic, prefix, after, asked, limit)
        except KeylaneError as error:
            return [seen(error=error)]
        return [
            seen(found)._replace(key=key)
            for key, found in sorted(page.found.items())
            if page.end is None or key <= page.end
        ]

    def _history(self, topic: str, key: bytes) -> list[Seen]:
        seen = self._timed("history", topic, key)
        try:
            found, entries = self._source.history(topic, key)
        except KeylaneError as error:
            return [seen(error=error)]
        return [seen(found)._replace(entries=tuple(entries))]

    def _as_of(self, topic: str, key: bytes, at_ms: int) -> list[Seen]:
        seen = self._timed("as of", topic, key)
        try:
            found = self._source.as_of(topic, key, at_ms)
        except HistoryTooShort:
            return []
        except KeylaneError as error:
            return [seen(error=error)]
        return [seen(found)._replace(as_of_ms=at_ms)]

    def _find(self, source: random.Random, topic: str, known: list[bytes], limit: int) -> list[Seen]:
        """All pages of a question about the keys of one schedule, or the first ones.

        Only some of the keys that no page has are noted: a schedule may take minutes.
        """
        run = known[0].partition(b"-")[0].decode()
        question = draw_question(source, run, CLOCK.now_ms())
        group, has_group, _ = source.choice(known).partition(b"_")
        if has_group and source.random() < _OF_GROUP:
            question = question._replace(prefix=f"{group.decode()}_")
            known = list(filter(question.span.has, known))
        noted = source.sample(known, min(MANY, len(known)))
        whole = self._timed("find", topic, known[0])
        rows: list[Seen] = []
        absent: dict[bytes, Found] = {}
        after = None
        for _ in range(_MOST_PAGES):
            seen = self._timed("find", topic, known[0])
            try:
                page = self._source.find(topic, question, noted, limit, after)
            except KeylaneError as error:
                return [whole()._replace(scan=Scan(question, rows, (), is_whole=False)), seen(error=error)]
            rows += [seen(found)._replace(key=key) for key, found in page.rows]
            absent |= {key: as_of_both(absent.get(key), found) for key, found in page.absent.items()}
            after = page.next_after
            if after is None:
                break
        keys = {row.key for row in rows}
        others = [whole(found)._replace(key=key) for key, found in absent.items() if key not in keys]
        return [whole()._replace(scan=Scan(question, rows, others, is_whole=after is None))]

    def _windows(self, view: str, key: bytes) -> list[Seen]:
        seen = self._timed("view", PLAIN, key)
        try:
            counts = self._source.windows(view, key)
        except KeylaneError as error:
            return [seen(error=error)]
        return [seen()._replace(view=view, counts=counts)]

    def _timed(self, kind: str, topic: str, key: bytes) -> Callable[..., Seen]:
        """Begin a read; returns what makes an observation of its result."""
        began_s = time.monotonic()

        def end(found: Found | None = None, error: KeylaneError | None = None) -> Seen:
            ended_s, ended_ms = time.monotonic(), CLOCK.now_ms()
            return Seen(
                self._number,
                topic,
                key,
                began_s,
                ended_s,
                found.answer if found else None,
                error,
                ended_ms=ended_ms,
                kind=kind,
                exact=found.is_exact if found else True,
                source=self._source.name,
                is_of_lane=found.is_of_lane if found else True,
            )

        return end
