"""Reads members of an index of fields with the records that they belong to, in order, from all lanes.

A lane answers by one script: members, records and watermark are of one moment. So no record contradicts the
value by which it was found.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field
from itertools import groupby
from math import isqrt
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from keylane.errors import CorruptState
from keylane.model.keys import printable
from keylane.ports import Call
from keylane.state.lanes import index_keys
from keylane.state.ordered import END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.query.conditions import Drive
    from keylane.query.store import Reading
    from keylane.state.lanes import Lane

SCRIPT = b"""\
local found, left, at_once = { redis.call('GET', KEYS[1]) }, tonumber(ARGV[2]), 2
for at = 5, #ARGV, 4 do
  local most = tonumber(ARGV[at + 3])
  local members = redis.call(ARGV[4], ARGV[at], ARGV[at + 1], ARGV[at + 2], 'LIMIT', 0, most)
  local count, taken, records, largest = #members, 0, {}, 1
  while taken < count and left > 0 do
    local keys = {}
    for number = taken + 1, math.min(count, taken + at_once) do
      local last = 0
      for _ = 1, tonumber(ARGV[3]) do
        last = string.find(members[number], '\\0', last + 1, true)
      end
      keys[#keys + 1] = ARGV[1] .. string.sub(members[number], last + 1)
    end
    for _, record in ipairs(redis.call('MGET', unpack(keys))) do
      if left <= 0 then
        break
      end
      taken = taken + 1
      records[taken] = record
      local size = record and #record or 0
      left, largest = left - #members[taken] - size, math.max(largest, size)
    end
    at_once = math.max(1, math.min(8 * at_once, 128, math.floor(left / largest)))
  end
  found[#found + 1] = taken < count and { unpack(members, 1, taken) } or members
  found[#found + 1] = records
  found[#found + 1] = (taken < count or count == most) and 1 or 0
end
return found
"""
"""Reads parts of a lane.

KEYS: the watermark. ARGV: what precedes a record's key, how many bytes of records are wanted, how many 00
precede the key in a member, the command; then for each sorted set its key, both bounds, the most members.
Returns the watermark; then for each set members, their records, 1 if it may have more. Records are read by
few commands, because in a script each costs more than a key; of large ones few are read in vain.
"""
_DIGEST = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()
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
    """A part of a lane's index: what was read and is not in order yet, and where the next batch begins."""

    lane: Lane
    index_key: bytes
    begin: bytes
    left: deque[tuple[bytes, bytes | None, Lane]] = field(default_factory=deque)
    batch: int = 0
    is_exhausted: bool = False


class FieldScan:
    """The members of an index, from all lanes in order. `wanted`: how many rows will be taken at most."""

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
        self._is_descending = is_descending
        self._fields = len(drive.index.fields)
        self._wanted = wanted
        begin, self._end = drive.bounds(is_descending=is_descending, after=after)
        self._sources = [
            _FieldPart(lane, key, begin)
            for lane in lanes
            for key in index_keys(reading.layout, lane, drive.index)
        ]
        self._ready: list[tuple[bytes, bytes | None, Lane]] = []  # the next one is the last
        self.scanned = 0

    def has_more(self) -> bool:
        """Return whether there is a next member. Reads on where it must."""
        while not self._ready and not any(each.left for each in self._sources):
            if all(each.is_exhausted for each in self._sources):
                return False
            self._refill(1)
        return True

    def next(self, taken: int) -> FoundMember | None:
        """Return the next member; None at the end. `taken`: how many rows were made of those before."""
        while not self._ready:
            if all(each.is_exhausted for each in self._sources):
                return None
            # Of so many a row is expected as of those before.
            expected = (self._wanted - taken) * max(1, self.scanned) // max(1, taken)
            self._refill(min(expected, self._wanted + 4 * self.scanned))
        member, data, lane = self._ready.pop()
        self.scanned += 1
        if self._fields == 1:
            value, _, key = member.partition(END)
        else:
            *values, key = member.split(END, self._fields)
            value = END.join(values)
        return FoundMember(member, value, key, lane, data)

    def _refill(self, expected: int) -> None:
        """Read so many further members, and some more, as lanes are not equal; then order what has come."""
        share = -(-expected // len(self._sources))
        batch = min(expected, share + 3 * isqrt(share)) + 1
        for source in self._sources:
            source.batch = 0 if source.is_exhausted else min(batch, LARGEST_BATCH) - len(source.left)
        self._read([source for source in self._sources if source.batch > 0])
        # What is not beyond the end of any batch is in order.
        ends = [each.left[-1][0] if each.left else None for each in self._sources if not each.is_exhausted]
        if None in ends:
            return
        last = (max if self._is_descending else min)(ends, default=None)  # type: ignore[type-var]
        for source in self._sources:
            left = source.left
            while left and (
                last is None or (left[0][0] >= last if self._is_descending else left[0][0] <= last)
            ):
                self._ready.append(left.popleft())
        self._ready.sort(key=itemgetter(0), reverse=not self._is_descending)

    def _read(self, sources: Sequence[_FieldPart]) -> None:
        command = b"ZREVRANGEBYLEX" if self._is_descending else b"ZRANGEBYLEX"
        by_lane = [(lane, list(own)) for lane, own in groupby(sources, lambda source: source.lane)]
        calls = []
        for lane, own in by_lane:
            words = [b"1", lane.watermark_key, lane.value_prefix]
            words += (b"%d" % BYTES_OF_LANE, b"%d" % self._fields, command)
            for source in own:
                words += (source.index_key, source.begin, self._end, b"%d" % source.batch)
            calls.append(Call(lane.slot, (b"EVALSHA_RO", _DIGEST, *words), script=SCRIPT))
        for (lane, own), reply in zip(by_lane, self._reading.run(calls), strict=True):
            self._reading.watermarks.note(lane, reply[0])
            for number, source in enumerate(own):
                members, records, more = reply[1 + 3 * number : 4 + 3 * number]
                self._check(source, members)
                records += [None] * (len(members) - len(records))
                source.left.extend((*each, lane) for each in zip(members, records, strict=True))
                source.is_exhausted = not more
                if members:
                    source.begin = b"(" + members[-1]

    def _check(self, source: _FieldPart, members: Sequence[bytes]) -> None:
        for member in members:
            if member.count(END) < self._fields:
                raise CorruptState(printable(source.index_key), "a member has no key")
