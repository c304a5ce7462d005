"""Counts the keys of a topic that has an index."""

from dataclasses import dataclass

from keylane.errors import ScopeTooWide
from keylane.model.records import Layout
from keylane.ports import Call
from keylane.query.kept import check_index, read_kept
from keylane.query.range_rows import RangeReader
from keylane.query.scoped_index import exact_intervals
from keylane.query.span import RangeScan, Span
from keylane.query.store import Reading, ReadTerms, Store, Watermarks
from keylane.state import redis_keys
from keylane.state.field_index import KEYS
from keylane.state.lanes import Lane, index_keys, lanes_of_topic

MOST_READ = 5000
"""Records that a count reads where no index has exactly those that a caller may see."""


@dataclass(frozen=True, slots=True)
class KeyCount:
    """How many keys have a record, as of the watermarks."""

    count: int
    watermarks: Watermarks


def read_key_count(store: Store, topic: str, terms: ReadTerms) -> KeyCount:
    """Count the keys that have a record: one round trip to each node, whatever the number of keys.

    For a caller with a scope those of the permitted records: counted where an index of one value has them
    all, else read, MOST_READ of them at most.

    Raises NoIndex, UnknownTopic, LaneBuilding, StateTooOld, StateUnavailable, CorruptState, OutsideScope,
    ScopeTooWide.
    """
    count, reading = read_kept(store, topic, terms, _count, terms)
    return KeyCount(count, reading.watermarks)


def _count(reading: Reading, terms: ReadTerms) -> int:
    check_index(reading.layout)
    lanes = lanes_of_topic(reading.layout)
    if reading.scope is not None:
        return _count_permitted(reading, lanes, terms)
    calls: list[Call] = []
    for lane in lanes:
        # The watermark comes first: what is counted then is as new as it claims, or newer.
        calls.append(Call(lane.slot, (b"GET", lane.watermark_key)))
        calls += [Call(lane.slot, words) for words in count_commands(reading.layout, lane, reading.now_ms)]
    replies = reading.run(calls)
    step = len(calls) // len(lanes)
    for lane, watermark in zip(lanes, replies[::step], strict=True):
        reading.watermarks.note(lane, watermark)
    return sum(count for number, count in enumerate(replies) if number % step)


def _count_permitted(reading: Reading, lanes: list[Lane], terms: ReadTerms) -> int:
    scope = reading.scope
    assert scope is not None  # noqa: S101 - for the type checker
    intervals = None if reading.layout.options.ttl_ms else exact_intervals(scope)
    if intervals is not None:
        calls = []
        for lane in lanes:
            calls.append(Call(lane.slot, (b"GET", lane.watermark_key)))
            for index, low, high in intervals:
                parts = index_keys(reading.layout, lane, index)
                calls += [Call(lane.slot, (b"ZLEXCOUNT", part, low, high)) for part in parts]
        replies = reading.run(calls)
        step = len(calls) // len(lanes)
        for lane, watermark in zip(lanes, replies[::step], strict=True):
            reading.watermarks.note(lane, watermark)
        return sum(count for number, count in enumerate(replies) if number % step)
    scan = RangeScan(Span(), MOST_READ, keys_only=True)
    rows, next_after = RangeReader(reading, lanes, scan, terms).read()
    if next_after is not None:
        raise ScopeTooWide(reading.layout.topic)
    return len(rows)


def count_commands(layout: Layout, lane: Lane, now_ms: int) -> list[tuple[bytes, ...]]:
    """Return the commands that count a lane's keys, one for each part of its index."""
    if not layout.options.ttl_ms:
        return [(b"ZCARD", part) for part in index_keys(layout, lane, KEYS)]
    # The index may still have keys that have expired: a later write removes them. Their times tell.
    key = redis_keys.lane_key(lane.tag, layout.topic, layout.generation, b"x", str(lane).encode())
    since = b"%d" % now_ms
    return [(b"ZCOUNT", part, since, b"+inf") for part in redis_keys.parts_of(key, layout.options.index)]
