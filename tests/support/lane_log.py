"""Logs of several partitions that are written into one lane, and a plain fold: what that lane should hold."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support import lanes as t
from tests.support.builders import in_part

from keylane.adapters.redis.resp import encode_command
from keylane.ports import Deadline
from keylane.state import codec, redis_keys
from keylane_spark.lanes.lane import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.redis.cluster import Cluster
    from keylane.model.records import Options
    from keylane_spark.lanes.lane import LaneTarget
    from keylane_spark.lanes.lane_writer import LaneWriter

OWN = 4
"""The partition of the lane."""


class Row(NamedTuple):
    """One record; a value of None is a tombstone."""

    source: int
    offset: int
    key: bytes
    value: bytes | None
    time: int

    @property
    def stray_source(self) -> int | None:
        return None if self.source == OWN else self.source


def envelope(row: Row, order_ms: int | None = None, fields: bytes = b"") -> bytes:
    return codec.encode_record(
        row.value, row.offset, row.time, row.stray_source, order_ms=order_ms, fields=fields
    )


FIELDS = (("bytes", "texts"), ("value", "text"))
"""The fields of lanes in tests: a record has its value in one, and each of its bytes in the other."""


def fields_of(value: bytes | None, options: Options) -> list[tuple[int, bytes]]:
    """What a value puts into the indexes of these fields: numbers and values."""
    if value is None or not options.fields:
        return []
    hexadecimal = [b"%02x" % byte for byte in sorted(set(value))]
    return [*((0, each) for each in hexadecimal), (1, value.hex().encode() * 20)]


def entries_of(value: bytes | None, options: Options) -> bytes:
    return b"".join(bytes((number, len(each))) + each for number, each in fields_of(value, options))


def member(row: Row) -> bytes:
    """The record as a member of a history."""
    data = envelope(row)
    return data[2:10] + data[:2] + data[10:]


def folded(rows: Sequence[Row]) -> list[tuple[Row, int | None]]:
    """What a chunk carries: the last row of each key, with its order timestamp where that differs."""
    last = {row.key: row for row in rows}
    kept = [row for row in rows if last[row.key] is row]
    highest = {row.key: max(other.time for other in rows if other.key == row.key) for row in kept}
    return [(row, highest[row.key] if highest[row.key] > row.time else None) for row in kept]


def send(
    lanes: LaneWriter, lane: LaneTarget, rows: Sequence[Row], begin: int, end: int, *, fold: bool = False
) -> None:
    """Send one chunk: the rows of a partition's [begin, end). A fold leaves out rows that histories need."""
    carried = folded(rows) if fold else [(row, None) for row in rows]
    chunk = t.chunk_of(
        lane,
        *((row.key, envelope(row, order, entries_of(row.value, lane.options))) for row, order in carried),
        end_offset=end,
        newest_timestamp_ms=max((row.time for row in rows), default=0),
        has_tombstones=any(row.value is None for row in rows),
    )
    if rows and rows[0].stray_source is not None:
        lanes.put_strays(lane, chunk, rows[0].source)
    else:
        lanes.apply(lane, OffsetRange(begin, end), chunk)
    lanes.flush()


@dataclass(slots=True)
class Held:
    """State, histories and indexes of a lane. A history's entries are (score, member).

    `past`: the keys that have a history, by their index. `fields`: the members of each index of fields.
    """

    values: dict[bytes, tuple[int, int, bytes]]
    histories: dict[bytes, list[tuple[int, bytes]]]
    index: list[bytes]
    past: list[bytes]
    fields: list[list[bytes]] = field(default_factory=list)


def ask(cluster: Cluster, lane: LaneTarget, *commands: tuple[bytes, ...]) -> list[Any]:
    """Replies of the lane's primary."""
    deadline = Deadline.after_ms(5000, t.CLOCK)
    if not cluster.nodes:
        cluster.refresh(deadline)
    packed = b"".join(encode_command(*command) for command in commands)
    return cluster.roundtrip(cluster.primary(lane.slot), packed, len(commands), deadline)


def members(cluster: Cluster, lane: LaneTarget, name: bytes) -> list[bytes]:
    """The members of a sorted set of the lane, each of which is in its part and in no other."""
    parts = redis_keys.parts_of(name, lane.options.index)
    found = ask(cluster, lane, *((b"ZRANGE", part, b"0", b"-1") for part in parts))
    for part, keys in zip(parts, found, strict=True):
        assert {in_part(name, key, len(parts)) for key in keys} <= {part}
    return sorted(itertools.chain.from_iterable(found))


def held(cluster: Cluster, lane: LaneTarget, keys: Sequence[bytes]) -> Held:
    """Read what the lane holds."""
    base, name = lane.key_prefix[:-2], lane.watermark_key[len(lane.key_prefix) :]
    index, past = (members(cluster, lane, base + kind + name) for kind in (b"i:", b"p:"))
    replies = ask(
        cluster,
        lane,
        *((b"GET", lane.key_prefix + key) for key in keys),
        *((b"ZRANGE", base + b"h:" + key, b"0", b"-1", b"WITHSCORES") for key in keys),
    )
    values, histories = {}, {}
    expand = t.expand_of(cluster, lane)
    for key, data, entries in zip(keys, replies[: len(keys)], replies[len(keys) :], strict=True):
        record = None if data is None else codec.decode_record(key, data, lane.partition, expand)
        if record is not None:
            values[key] = record.partition, record.offset, record.value
        if entries:
            histories[key] = [(int(score), entry) for entry, score in zip(*[iter(entries)] * 2, strict=True)]
    fields = [
        members(cluster, lane, base + b"f:%b.%d" % (name, number)) for number, _ in _numbered(lane.options)
    ]
    if lane.options.fields and lane.options.ttl_ms:
        _check_hash(cluster, lane, values, index)
    return Held(values, histories, index, past, fields)


def _numbered(options: Options) -> list[tuple[int, str]]:
    return [(number, name) for number, (name, _) in enumerate(options.fields)]


def _check_hash(cluster: Cluster, lane: LaneTarget, values: dict[bytes, Any], index: list[bytes]) -> None:
    """Where records expire, a hash has the fields of all keys in the index."""
    name = lane.key_prefix[:-2] + b"b:" + lane.watermark_key[len(lane.key_prefix) :]
    found: dict[bytes, bytes] = {}
    for part in redis_keys.parts_of(name, lane.options.index):
        (pairs,) = ask(cluster, lane, (b"HGETALL", part))
        found |= dict(zip(pairs[::2], pairs[1::2], strict=True))
    assert sorted(found) == index
    for key, (_, _, value) in values.items():
        assert found[key] == entries_of(value, lane.options)


def server_time_ms(cluster: Cluster, lane: LaneTarget) -> int:
    """The clock of the lane's primary."""
    ((seconds, micros),) = ask(cluster, lane, (b"TIME",))
    return int(seconds) * 1000 + int(micros) // 1000


def fold(rows: Sequence[Row], options: Options, now_ms: int) -> Held:
    """What a lane should hold after these rows, which are in offset order within each partition."""
    by_key: dict[bytes, list[Row]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    values = {}
    for key, mine in by_key.items():
        winner = _first(mine) if options.insert_once else _newest(mine)
        is_due = options.ttl_ms is not None and winner.time + options.ttl_ms <= now_ms
        if winner.value is not None and not is_due:
            values[key] = winner.source, winner.offset, winner.value
    histories = {key: _history(mine, options, now_ms) for key, mine in by_key.items() if options.has_history}
    indexes = (values, histories) if options.index else ((), ())
    fields = [
        sorted(
            each + b"\0" + key
            for key, (_, _, value) in values.items()
            for found, each in fields_of(value, options)
            if found == number
        )
        for number, _ in _numbered(options)
    ]
    return Held(values, histories, *map(sorted, indexes), fields)


def _newest(rows: Sequence[Row]) -> Row:
    ranked = []
    for source in {row.source for row in rows}:
        mine = sorted((row for row in rows if row.source == source), key=lambda row: row.offset)
        rank = -1 if source == OWN else source
        orders = itertools.accumulate((row.time for row in mine), max)
        ranked += [((order, -rank, row.offset), row) for row, order in zip(mine, orders, strict=True)]
    return max(ranked, key=lambda pair: pair[0])[1]


def _first(rows: Sequence[Row]) -> Row:
    held = rows[0]
    for row in rows:
        if row.value is None or held.value is None:
            held = row
    return held


def _history(rows: Sequence[Row], options: Options, now_ms: int) -> list[tuple[int, bytes]]:
    # Redis has entries of one time in the order of their bytes; which of them stay is that of their ranks.
    kept = sorted(rows, key=lambda row: (row.time, row.offset, row.source == OWN, -row.source))
    if options.history_count is not None:
        kept = kept[-options.history_count :]
    if options.history_age_ms is not None:
        horizon = now_ms - options.history_age_ms
        kept = kept[max(0, sum(row.time < horizon for row in kept) - 1) :]
    return sorted((row.time, member(row)) for row in kept)
