"""Reads members of an index of fields with the records that they belong to, in order, from all lanes.

A lane answers by one script: members, records and watermark are of one moment. So no record contradicts the
value by which it was found.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import total_ordering
from heapq import heappop, heappush
from itertools import groupby
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

from keylane.errors import CorruptState
from keylane.model.keys import printable
from keylane.ports import Call
from keylane.state import redis_keys
from keylane.state.ordered import END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.query.conditions import Drive
    from keylane.query.store import Reading
    from keylane.state.lanes import Lane

SCRIPT = b"""\
-- KEYS: the watermark. ARGV: what precedes a record's key, how many bytes of records are wanted, how many 00
-- precede the key in a member, the command; then for each sorted set its key, both bounds, the most members.
-- Returns the watermark; then for each set members, their records, 1 if it may have more.
local found, left = { redis.call('GET', KEYS[1]) }, tonumber(ARGV[2])
for at = 5, #ARGV, 4 do
  local most = tonumber(ARGV[at + 3])
  local members = redis.call(ARGV[4], ARGV[at], ARGV[at + 1], ARGV[at + 2], 'LIMIT', 0, most)
  local records, more, taken = {}, #members == most and 1 or 0, {}
  for number, member in ipairs(members) do
    if left <= 0 then
      more = 1
      break
    end
    local last = 0
    for _ = 1, tonumber(ARGV[3]) do
      last = string.find(member, '\\0', last + 1, true)
    end
    local record = redis.call('GET', ARGV[1] .. string.sub(member, last + 1))
    taken[number], records[number] = member, record
    left = left - #member - (record and #record or 0)
  end
  found[#found + 1], found[#found + 2], found[#found + 3] = taken, records, more
end
return found
"""
BYTES_OF_LANE = 1024 * 1024
"""A lane's answer has no more, but for its last record."""
LARGEST_BATCH = 500


class FoundMember(NamedTuple):
    """A member of an index.

    `value`: what precedes the key in it. `data`: the record's envelope, None where it has expired.
    """

    member: bytes
    value: bytes
    key: bytes
    lane: Lane
    data: bytes | None


@dataclass(slots=True)
class _FieldPart:
    """A part of a lane's index: what was read and not taken yet, and where the next batch begins."""

    lane: Lane
    index_key: bytes
    begin: bytes
    batch: int
    left: deque[tuple[bytes, bytes | None]] = field(default_factory=deque)
    is_exhausted: bool = False


@total_ordering
class _Descending(bytes):
    """Bytes in reverse order."""

    def __lt__(self, other: bytes) -> bool:
        return bytes.__gt__(self, other)

    __hash__ = bytes.__hash__


class FieldScan:
    """The members of an index, from all lanes in order. `wanted`: about how many will be taken."""

    def __init__(
        self,
        reading: Reading,
        lanes: Sequence[Lane],
        drive: Drive,
        *,
        is_descending: bool,
        after: bytes | None,
        wanted: int,
    ) -> None:
        self._reading = reading
        self._drive = drive
        self._is_descending = is_descending
        self._fields = len(drive.index.fields)
        begin, self._end = drive.bounds(is_descending=is_descending, after=after)
        options = reading.layout.options
        share = -(-wanted // (len(lanes) * options.index))
        batch = min(wanted, share + 3 * isqrt(share)) + 1
        self._sources = [
            _FieldPart(lane, key, begin, min(batch, LARGEST_BATCH))
            for lane in lanes
            for key in index_parts(reading, lane, drive)
        ]
        self._heap: list[tuple[bytes, int]] = []
        self._empty = list(range(len(self._sources)))
        self.scanned = 0

    def has_more(self) -> bool:
        """Return whether there is a next member. Reads on where it must."""
        while self._empty:
            empty, self._empty = self._empty, []
            self._refill([each for each in self._sources if not each.left and not each.is_exhausted])
            for number in empty:
                self._push(number)
        return bool(self._heap)

    def next(self) -> FoundMember | None:
        """Return the next member; None at the end."""
        if not self.has_more():
            return None
        _, number = heappop(self._heap)
        source = self._sources[number]
        member, data = source.left.popleft()
        self._push(number)
        self.scanned += 1
        *values, key = member.split(END, self._fields)
        return FoundMember(member, END.join(values), key, source.lane, data)

    def _push(self, number: int) -> None:
        source = self._sources[number]
        if source.left:
            member = source.left[0][0]
            heappush(self._heap, (_Descending(member) if self._is_descending else member, number))
        elif not source.is_exhausted:
            self._empty.append(number)

    def _refill(self, sources: Sequence[_FieldPart]) -> None:
        command = b"ZREVRANGEBYLEX" if self._is_descending else b"ZRANGEBYLEX"
        by_lane = [(lane, list(own)) for lane, own in groupby(sources, lambda source: source.lane)]
        calls = []
        for lane, own in by_lane:
            head = (b"EVAL_RO", SCRIPT, b"1", lane.watermark_key, lane.value_prefix)
            words = [*head, b"%d" % BYTES_OF_LANE, b"%d" % self._fields, command]
            for source in own:
                words += (source.index_key, source.begin, self._end, b"%d" % source.batch)
            calls.append(Call(lane.slot, tuple(words)))
        for (lane, own), reply in zip(by_lane, self._reading.run(calls), strict=True):
            self._reading.watermarks.note(lane, reply[0])
            for number, source in enumerate(own):
                members, records, more = reply[1 + 3 * number : 4 + 3 * number]
                self._check(source, members)
                records += [None] * (len(members) - len(records))
                source.left.extend(zip(members, records, strict=True))
                source.is_exhausted = not more
                source.batch = min(2 * source.batch, LARGEST_BATCH)
                if members:
                    source.begin = b"(" + members[-1]

    def _check(self, source: _FieldPart, members: Sequence[bytes]) -> None:
        for member in members:
            if member.count(END) < self._fields:
                raise CorruptState(printable(source.index_key), "a member has no key")


def index_parts(reading: Reading, lane: Lane, drive: Drive) -> list[bytes]:
    """Return the keys of a lane's sorted sets of an index."""
    layout = reading.layout
    name = lane.tag, layout.topic, layout.generation, lane.partition, lane.stripe
    return redis_keys.parts_of(
        redis_keys.field_index_key(*name, drive.index.number), max(1, layout.options.index)
    )
