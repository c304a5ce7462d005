"""Reads members of an index of fields with the records that they belong to, in order, from all lanes.

A lane answers by one script: members, records and watermark are of one moment. So no record contradicts the
value by which it was found.

A round reads so many members of every part of the index. Where their records would be too large together, a
part answers with the first member whose record it left out: that is enough to know which rows come before
it, and the part is read again when this member is the next one.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field
from math import isqrt
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from keylane.errors import CorruptState
from keylane.model.keys import printable
from keylane.ports import Call
from keylane.state.lanes import index_keys, probe_key
from keylane.state.ordered import END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.query.conditions import Drive
    from keylane.query.store import Reading
    from keylane.state.lanes import Lane

SCRIPT = b"""\
local found, left, least = { redis.call('MGET', KEYS[1], ARGV[6])[1] }, tonumber(ARGV[2]), tonumber(ARGV[3])
local at_once, largest = 2, 1
for at = 7, #ARGV, 4 do
  local most = tonumber(ARGV[at + 3])
  local members = redis.call(ARGV[5], ARGV[at], ARGV[at + 1], ARGV[at + 2], 'LIMIT', 0, most)
  local count, taken, records = #members, 0, {}
  while taken < count and (left >= largest or least > 0) do
    local keys = {}
    for number = taken + 1, math.min(count, taken + at_once) do
      local last = 0
      for _ = 1, tonumber(ARGV[4]) do
        last = string.find(members[number], '\\0', last + 1, true)
      end
      keys[#keys + 1] = ARGV[1] .. string.sub(members[number], last + 1)
    end
    for _, record in ipairs(redis.call('MGET', unpack(keys))) do
      local size = #members[taken + 1] + (record and #record or 0)
      largest = math.max(largest, size)
      if size > left and least == 0 then
        left = 0
        break
      end
      taken, left, least = taken + 1, left - size, 0
      records[taken] = record
    end
    at_once = math.max(1, math.min(8 * at_once, 128, math.floor(left / largest)))
  end
  found[#found + 1] = taken < count and { unpack(members, 1, taken + 1) } or members
  found[#found + 1] = records
  found[#found + 1] = (taken < count or count == most) and 1 or 0
end
return found
"""
"""Reads parts of a lane.

KEYS: the watermark. ARGV: what precedes a record's key, how many bytes of members and records are wanted, how
many records there are at least however large they are (0 or 1), how many 00 precede the key in a member, the
command, a key of the slot that never exists; then for each sorted set its key, both bounds, the most members.
Returns the watermark; then for each set members, their records, 1 if it may have more. If the records did not
fit, there is one member more than records. Records are read by few commands, because in a script each costs
more than a key; of large ones few are read in vain.

While the slot migrates both nodes refuse to read several keys of which one is not there: so the whole script
fails. Of a single key the new node says that it does not exist, if an ASK has led there.
"""
_DIGEST = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()
_NOTHING = (b"(\0", b"(\0")
"""Bounds between which there is no member."""
BYTES_OF_ROUND = 4 * 1024 * 1024
"""Of all lanes, but for the one record that a round is certain to bring."""
BYTES_OF_LANE = 1024 * 1024
"""The most that one lane answers with in a round."""
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
    """A part of a lane's index: what was read and is not in order yet, and where the next batch begins.

    `unread`: the member that comes then, where its record was left out.
    """

    lane: Lane
    index_key: bytes
    begin: bytes
    left: deque[tuple[bytes, bytes | None, Lane]] = field(default_factory=deque)
    batch: int = 0
    unread: bytes | None = None
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
        self._ahead = deque(drive.all_bounds(is_descending=is_descending, after=after))
        begin, self._end = self._ahead.popleft() if self._ahead else _NOTHING
        self._sources = [
            _FieldPart(lane, key, begin)
            for lane in lanes
            for key in index_keys(reading.layout, lane, drive.index)
        ]
        self._ready: list[tuple[bytes, bytes | None, Lane]] = []  # the next one is the last
        self._largest_bytes = 1
        self.scanned = 0
        self.read_bytes = 0

    @property
    def is_read_next(self) -> bool:
        """Whether the next member needs another round."""
        return not self._ready

    def has_more(self) -> bool:
        """Return whether there is a next member. Reads on where it must."""
        while not self._ready and not any(each.left or each.unread for each in self._sources):
            if self._is_at_end():
                return False
            self._refill(1)
        return True

    def next(self, taken: int) -> FoundMember | None:
        """Return the next member; None at the end. `taken`: how many rows were made of those before."""
        while not self._ready:
            if self._is_at_end():
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

    def _is_at_end(self) -> bool:
        """Return whether all is read. Where an interval is, and there is a further one, begin with that."""
        if not all(each.is_exhausted for each in self._sources):
            return False
        if not self._ahead:
            return True
        begin, self._end = self._ahead.popleft()
        for source in self._sources:
            source.begin, source.is_exhausted = begin, False
        return False

    def _refill(self, expected: int) -> None:
        """Read so many further members, and some more, as lanes are not equal; then order what has come."""
        share = -(-expected // len(self._sources))
        batch = min(expected, share + 3 * isqrt(share)) + 1
        for source in self._sources:
            source.batch = 0 if source.is_exhausted else min(batch, LARGEST_BATCH) - len(source.left)
        if any(each.unread is not None for each in self._sources):
            self._read(self._next_sources(), least=1)
        else:
            self._read([source for source in self._sources if source.batch > 0])
        self._put_in_order()

    def _next_sources(self) -> list[_FieldPart]:
        """The parts whose next member comes first, so many as records of the size seen are not too many.

        Also those of which no next member is known.
        """
        waiting = [each for each in self._sources if each.unread is not None and not each.left]
        waiting.sort(key=lambda each: each.unread or b"", reverse=self._is_descending)
        most = max(1, BYTES_OF_ROUND // self._largest_bytes)
        unknown = [each for each in self._sources if not (each.left or each.unread or each.is_exhausted)]
        return [*waiting[:most], *unknown]

    def _put_in_order(self) -> None:
        """Make ready what comes before all that may still be read."""
        going_on = [each for each in self._sources if not each.is_exhausted]
        if any(not each.left and each.unread is None for each in going_on):
            return
        first = max if self._is_descending else min
        ends = [each.left[-1][0] if each.unread is None else each.unread for each in going_on]
        end = first(ends, default=None)
        for source in self._sources:
            left = source.left
            while left and (end is None or (left[0][0] >= end if self._is_descending else left[0][0] <= end)):
                self._ready.append(left.popleft())
        self._ready.sort(key=itemgetter(0), reverse=not self._is_descending)

    def _read(self, sources: Sequence[_FieldPart], least: int = 0) -> None:
        """Read a batch of each; with `least` one record of each lane however large it is."""
        command = b"ZREVRANGEBYLEX" if self._is_descending else b"ZRANGEBYLEX"
        by_lane: dict[Lane, list[_FieldPart]] = {}
        for source in sources:
            by_lane.setdefault(source.lane, []).append(source)
        most_bytes = min(BYTES_OF_LANE, BYTES_OF_ROUND // len(by_lane))
        calls = []
        for lane, own in by_lane.items():
            words = [b"1", lane.watermark_key, lane.value_prefix]
            words += (b"%d" % most_bytes, b"%d" % least, b"%d" % self._fields, command)
            words.append(probe_key(self._reading.layout, lane))
            for source in own:
                words += (source.index_key, source.begin, self._end, b"%d" % source.batch)
            calls.append(Call(lane.slot, (b"EVALSHA_RO", _DIGEST, *words), script=SCRIPT))
        for (lane, own), reply in zip(by_lane.items(), self._reading.run(calls), strict=True):
            self._reading.watermarks.note(lane, reply[0])
            for number, source in enumerate(own):
                members, records, more = reply[1 + 3 * number : 4 + 3 * number]
                self._check(source, members)
                self._add(source, members, records)
                source.is_exhausted = not more

    def _add(self, source: _FieldPart, members: Sequence[bytes], records: Sequence[bytes | None]) -> None:
        read = members[: len(records)]
        source.left.extend((*each, source.lane) for each in zip(read, records, strict=True))
        source.unread = members[len(records)] if len(records) < len(members) else None
        if read:
            source.begin = b"(" + read[-1]
        sizes = [len(record) for record in records if record]
        self.read_bytes += sum(sizes)
        self._largest_bytes = max([self._largest_bytes, *sizes])

    def _check(self, source: _FieldPart, members: Sequence[bytes]) -> None:
        for member in members:
            if member.count(END) < self._fields:
                raise CorruptState(printable(source.index_key), "a member has no key")
