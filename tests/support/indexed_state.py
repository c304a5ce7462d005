"""The state of a topic, made of its records without a Redis: values, watermarks, indexes and histories."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.builders import (
    a_watermark,
    entries_of,
    in_part,
    layout_entry,
    routed_key,
    value_entry,
)
from tests.support.fakes import FakeState

from keylane.state import codec, redis_keys
from keylane.state.field_index import cut_entries
from keylane.state.lanes import lane_of_key, lanes_of_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from keylane.model.records import Layout


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record under a key; `past`: earlier values of it, with their offsets and times.

    `stray_of`: the partition that it was written to, if that is not the key's own.
    """

    key: bytes
    value: bytes
    offset: int
    timestamp_ms: int
    past: tuple[tuple[int, int, bytes | None], ...] = ()
    stray_of: int | None = None


@dataclass
class IndexedState(FakeState):
    """As `FakeState`, with what a find asks of indexes. `scanned`: the members that scripts answered with."""

    scanned: list[bytes] = field(default_factory=list)

    def _run(self, entries: Mapping[bytes, bytes | None], slot: int, name: bytes, *words: bytes) -> Any:
        if name == b"ZLEXCOUNT":
            key, low, high = words
            return len(self._by_lex(key, low, high, b"LIMIT", b"0", b"%d" % (1 << 40)))
        if name == b"EVALSHA_RO":
            return self._scan(entries, *words[2:])
        return super()._run(entries, slot, name, *words)

    def _scan(self, entries: Mapping[bytes, bytes | None], *words: bytes) -> list[Any]:
        watermark, prefix, _, _, fields, command, _, *sources = words
        found: list[Any] = [entries.get(watermark)]
        for at in range(0, len(sources), 4):
            index, begin, end, batch = sources[at : at + 4]
            is_descending = command == b"ZREVRANGEBYLEX"
            low, high = (end, begin) if is_descending else (begin, end)
            members = self._by_lex(index, low, high, b"LIMIT", b"0", b"%d" % (1 << 40))
            taken = (members[::-1] if is_descending else members)[: int(batch)]
            self.scanned += taken
            keys = [member.split(b"\0", int(fields))[-1] for member in taken]
            found += [taken, [entries.get(prefix + key) for key in keys], int(len(taken) == int(batch))]
        return found

    def add(self, layout: Layout, records: Iterable[StoredRecord], row: bytes | None = None) -> None:
        """Add a topic with these records. `row`: of which the fields are, where it is not their values."""
        self.entries |= layout_entry(layout)
        for lane in lanes_of_topic(layout):
            self.entries[lane.watermark_key] = codec.encode_watermark(a_watermark(1000))
        for record in records:
            self._add(layout, record, row or record.value)

    def _add(self, layout: Layout, record: StoredRecord, row: bytes) -> None:
        fields = entries_of(row, layout.options) if row[:1] == b"{" else b""
        self.entries |= value_entry(
            layout,
            record.key,
            record.value,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            fields=fields,
            source_partition=record.stray_of,
        )
        lane, options = lane_of_key(layout, routed_key(layout, record.key)), layout.options
        of_lane = lane.tag, layout.topic, layout.generation, lane.partition, lane.stripe
        if options.index:
            name = in_part(redis_keys.index_key(*of_lane), record.key, options.index)
            self.sorted_sets.setdefault(name, {})[record.key] = 0.0
        for entry in cut_entries(fields):
            name = in_part(redis_keys.field_index_key(*of_lane, entry[0]), record.key, options.index)
            self.sorted_sets.setdefault(name, {})[entry[2:] + b"\0" + record.key] = 0.0
        if options.has_history:
            name = in_part(redis_keys.history_index_key(*of_lane), record.key, options.index)
            self.sorted_sets.setdefault(name, {})[record.key] = 0.0
            self._add_history(layout, record)

    def _add_history(self, layout: Layout, record: StoredRecord) -> None:
        lane = lane_of_key(layout, record.key)
        name = redis_keys.history_key(lane.tag, layout.topic, layout.generation, record.key)
        members = self.sorted_sets.setdefault(name, {})
        newest = (record.offset, record.timestamp_ms, record.value)
        for offset, timestamp_ms, value in (*record.past, newest):
            data = codec.encode_record(value, offset, timestamp_ms)
            members[data[2:10] + data[:2] + data[10:]] = float(timestamp_ms)
