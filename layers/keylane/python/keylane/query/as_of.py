"""Reads what a lane stores of a key's history: a page of it, or the record as of a time or a position.

A history is ordered by timestamp and, within a timestamp, by offset. The latest record of a key is the last
one of its partition, whatever its timestamp. As of a time that is not before the latest record's, that is the
record; before it, the newest one of the history, at ties by the rule for the latest record.

A read says what the history no longer holds, and never guesses. A history by count holds everything until it
is full. A history by age holds all records that are younger, and the newest of those that are older. Records
that Kafka had lost before the state was built were never in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from keylane.errors import CorruptState, HistoryTooShort, TooLarge
from keylane.model.keys import printable
from keylane.model.records import HistoryEntry, Layout, Position, Record
from keylane.ports import Call
from keylane.query.store import Reading
from keylane.state import codec, redis_keys
from keylane.state.lanes import Lane, decode_value

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


class _Found(NamedTuple):
    """What was found of a key: the newest entry of its history, their number, the latest record's head."""

    newest: HistoryEntry | None
    entry_count: int
    head: codec.RecordHead | None

    def is_before_latest(self, as_of_ms: int) -> bool:
        """Return whether the latest record is later than a time, or is gone."""
        return self.head is None or self.head.timestamp_ms > as_of_ms


def read_as_of_time(
    reading: Reading, lanes: Mapping[bytes, Lane], as_of_ms: int
) -> dict[bytes, Record | HistoryTooShort | None]:
    """Return the record of each key of `lanes` (key -> its lane) as of a time, by the records' timestamps.

    None: the key had no record then. HistoryTooShort: the history does not reach back so far.
    """
    found = _find_newest(reading, lanes, as_of_ms)
    entries = {key: each.newest for key, each in found.items()}
    later = {key: entries[key] for key, each in found.items() if each.is_before_latest(as_of_ms)}
    entries |= _break_ties(reading, lanes, later)
    entries |= _read_latest(reading, lanes, found, as_of_ms)
    too_young = {key: lane for key, lane in lanes.items() if found[key].entry_count and not entries[key]}
    oldest = _read_oldest(reading, too_young)
    records: dict[bytes, Record | HistoryTooShort | None] = {}
    for key in lanes:
        entry = entries[key]
        if entry is not None:
            records[key] = _unless_expired(entry, reading.layout, as_of_ms)
        else:
            too_short = _too_short(reading, found[key].entry_count, oldest.get(key))
            records[key] = too_short if too_short and as_of_ms < too_short.since_ms else None
    return records


def _find_newest(reading: Reading, lanes: Mapping[bytes, Lane], as_of_ms: int) -> dict[bytes, _Found]:
    distinct = list(dict.fromkeys(lanes.values()))
    names = {key: _history_key(reading.layout, lane, key) for key, lane in lanes.items()}
    calls = [Call(lane.slot, (b"GET", lane.watermark_key)) for lane in distinct]
    for key, lane in lanes.items():
        newest = (b"ZREVRANGEBYSCORE", names[key], b"%d" % as_of_ms, b"-inf", b"LIMIT", b"0", b"1")
        calls += Call(lane.slot, newest), Call(lane.slot, (b"ZCARD", names[key])), _head_call(lane, key)
    replies = iter(reading.run(calls))
    for lane in distinct:
        reading.watermarks.note(lane, next(replies))
    expand = reading.expander()
    return {
        key: _Found(
            next((_decode(names[key], key, member, lane, expand) for member in next(replies)), None),
            next(replies),
            _decode_head(lane, key, next(replies)),
        )
        for key, lane in lanes.items()
    }


def _break_ties(
    reading: Reading, lanes: Mapping[bytes, Lane], entries: Mapping[bytes, HistoryEntry | None]
) -> dict[bytes, HistoryEntry]:
    """Return which of the entries of one timestamp wins, where there may be several partitions' of a key."""
    watermarks = reading.watermarks.by_lane
    mixed = {
        key: entry
        for key, entry in entries.items()
        if entry and lanes[key] in watermarks and watermarks[lanes[key]].has_strays
    }
    if not mixed:
        return {}
    names = {key: _history_key(reading.layout, lanes[key], key) for key in mixed}
    calls = []
    for key, entry in mixed.items():
        score = b"%d" % entry.timestamp_ms
        calls.append(Call(lanes[key].slot, (b"ZREVRANGEBYSCORE", names[key], score, score)))
    won: dict[bytes, HistoryEntry] = {}
    for (key, entry), members in zip(mixed.items(), reading.run(calls), strict=True):
        lane, expand = lanes[key], reading.expander()
        tied = [entry, *(_decode(names[key], key, member, lane, expand) for member in members)]
        won[key] = max(tied, key=partial(_rank_in, lane))
    return won


def _rank_in(lane: Lane, entry: HistoryEntry) -> tuple[bool, int, int]:
    """Of records of one timestamp the one with the highest rank is the newest."""
    at = entry.position
    return at.partition == lane.partition, -at.partition, at.offset


def _read_latest(
    reading: Reading, lanes: Mapping[bytes, Lane], found: Mapping[bytes, _Found], as_of_ms: int
) -> dict[bytes, HistoryEntry]:
    """Return the latest records that are not later than a time, where the histories end in other ones.

    They do where a key's time went back, or a history has no room for a record that is older than its others.
    """
    latest: dict[bytes, HistoryEntry] = {}
    unread: list[bytes] = []
    for key, each in found.items():
        head = each.head
        if head is None or each.is_before_latest(as_of_ms):
            continue
        if each.newest and each.newest.position == head.position:
            continue
        if head.is_tombstone:
            latest[key] = HistoryEntry(head.position, head.timestamp_ms, None)
        else:
            unread.append(key)
    for key, record in _read_values(reading, {key: lanes[key] for key in unread}).items():
        # Else it was replaced meanwhile, by one that is later than the time.
        if record is not None and record.timestamp_ms <= as_of_ms:
            latest[key] = HistoryEntry(record.position, record.timestamp_ms, record)
    return latest


def _read_values(reading: Reading, lanes: Mapping[bytes, Lane]) -> dict[bytes, Record | None]:
    calls = [Call(lane.slot, (b"GET", lane.value_prefix + key)) for key, lane in lanes.items()]
    replies = reading.run(calls) if calls else []
    expand = reading.expander()
    return {
        key: decode_value(lane, key, reply, expand)
        for (key, lane), reply in zip(lanes.items(), replies, strict=True)
    }


def _head_call(lane: Lane, key: bytes) -> Call:
    return Call(lane.slot, (b"GETRANGE", lane.value_prefix + key, b"0", b"%d" % (codec.HEAD_BYTES - 1)))


def _decode_head(lane: Lane, key: bytes, head: bytes) -> codec.RecordHead | None:
    try:
        return codec.decode_head(head, lane.partition) if head else None
    except codec.CodecError as error:
        raise CorruptState(printable(lane.value_prefix + key), str(error)) from error


def read_as_of_position(
    reading: Reading, lane: Lane, key: bytes, position: Position
) -> Record | HistoryTooShort | None:
    """Return the key's last record in a partition up to and including an offset.

    Reads all of the history: timestamps may decrease within a partition. For the same reason a record that
    the history no longer holds may be behind the last one that it has. So a history that is cut knows the
    record at this very position, and the latest one.
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
            oldest = _decode(name, key, member, lane, reading.expander())
            at = oldest.position
            if at.partition == position.partition and at.offset <= position.offset:
                best = oldest if best is None or at > best.position else best
        count += len(members)
    too_short = _too_short(reading, count, oldest)
    if too_short is None or (best is not None and best.position == position):
        return best.record if best is not None else None
    head = _decode_head(lane, key, reading.run([_head_call(lane, key)])[0])
    if head is None or head.position.partition != position.partition or head.position > position:
        return too_short
    if head.is_tombstone:
        return None
    record = _read_values(reading, {key: lane})[key]
    return record if record is not None and record.position == head.position else too_short


def absent_as_of(reading: Reading, lane: Lane, moment: int | Position) -> HistoryTooShort | None:
    """Return what is known of a key that never had a record, as of a time or a position; the lane is read."""
    reading.watermarks.note(lane, *reading.run([Call(lane.slot, (b"GET", lane.watermark_key))]))
    too_short = _too_short(reading, 0, None)
    if too_short and (isinstance(moment, Position) or moment < too_short.since_ms):
        return too_short
    return None


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
    entries = _decode_what_fits(reading, lane, key, kept)
    next_after = codec.history_order(kept[len(entries) - 1]) if len(entries) < len(found) else None
    return _once_each(entries), next_after


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


def _decode_what_fits(reading: Reading, lane: Lane, key: bytes, members: list[bytes]) -> list[HistoryEntry]:
    """Return the entries of as many members as fit into a page by their values, one at least."""
    name = _history_key(reading.layout, lane, key)
    entries: list[HistoryEntry] = []
    size_bytes = 0
    for member in members:
        entry = _decode(name, key, member, lane, reading.expander())
        size_bytes += max(len(member), len(entry.record.value) if entry.record else 0)
        if entries and size_bytes > PAGE_BYTES:
            break
        entries.append(entry)
    return entries


def _once_each(entries: list[HistoryEntry]) -> list[HistoryEntry]:
    """Return each record once: one that was written again may have been compressed otherwise.

    A set and a deletion at its position are two.
    """
    distinct: dict[tuple[Position, bool], HistoryEntry] = {}
    for entry in entries:
        distinct.setdefault((entry.position, entry.record is None), entry)
    return list(distinct.values())


def _history_key(layout: Layout, lane: Lane, key: bytes) -> bytes:
    return redis_keys.history_key(lane.tag, layout.topic, layout.generation, key)


def _decode(name: bytes, key: bytes, member: bytes, lane: Lane, expand: codec.Expand) -> HistoryEntry:
    try:
        return codec.decode_history_entry(key, member, lane.partition, expand)
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
    expand = reading.expander()
    return {
        key: _decode(names[key], key, members[0], lanes[key], expand)
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
