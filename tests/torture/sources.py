"""Where a reader reads from: the layer's functions over a store of its own, or the standing server."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from tests.servers.own import CLOCK

from keylane.adapters.kafka.admin import KafkaAdmin, ReaderSettings
from keylane.adapters.kafka.reader import KafkaReader
from keylane.errors import KeylaneError, PositionNotReached, Unavailable
from keylane.model.records import Answer
from keylane.ports import WaitBudget
from keylane.query.changes import ChangeReader
from keylane.query.decoding import ValueDecoder
from keylane.query.find import find
from keylane.query.finder import FindScan
from keylane.query.history import read_as_of, read_history
from keylane.query.history_entries import HistoryScan
from keylane.query.join import read_joined
from keylane.query.lane_snapshot import LOG_TIMEOUT_MS
from keylane.query.latest import Wait, read_latest
from keylane.query.layouts import Layouts
from keylane.query.multi_get import read_logged, read_many
from keylane.query.ranges import read_range
from keylane.query.span import RangeScan, Span
from keylane.query.store import ReadTerms, Store
from keylane.query.views import WindowScan, read_windows
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.torture.found import Question
    from tests.torture.stack import TortureStack

    from keylane.model.records import HistoryEntry, Position
    from keylane.ports import Clock, State
    from keylane.query.store import Watermarks

T = TypeVar("T")
TIMEOUT_MS = 3_000
"""The timeout of one read: more than a function's second, because Spark takes most of the processors."""
WAIT_MS = 120_000
_PAUSE_S = 0.01
TERMS = ReadTerms(timeout_ms=TIMEOUT_MS)
LAYOUT_TTL_S = 0.3
STORE, SERVER = "store", "server"
Counts = dict[tuple[int | None, int | None], int]
_WHOLE = HistoryScan(limit=10_000)


class NoAnswer(KeylaneError):
    """The connection broke before there was an answer."""


class Found(NamedTuple):
    """What a read says of a key. `is_exact`: its answer is of one moment.

    `is_of_lane`: the watermark is that of the key's lane, and not the least of several.
    """

    answer: Answer
    is_exact: bool = True
    is_of_lane: bool = True


class Page(NamedTuple):
    """A page of keys in order: of these keys, and of all that were asked about and lie in it."""

    found: Mapping[bytes, Found]
    end: bytes | None
    """Nothing is known of keys behind this one; None where the page is the last one."""


class FoundPage(NamedTuple):
    """A page of records found by their fields, and what it says of keys that are in no page.

    `next_after`: what the next page begins behind; None where there is none.
    """

    rows: Sequence[tuple[bytes, Found]]
    absent: Mapping[bytes, Found]
    next_after: Any


class Source(Protocol):
    """What reads can be asked of. Each raises KeylaneError."""

    name: str

    def latest(self, topic: str, key: bytes, position: Position | None) -> Found:
        """The latest record of a key, as of a position of the topic or later."""

    def many(self, topic: str, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        """The latest records of keys."""

    def joined(self, topics: Sequence[str], key: bytes) -> Sequence[Found]:
        """The latest record of a key in each topic, at one moment."""

    def page(
        self, topic: str, prefix: bytes, after: bytes | None, known: Sequence[bytes], limit: int
    ) -> Page:
        """The first keys with a prefix, behind one; `known`: those of which absence is an answer, too."""

    def history(self, topic: str, key: bytes) -> tuple[Found, Sequence[HistoryEntry]]:
        """A key's records, newest first, with an answer that says how fresh they are."""

    def as_of(self, topic: str, key: bytes, at_ms: int) -> Found:
        """The record that was valid at a time."""

    def windows(self, view: str, key: bytes) -> Counts:
        """What a view counts of a key, by start and end of the window."""

    def find(
        self,
        topic: str,
        question: Question,
        known: Sequence[bytes],
        limit: int,
        after: Any,
        position: Position | None = None,
    ) -> FoundPage:
        """A page of the records that answer a question, as of a position of the topic or later.

        `known`: the keys whose absence counts.
        """


class StoreSource:
    """The functions of `keylane.query`, over a state that nobody else reads with."""

    name = STORE

    def __init__(self, state: State) -> None:
        self.store = Store(state, Layouts(state, CLOCK, LAYOUT_TTL_S), CLOCK)

    def latest(self, topic: str, key: bytes, position: Position | None) -> Found:
        return Found(read_latest(self.store, topic, key, TERMS, Wait(position, WAIT_MS if position else 0)))

    def many(self, topic: str, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        lanes, _ = read_many(self.store, topic, keys, TERMS)
        return {key: Found(answer) for lane in lanes for key, answer in lane.rows()}

    def joined(self, topics: Sequence[str], key: bytes) -> Sequence[Found]:
        return [Found(answer) for answer in read_joined(self.store, topics, key, TERMS)]

    def page(
        self, topic: str, prefix: bytes, after: bytes | None, known: Sequence[bytes], limit: int
    ) -> Page:
        scan = RangeScan(Span.of_prefix(prefix), limit=limit, after=after)
        page = read_range(self.store, topic, scan, TERMS)
        answers = {key: answer for key, answer in page.rows if isinstance(answer, Answer)}
        answers = {key: _absent(page.watermarks, key) for key in known} | answers
        return Page({key: Found(answer, is_exact=False) for key, answer in answers.items()}, page.next_after)

    def history(self, topic: str, key: bytes) -> tuple[Found, Sequence[HistoryEntry]]:
        page = read_history(self.store, topic, key, _WHOLE, TERMS)
        return Found(_absent(page.watermarks, key), is_exact=False), page.entries

    def as_of(self, topic: str, key: bytes, at_ms: int) -> Found:
        return Found(read_as_of(self.store, topic, key, at_ms, TERMS), is_exact=False)

    def windows(self, view: str, key: bytes) -> Counts:
        page = read_windows(self.store, WindowScan(view, key, limit=1_000), TERMS)
        return {
            (window.start_ms, window.end_ms): int(json.loads(window.columns)["n"]) for window in page.rows
        }

    def find(
        self,
        topic: str,
        question: Question,
        known: Sequence[bytes],
        limit: int,
        after: Any,
        position: Position | None = None,
    ) -> FoundPage:
        wait_ms = WAIT_MS if position else 0
        scan = FindScan(question.asked, question.order, limit, after, position, wait_ms, question.span)
        page = awaited(position, lambda: find(self.store, topic, scan, TERMS, lambda _, record: record))
        absent = {key: Found(_absent(page.watermarks, key), is_exact=False) for key in known}
        rows = [(key, Found(answer, is_exact=False)) for key, answer in page.rows]
        return FoundPage(rows, absent, page.next_after)


def awaited(position: Position | None, ask: Callable[[], T]) -> T:
    """Ask, again while a client would if there is a position."""
    until_s = time.monotonic() + WAIT_MS / 1000
    while True:
        try:
            return ask()
        except (Unavailable, PositionNotReached):
            if position is None or time.monotonic() > until_s:
                raise
            time.sleep(_PAUSE_S)


def as_of_both(before: Found | None, found: Found) -> Found:
    """What a page says of a key, and the one before: each is as of its own watermarks, which may go back."""
    if before is None:
        return found
    least = before.answer.watermark.least(found.answer.watermark)
    return found._replace(answer=found.answer._replace(watermark=least))


def read_key(store: Store, topic: str, key: bytes) -> Answer:
    """The latest record of a key; of the empty one, which no request can name, as streams read it."""
    if key:
        return read_latest(store, topic, key, TERMS)
    lanes, _ = read_logged(store, topic, [key], TERMS)
    return next(answer for lane in lanes for _, answer in lane.rows())


def _absent(watermarks: Watermarks, key: bytes) -> Answer:
    """The answer that a page gives for a key which is not in it."""
    lane = lane_of_key(watermarks.layout, key)
    return Answer(watermarks.layout, lane.partition, None, watermarks.by_lane[lane])


@contextlib.contextmanager
def change_reader(stack: TortureStack, clock: Clock = CLOCK) -> Iterator[ChangeReader]:
    """Yield a reader of changes with connections of its own. No topic has a schema."""
    state = stack.reader_state()
    log = KafkaReader(KafkaAdmin(ReaderSettings(stack.kafka.bootstrap, LOG_TIMEOUT_MS)))
    store = Store(state, Layouts(state, clock, LAYOUT_TTL_S), clock)
    try:
        yield ChangeReader(store, lambda: log, lambda **_: ValueDecoder(_no_schemas, WaitBudget(0, clock)))
    finally:
        log.close()
        state.close()


def _no_schemas():
    raise AssertionError("no topic has a schema")
