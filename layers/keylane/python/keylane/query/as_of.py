"""Reads what a lane stores of a key's history: a page of it, or the record as of a time or a position.

A history is ordered by timestamp and, within a timestamp, by offset. A read says what the history no longer
holds, and never guesses. A history by count holds everything until it is full. A history by age holds all
records that are younger, and the newest of those that are older. Records that Kafka had lost before the state
was built were never in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.errors import CorruptState, HistoryTooShort, TooLarge
from keylane.model.keys import printable
from keylane.ports import Call
from keylane.state import codec, redis_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.model.records import HistoryEntry, Layout, Position, Record
    from keylane.query.store import Reading
    from keylane.state.lanes import Lane

SCANNED_AT_ONCE = 200
PAGE_BYTES = 4 * 1024 * 1024
"""A page ends where its records are larger than this: base64 of them still fits into a Lambda's response."""


@dataclass(frozen=True, slots=True)
class HistoryScan:
    """A page of a history: at most `limit` records from `from_ms` on and before `to_ms`, those after `after`.

    `after`: the `next_after` of the page before. Times in ms since 1970; None: without a bound.
    """

    limit: int
    from_ms: int | None = None
    to_ms: int | None = None
    after: bytes | None = None

    @property
    def scores(self) -> tuple[bytes, bytes]:
        """The highest and the lowest timestamp, as arguments of ZREVRANGEBYSCORE."""
        low = b"-inf" if self.from_ms is None else b"%d" % self.from_ms
        if self.after is not None:
            return b"%d" % codec.timestamp_of_order(self.after), low
        return b"+inf" if self.to_ms is None else b"(%d" % self.to_ms, low


def read_as_of_time(
    reading: Reading, lanes: Mapping[bytes, Lane], as_of_ms: int
) -> dict[bytes, Record | HistoryTooShort | None]:
    """Return the record of each key of `lanes` (key -> its lane) as of a time, by the records' timestamps.

    None: the key had no record then. HistoryTooShort: the history does not reach back so far.
    """
    distinct = list(dict.fromkeys(lanes.values()))
    names = {key: _history_key(reading.layout, lane, key) for key, lane in lanes.items()}
    calls = [Call(lane.slot, (b"GET", lane.watermark_key)) for lane in distinct]
    for key, lane in lanes.items():
        newest = (b"ZREVRANGEBYSCORE", names[key], b"%d" % as_of_ms, b"-inf", b"LIMIT", b"0", b"1")
        calls += Call(lane.slot, newest), Call(lane.slot, (b"ZCARD", names[key]))
    replies = reading.run(calls)
    for lane, watermark in zip(distinct, replies, strict=False):
        reading.watermarks.note(lane, watermark)
    members = dict(zip(lanes, replies[len(distinct) :: 2], strict=True))
    counts = dict(zip(lanes, replies[len(distinct) + 1 :: 2], strict=True))
    too_young = {key: lane for key, lane in lanes.items() if counts[key] and not members[key]}
    oldest = _read_oldest(reading, too_young)
    found: dict[bytes, Record | HistoryTooShort | None] = {}
    for key, lane in lanes.items():
        if members[key]:
            entry = _decode(names[key], key, members[key][0], lane)
            found[key] = _unless_expired(entry, reading.layout, as_of_ms)
        else:
            too_short = _too_short(reading, counts[key], oldest.get(key))
            found[key] = too_short if too_short and as_of_ms < too_short.since_ms else None
    return found


def read_as_of_position(
    reading: Reading, lane: Lane, key: bytes, position: Position
) -> Record | HistoryTooShort | None:
    """Return the key's last record in a partition up to and including an offset.

    Reads all of the history: timestamps may decrease within a partition.
    """
    name = _history_key(reading.layout, lane, key)
    best: HistoryEntry | None = None
    oldest: HistoryEntry | None = None
    count = seen = 0
    last: bytes | None = None
    is_over = False
    while not is_over:
        members, is_over = _read_members(
            reading, lane, name, (b"+inf", b"-inf"), skip=seen, count=SCANNED_AT_ONCE
        )
        seen += len(members)
        members, last = _behind(members, last)
        for member in members:
            oldest = _decode(name, key, member, lane)
            at = oldest.position
            if at.partition == position.partition and at.offset <= position.offset:
                best = oldest if best is None or at > best.position else best
        count += len(members)
    return best.record if best is not None else _too_short(reading, count, oldest)


def read_entries(
    reading: Reading, lane: Lane, key: bytes, scan: HistoryScan
) -> tuple[list[HistoryEntry], bytes | None]:
    """Return a page's entries, newest first, tombstones too, and where it ended: None at the end."""
    name = _history_key(reading.layout, lane, key)
    last = scan.after
    found: list[bytes] = []
    seen = size_bytes = 0
    is_over = False
    while not is_over and len(found) <= scan.limit and size_bytes <= PAGE_BYTES:
        count = min(scan.limit + 1 - len(found), SCANNED_AT_ONCE)
        members, is_over = _read_members(reading, lane, name, scan.scores, skip=seen, count=count)
        seen += len(members)
        # Records of one timestamp may be on both sides of the page's end.
        rest, last = _behind(members, last)
        found += rest
        size_bytes += sum(map(len, rest))
    kept = _first_that_fit(found[: scan.limit])
    next_after = codec.history_order(kept[-1]) if len(kept) < len(found) else None
    return [_decode(name, key, member, lane) for member in kept], next_after


def _read_members(
    reading: Reading, lane: Lane, name: bytes, scores: tuple[bytes, bytes], *, skip: int, count: int
) -> tuple[list[bytes], bool]:
    """Return up to `count` members, newest first, and whether there are no more; fewer of large ones."""
    while True:
        words = (b"ZREVRANGEBYSCORE", name, *scores, b"LIMIT", b"%d" % skip, b"%d" % count)
        calls = [Call(lane.slot, (b"GET", lane.watermark_key)), Call(lane.slot, words)]
        try:
            watermark, members = reading.run(calls)
        except TooLarge:
            if count == 1:
                raise
            count = max(1, count // 8)
            continue
        reading.watermarks.note(lane, watermark)
        return members, len(members) < count


def _behind(members: list[bytes], last: bytes | None) -> tuple[list[bytes], bytes | None]:
    """Return the members behind the last one that was read, and the order of the last of these.

    What is written between two rounds moves members down: the next round returns some of them again.
    """
    rest = [member for member in members if last is None or codec.history_order(member)[: len(last)] < last]
    return rest, codec.history_order(rest[-1]) if rest else last


def _first_that_fit(members: list[bytes]) -> list[bytes]:
    """Return as many members as fit into a page, one at least."""
    size_bytes = 0
    for number, member in enumerate(members):
        size_bytes += len(member)
        if number and size_bytes > PAGE_BYTES:
            return members[:number]
    return members


def _history_key(layout: Layout, lane: Lane, key: bytes) -> bytes:
    return redis_keys.history_key(lane.tag, layout.topic, layout.generation, key)


def _decode(name: bytes, key: bytes, member: bytes, lane: Lane) -> HistoryEntry:
    try:
        return codec.decode_history_entry(key, member, lane.partition)
    except codec.CodecError as error:
        raise CorruptState(printable(name), str(error)) from error


def _unless_expired(entry: HistoryEntry, layout: Layout, as_of_ms: int) -> Record | None:
    ttl_ms = layout.options.ttl_ms
    is_expired = ttl_ms is not None and entry.timestamp_ms + ttl_ms <= as_of_ms
    return None if is_expired else entry.record


def _read_oldest(reading: Reading, lanes: Mapping[bytes, Lane]) -> dict[bytes, HistoryEntry]:
    """Return the oldest entry of each key's history; keys whose history is gone are left out."""
    names = {key: _history_key(reading.layout, lane, key) for key, lane in lanes.items()}
    calls = [Call(lane.slot, (b"ZRANGE", names[key], b"0", b"0")) for key, lane in lanes.items()]
    replies = reading.run(calls) if calls else []
    return {
        key: _decode(names[key], key, members[0], lanes[key])
        for key, members in zip(lanes, replies, strict=True)
        if members
    }


def _too_short(reading: Reading, count: int, oldest: HistoryEntry | None) -> HistoryTooShort | None:
    """Return the error that says since when a history is known; None where it holds all of the key."""
    options = reading.layout.options
    is_full = options.history_count is not None and count >= options.history_count
    horizon_ms = None if options.history_age_ms is None else reading.now_ms - options.history_age_ms
    if oldest is None:
        since_ms = horizon_ms
    else:
        is_cut = horizon_ms is not None and oldest.timestamp_ms < horizon_ms
        since_ms = oldest.timestamp_ms if is_full or is_cut else None
    return None if since_ms is None else HistoryTooShort(reading.layout.topic, since_ms)
