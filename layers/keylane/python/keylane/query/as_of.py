"""Reads the record of a key as of a time or a position from what its lane stores of its history.

The latest record of a key is the last one of its partition, whatever its timestamp. As of a time that is not
before the latest record's, that is the record; before it, the newest one of the history, at ties by the rule
for the latest record.

A read says what the history no longer holds, and never guesses. A history by count holds everything until it
is full. A history by age holds all records that are younger, and the newest of those that are older. Records
that Kafka had lost before the state was built were never in it.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from keylane.errors import CorruptState, HistoryTooShort
from keylane.model.keys import printable
from keylane.model.records import HistoryEntry, Layout, Position, Record
from keylane.ports import Call
from keylane.query.history_entries import (
    SCANNED_AT_ONCE,
    decode_entry,
    history_key_of,
    members_behind,
    read_members,
)
from keylane.query.store import Reading
from keylane.state import codec
from keylane.state.lanes import Lane, decode_value


class _Found(NamedTuple):
    """What was found of a key: the newest entry of its history, their number, the latest record's head."""

    newest: HistoryEntry | None
    entry_count: int
    head: codec.RecordHead | None

    def is_before_latest(self, as_of_ms: int) -> bool:
        """Return whether the latest record is later than a time, or is gone."""
        return self.head is None or self.head.timestamp_ms > as_of_ms

    def known_ms(self, now_ms: int) -> int:
        """Return a time as of which the key is known for certain: that of its latest record."""
        return now_ms if self.head is None else self.head.timestamp_ms

    @property
    def may_be_deleted(self) -> bool:
        """Return whether the newest entry is a set at whose position the key was deleted: see `carry`."""
        if self.newest is None or self.newest.record is None or self.head is None:
            return False
        return self.head.is_tombstone and self.newest.position == self.head.position


def read_as_of_time(
    reading: Reading, lanes: Mapping[bytes, Lane], as_of_ms: int
) -> dict[bytes, Record | HistoryTooShort | None]:
    """Return the record of each key of `lanes` (key -> its lane) as of a time, by the records' timestamps.

    None: the key had no record then. HistoryTooShort: the history does not reach back so far.
    """
    found = _find_newest(reading, lanes, as_of_ms)
    entries = {key: each.newest for key, each in found.items()}
    later = {key: entries[key] for key, each in found.items() if each.is_before_latest(as_of_ms)}
    deleted = {key: entries[key] for key, each in found.items() if key not in later and each.may_be_deleted}
    entries |= _break_ties(reading, lanes, later)
    entries |= _break_ties(reading, lanes, deleted, of_position=True)
    entries |= _read_latest(reading, lanes, found, as_of_ms)
    unsure = {key: lanes[key] for key in later if _may_be_replaced(lanes[key], entries[key])}
    too_young = {key: lane for key, lane in lanes.items() if found[key].entry_count and not entries[key]}
    oldest = _read_oldest(reading, unsure | too_young)
    records: dict[bytes, Record | HistoryTooShort | None] = {}
    for key in lanes:
        entry, first = entries[key], oldest.get(key)
        too_short = None
        if entry is None or (first and key in unsure and first.timestamp_ms == entry.timestamp_ms):
            too_short = _too_short(reading, found[key].entry_count, first)
        if too_short and entry:
            records[key] = HistoryTooShort(reading.layout.topic, found[key].known_ms(reading.now_ms))
        elif too_short and as_of_ms < too_short.since_ms:
            records[key] = too_short
        else:
            records[key] = None if entry is None else _unless_expired(entry, reading.layout, as_of_ms)
    return records


def _may_be_replaced(lane: Lane, entry: HistoryEntry | None) -> bool:
    """Return whether a history may have dropped a record of an entry's time that is newer as of that time.

    It has dropped lower offsets, and of one time the lane's own partition wins, whatever the offsets.
    """
    return entry is not None and entry.position.partition != lane.partition


def _find_newest(reading: Reading, lanes: Mapping[bytes, Lane], as_of_ms: int) -> dict[bytes, _Found]:
    distinct = list(dict.fromkeys(lanes.values()))
    names = {key: history_key_of(reading.layout, lane, key) for key, lane in lanes.items()}
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
            next((decode_entry(names[key], key, member, lane, expand) for member in next(replies)), None),
            next(replies),
            _decode_head(lane, key, next(replies)),
        )
        for key, lane in lanes.items()
    }


def _break_ties(
    reading: Reading,
    lanes: Mapping[bytes, Lane],
    entries: Mapping[bytes, HistoryEntry | None],
    *,
    of_position: bool = False,
) -> dict[bytes, HistoryEntry]:
    """Return which of the entries of one timestamp wins, where there may be several partitions' of a key.

    `of_position`: of those at the entry's position alone.
    """
    watermarks = reading.watermarks.by_lane
    mixed = {
        key: entry
        for key, entry in entries.items()
        if entry and lanes[key] in watermarks and watermarks[lanes[key]].has_strays
    }
    if not mixed:
        return {}
    names = {key: history_key_of(reading.layout, lanes[key], key) for key in mixed}
    calls = []
    for key, entry in mixed.items():
        score = b"%d" % entry.timestamp_ms
        calls.append(Call(lanes[key].slot, (b"ZREVRANGEBYSCORE", names[key], score, score)))
    won: dict[bytes, HistoryEntry] = {}
    for (key, entry), members in zip(mixed.items(), reading.run(calls), strict=True):
        lane, expand = lanes[key], reading.expander()
        tied = [entry, *(decode_entry(names[key], key, member, lane, expand) for member in members)]
        if of_position:
            tied = [each for each in tied if each.position == entry.position]
        won[key] = max(tied, key=partial(_rank_in, lane))
    return won


def _rank_in(lane: Lane, entry: HistoryEntry) -> tuple[bool, int, int, bool]:
    """Of records of one timestamp the one with the highest rank is the newest."""
    at = entry.position
    return at.partition == lane.partition, -at.partition, at.offset, entry.record is None


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
    name = history_key_of(reading.layout, lane, key)
    best: HistoryEntry | None = None
    oldest: HistoryEntry | None = None
    count = seen = 0
    last: bytes | None = None
    is_over = False
    while not is_over:
        members, is_over = read_members(
            reading, lane, name, (b"+inf", b"-inf"), skip=seen, count=SCANNED_AT_ONCE
        )
        seen += len(members)
        members, last = members_behind(members, last)
        for member in members:
            oldest = decode_entry(name, key, member, lane, reading.expander())
            at = oldest.position
            if at.partition == position.partition and at.offset <= position.offset:
                best = oldest if best is None or _rank_in(lane, oldest) > _rank_in(lane, best) else best
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


def _unless_expired(entry: HistoryEntry, layout: Layout, as_of_ms: int) -> Record | None:
    ttl_ms = layout.options.ttl_ms
    is_expired = ttl_ms is not None and entry.timestamp_ms + ttl_ms <= as_of_ms
    return None if is_expired else entry.record


def _read_oldest(reading: Reading, lanes: Mapping[bytes, Lane]) -> dict[bytes, HistoryEntry]:
    """Return the oldest entry of each key's history; keys whose history is gone are left out."""
    names = {key: history_key_of(reading.layout, lane, key) for key, lane in lanes.items()}
    calls = [Call(lane.slot, (b"ZRANGE", names[key], b"0", b"0")) for key, lane in lanes.items()]
    replies = reading.run(calls) if calls else []
    expand = reading.expander()
    return {
        key: decode_entry(names[key], key, members[0], lanes[key], expand)
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
