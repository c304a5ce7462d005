"""Topics in a fake state, as the job leaves them there, and a warm function that reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.builders import (
    NOW_MS,
    TERMS,
    a_watermark,
    in_part,
    lane_of,
    layout_entry,
    value_entry,
    value_key,
)
from tests.support.fakes import FakeState, FakeTime

from keylane.query.history import HistoryPage, read_as_of, read_history
from keylane.query.history_entries import HistoryScan
from keylane.query.join import read_joined
from keylane.query.key_count import KeyCount, read_key_count
from keylane.query.latest import Wait, read_latest
from keylane.query.layouts import Layouts
from keylane.query.multi_get import read_many
from keylane.query.ranges import RangePage, read_range
from keylane.query.span import RangeScan, Span
from keylane.query.store import Store
from keylane.state import codec, redis_keys
from keylane.state.lanes import lanes_of_topic

if TYPE_CHECKING:
    from keylane.model.records import Answer, Layout, Position
    from keylane.query.store import ReadTerms, Watermarks

TTL_S = 30
"""Of a layout that was read."""


class Reader:
    """One warm function: its state, its clock, its cached layouts."""

    def __init__(self, *entries: dict[bytes, bytes], state: FakeState | None = None) -> None:
        self.state = state or FakeState()
        self.put(*entries)
        self.time = FakeTime(NOW_MS)
        self.store = Store(self.state, Layouts(self.state, self.time.clock, TTL_S), self.time.clock)

    def put(self, *entries: dict[bytes, bytes]) -> None:
        for each in entries:
            self.state.entries |= each

    def latest(self, topic: str, key: bytes, **arguments: Any) -> Answer:
        """`arguments`: fields of ReadTerms and of Wait."""
        terms = _taken_terms(arguments)
        return read_latest(self.store, topic, key, terms, Wait(**arguments))

    def many(
        self, topic: str, keys: list[bytes], *, atomic: bool = False, **terms: Any
    ) -> tuple[list[tuple[bytes, bytes | None]], Watermarks]:
        """Return the keys with their values, and what they were read from."""
        found, watermarks = read_many(self.store, topic, keys, TERMS._replace(**terms), atomic=atomic)
        records = {key: answer.record for lane in found for key, answer in lane.rows()}
        return [(key, each.value if (each := records[key]) else None) for key in keys], watermarks

    def join(self, *topics: str, key: bytes = b"k", atomic: bool = True, **terms: Any) -> list[Answer]:
        return read_joined(self.store, topics, key, TERMS._replace(**terms), atomic=atomic)


def _taken_terms(arguments: dict[str, Any]) -> ReadTerms:
    """Take the fields of ReadTerms out of `arguments`."""
    return TERMS._replace(**{name: arguments.pop(name) for name in TERMS._fields if name in arguments})


class StoredTopic(Reader):
    """A topic whose lanes have watermarks, and their keys an index, as the writer leaves them."""

    def __init__(self, layout: Layout, *keys: bytes, state: FakeState | None = None) -> None:
        super().__init__(state=state)
        self.publish(layout)
        self.add(*keys)

    def publish(self, layout: Layout) -> None:
        """Make this the topic's layout. The lanes of one before it stay as they are."""
        self.layout = layout
        self.put(layout_entry(layout))
        self.mark(layout)

    def mark(self, layout: Layout, *numbers: int, **fields: Any) -> None:
        """Write the watermarks of a layout's lanes, or of those with these numbers."""
        for number, lane in enumerate(lanes_of_topic(layout)):
            if number in numbers or not numbers:
                self.state.entries[lane.watermark_key] = codec.encode_watermark(a_watermark(**fields))

    def supersede(self, layout: Layout) -> None:
        """Have its lanes say that there is a newer layout."""
        self.mark(layout, superseded=True)

    def add(self, *keys: bytes, value: bytes | None = b"v", expires_ms: int | None = None) -> None:
        """Write a record under each key."""
        for key in keys:
            partition, stripe, tag = lane_of(self.layout, key)
            name = tag, self.layout.topic, self.layout.generation
            self._score(redis_keys.index_key(*name, partition, stripe), key, 0)
            if expires_ms is not None:
                self._score(redis_keys.lane_key(*name, b"x", b"%d.%d" % (partition, stripe)), key, expires_ms)
            self.put(value_entry(self.layout, key, value, offset=1, timestamp_ms=NOW_MS))

    def drop(self, key: bytes) -> None:
        """Let a key's time be over; its name is still in the index."""
        del self.state.entries[value_key(self.layout, key)]

    def page(self, span: Span | None = None, **arguments: Any) -> RangePage:
        """`arguments`: fields of ReadTerms and of RangeScan."""
        terms = _taken_terms(arguments)
        scan = RangeScan(span or Span(), **{"limit": 100, **arguments})
        return read_range(self.store, self.layout.topic, scan, terms)

    def count(self, **terms: Any) -> KeyCount:
        return read_key_count(self.store, self.layout.topic, TERMS._replace(**terms))

    def history(self, key: bytes, **arguments: Any) -> HistoryPage:
        """`arguments`: fields of ReadTerms and of HistoryScan."""
        terms = _taken_terms(arguments)
        scan = HistoryScan(**{"limit": 100, **arguments})
        return read_history(self.store, self.layout.topic, key, scan, terms)

    def as_of(self, key: bytes, moment: int | Position, **terms: Any) -> Answer:
        return read_as_of(self.store, self.layout.topic, key, moment, TERMS._replace(**terms))

    def _score(self, name: bytes, key: bytes, score: int) -> None:
        part = in_part(name, key, self.layout.options.index)
        self.state.sorted_sets.setdefault(part, {})[key] = score
