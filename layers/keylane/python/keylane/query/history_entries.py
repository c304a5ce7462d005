"""Reads pages of what a lane stores of a key's history.

It is ordered by timestamp, within a timestamp by offset, and then by partition: `codec.rank_of_order`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from keylane.errors import CorruptState, TooLarge
from keylane.model.keys import printable
from keylane.model.records import HistoryEntry, Layout, Position
from keylane.ports import Call
from keylane.query.store import Reading
from keylane.state import codec, redis_keys
from keylane.state.lanes import Lane

SCANNED_AT_ONCE = 200
PAGE_BYTES = 4 * 1024 * 1024
"""A page ends where its records are larger than this: base64 of them still fits into a Lambda's response."""
MOST_TIED_BYTES = 8 * PAGE_BYTES
"""Of records of one timestamp and offset, which are read together."""


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


def read_entries(
    reading: Reading, lane: Lane, key: bytes, scan: HistoryScan
) -> tuple[list[HistoryEntry], bytes | None]:
    """Return a page's entries, newest first, tombstones too, and where it ended: None at the end."""
    name = history_key_of(reading.layout, lane, key)
    found, is_end = _read_ranked(reading, lane, name, scan)
    kept = _first_that_fit(found[: scan.limit])
    entries = _decode_what_fits(reading, lane, key, kept)
    is_last = is_end and len(entries) == len(found)
    next_after = None if is_last else codec.history_order(kept[len(entries) - 1])
    return _once_each(entries), next_after


def _read_ranked(reading: Reading, lane: Lane, name: bytes, scan: HistoryScan) -> tuple[list[bytes], bool]:
    """Return at least as many members as a page has, newest first, and whether there are no more.

    Redis orders those of one timestamp and offset by their bytes: they are read together.
    """
    after = None if scan.after is None else codec.rank_of_order(scan.after, lane.partition)
    ranked: list[tuple[tuple[int, ...], bytes]] = []
    last: bytes | None = None
    seen = size_bytes = whole = 0
    is_over = False
    while not is_over and whole < scan.limit and (not whole or size_bytes <= PAGE_BYTES):
        count = min(scan.limit + 1 - whole, SCANNED_AT_ONCE)
        members, is_over = read_members(reading, lane, name, scan.scores, skip=seen, count=count)
        seen += len(members)
        rest, last = members_behind(members, last)
        for member in rest:
            rank = codec.rank_of_order(codec.history_order(member), lane.partition)
            # Records of one timestamp may be on both sides of the page's end.
            if after is None or rank < after:
                ranked.append((rank, member))
                size_bytes += len(member)
        whole = len(ranked) if is_over else _before_last_tie(ranked)
        if not whole and size_bytes > MOST_TIED_BYTES:
            raise TooLarge("answer", size_bytes, MOST_TIED_BYTES)
    ordered = sorted(ranked[:whole], key=itemgetter(0), reverse=True)
    return [member for _, member in ordered], is_over


def _before_last_tie(ranked: Sequence[tuple[tuple[int, ...], bytes]]) -> int:
    """Return how many come before those of the last one's timestamp and offset, which may go on."""
    count = len(ranked)
    while count and ranked[count - 1][0][:2] == ranked[-1][0][:2]:
        count -= 1
    return count


def read_members(
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


def members_behind(members: list[bytes], last: bytes | None) -> tuple[list[bytes], bytes | None]:
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
    name = history_key_of(reading.layout, lane, key)
    entries: list[HistoryEntry] = []
    size_bytes = 0
    for member in members:
        entry = decode_entry(name, key, member, lane, reading.expander())
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


def history_key_of(layout: Layout, lane: Lane, key: bytes) -> bytes:
    """Return the name in Redis of a key's history."""
    return redis_keys.history_key(lane.tag, layout.topic, layout.generation, key)


def decode_entry(name: bytes, key: bytes, member: bytes, lane: Lane, expand: codec.Expand) -> HistoryEntry:
    """Return the entry of a member of the history of this name. Raises CorruptState, and as `expand`."""
    try:
        return codec.decode_history_entry(key, member, lane.partition, expand)
    except codec.CodecError as error:
        raise CorruptState(printable(name), str(error)) from error
