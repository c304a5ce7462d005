"""One step of reading a whole lane: the next of its keys, or those that are named, with their records.

A lane answers by one script: its watermark, what it has of strays and the records are of one moment. SCAN
returns every key that is there from its first to its last step, as long as the same process answers all of
them. So each step says which process that is, and none answers while the slot migrates: keys may have left,
or not have come yet.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple

from keylane.ports import Call
from keylane.query.strays import parse_taken
from keylane.state.lanes import probe_key, strays_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from keylane.model.records import Layout
    from keylane.state.lanes import Lane

SCRIPT = b"""\
local process = tostring(redis)
local probed = redis.pcall('MGET', KEYS[1], ARGV[1])
if probed['err'] then
  return { process }
end
local watermark, strays = probed[1], redis.call('HGETALL', ARGV[2])
local prefix, cursor, left = tonumber(ARGV[3]), ARGV[5], tonumber(ARGV[8])
local keys, found = {}, {}
if cursor == '' then
  for number = 9, #ARGV do
    keys[#keys + 1] = ARGV[number]
  end
else
  local calls = tonumber(ARGV[7])
  repeat
    local reply = redis.call('SCAN', cursor, 'MATCH', ARGV[4], 'COUNT', ARGV[6])
    cursor, calls = reply[1], calls - 1
    for _, key in ipairs(reply[2]) do
      keys[#keys + 1] = key
      found[#found + 1] = string.sub(key, prefix + 1)
    end
  until cursor == '0' or calls == 0 or #keys >= tonumber(ARGV[6])
end
local records, at_once, largest = {}, 2, 1
while #records < #keys and left > 0 do
  local first = #records + 1
  for _, record in ipairs(redis.call('MGET', unpack(keys, first, math.min(#keys, first + at_once - 1)))) do
    local size = record and #record or 0
    records[#records + 1], left, largest = record, left - size, math.max(largest, size)
  end
  at_once = math.max(1, math.min(8 * at_once, 128, math.floor(left / largest)))
end
return { process, watermark, strays, cursor, found, records }
"""
"""Reads a part of a lane.

KEYS: the watermark. ARGV: a key of the slot that never exists, the key of the lane's strays, the length of
what precedes a record's key, a pattern of Redis' keys, SCAN's cursor or nothing, its COUNT, how often SCAN
may be called, how many bytes of records are enough; without a cursor Redis' keys that are read instead.
Returns an id of the process alone where the slot migrates: both nodes then refuse to read several keys of
which one is not there. Of a single key the new node says that it does not exist, if an ASK has led there.
Else also the watermark, the strays, the next cursor, the keys that SCAN found, and the records of the first
keys.

The id is an address in the process's memory, which differs after a restart: that orders keys by another seed.
A user who may only read can't ask for Redis' own run id. What flushes scripts changes the id, too.
"""
_DIGEST = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()
SCANNED_AT_ONCE = 100
"""SCAN's COUNT, and the number of keys after which a step ends: others wait that long, for Redis and here."""
SCANS_OF_STEP = 40
"""A step looks at so many times SCANNED_AT_ONCE keys of the node: within one or two milliseconds."""
BYTES_OF_STEP = 512 * 1024
_SPECIAL = re.compile(rb"([\\*?\[\]])")
FIRST = b"0"
"""The cursor of a scan's first step, and that of its last one's answer."""


class LaneStep(NamedTuple):
    """What a lane answered. `process`: who did; the rest is empty where the slot `is_migrating`.

    `watermark`: its record, None where there is none. `strays`: source partition -> offset below which all
    strays of it are in the lane. `cursor`: of the next step. `keys`: those that were scanned, or asked for;
    `values`: what is under the first of them.
    """

    process: bytes
    watermark: bytes | None = None
    strays: dict[int, int] = {}  # noqa: RUF012 (nobody writes into it)
    cursor: bytes = FIRST
    keys: Sequence[bytes] = ()
    values: Sequence[bytes | None] = ()
    is_migrating: bool = False


def scan_step(layout: Layout, lane: Lane, cursor: bytes, prefix: bytes = b"") -> Call:
    """Return the call that scans the lane on from a cursor, for keys that begin with the prefix."""
    return _call(layout, lane, cursor, prefix, ())


def read_step(layout: Layout, lane: Lane, keys: Sequence[bytes]) -> Call:
    """Return the call that reads the records of these keys of the lane, at one moment."""
    return _call(layout, lane, b"", b"", keys)


def _call(layout: Layout, lane: Lane, cursor: bytes, prefix: bytes, keys: Sequence[bytes]) -> Call:
    before = lane.value_prefix
    words = (
        *(b"EVALSHA_RO", _DIGEST, b"1", lane.watermark_key),
        probe_key(layout, lane),
        strays_key(layout, lane),
        *(b"%d" % len(before), _SPECIAL.sub(rb"\\\1", before + prefix) + b"*", cursor),
        *(b"%d" % number for number in (SCANNED_AT_ONCE, SCANS_OF_STEP, BYTES_OF_STEP)),
        *(before + key for key in keys),
    )
    return Call(lane.slot, words, script=SCRIPT)


def parse_step(reply: Sequence[Any], keys: Sequence[bytes] = ()) -> LaneStep:
    """Return what a step found; `keys`: those of a `read_step`."""
    if len(reply) == 1:
        return LaneStep(reply[0], is_migrating=True)
    process, watermark, strays, cursor, found, values = reply
    return LaneStep(process, watermark, parse_taken(strays), cursor, found or keys, values)
