"""A topic of two partitions, in the state and in the log, that a test changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.support.builders import (
    NOW_MS,
    a_layout,
    a_watermark,
    entries_of,
    layout_entry,
    value_entry,
    value_key,
)
from tests.support.fakes import FakeKafka, FakeState, FakeTime

from keylane import routing
from keylane.api.reads.change_sources import KeyChanges, TopicChanges
from keylane.api.reads.changes import ChangesRequest
from keylane.model.kafka import LogRecord
from keylane.model.records import Options
from keylane.ports import Deadline, WaitBudget
from keylane.query.changes import ChangedKeys, ChangeReader, find_changed_keys, read_position
from keylane.query.decoding import ValueDecoder
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store
from keylane.state import codec
from keylane.state.lanes import given_key, lane_at, lane_of_key, lanes_of_topic, strays_key

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTITIONS = 2
TERMS = ReadTerms(timeout_ms=1000)


@dataclass
class ChangingTopic:
    """A topic of two partitions, two stripes each, in the state and in the log."""

    state: FakeState = field(default_factory=FakeState)
    kafka: FakeKafka = field(default_factory=FakeKafka)
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        self.layout = a_layout(partition_count=PARTITIONS, stripes=2, incarnation=7, options=self.options)
        self.state.entries |= layout_entry(self.layout)
        self.log = self.kafka.create(self.layout.topic, PARTITIONS)
        self.time = FakeTime(NOW_MS)
        self.clock = self.time.clock

    @property
    def store(self) -> Store:
        """A store that has seen nothing yet."""
        return Store(self.state, Layouts(self.state, self.clock, 30), self.clock)

    def key_in(self, partition: int) -> bytes:
        keys = (b"key-%d" % number for number in range(1000))
        return next(key for key in keys if routing.partition_for(key, PARTITIONS) == partition)

    def append(self, partition: int, *keys: bytes | None) -> None:
        """Write records to the log alone."""
        log = self.log[partition]
        log.add(*(LogRecord(log.high + number, key, b"1") for number, key in enumerate(keys)))

    def apply(self, partition: int, stripe: int, next_offset: int, **fields: int) -> None:
        """Move the watermark of a lane."""
        lane = next(
            each
            for each in lanes_of_topic(self.layout)
            if (each.partition, each.stripe) == (partition, stripe)
        )
        gave_strays = given_key(self.layout, lane) in self.state.hashes
        mark = a_watermark(next_offset, gave_strays=gave_strays, **fields)
        self.state.entries[lane.watermark_key] = codec.encode_watermark(mark)

    def apply_all(self, **fields: int) -> None:
        """Move the watermarks of all lanes to the ends of the log."""
        for partition, log in enumerate(self.log):
            for stripe in range(self.layout.stripes):
                self.apply(partition, stripe, log.high, **fields)

    def put(self, key: bytes, value: bytes | None, source: int | None = None) -> None:
        """Write a record to the log and the state; a stray if a source partition is given."""
        partition = routing.partition_for(key, PARTITIONS) if source is None else source
        self.append(partition, key)
        offset = self.log[partition].high - 1
        if source is not None:
            lane, first = lane_of_key(self.layout, key), lane_at(self.layout, source, 0)
            for name, member in (
                (strays_key(self.layout, lane), b"%d" % source),
                (given_key(self.layout, first), str(lane).encode()),
            ):
                self.state.hashes.setdefault(name, {})[member] = b"%d" % (offset + 1)
        fields = entries_of(value, self.options)
        self.state.entries |= value_entry(
            self.layout, key, value, offset=offset, source_partition=source, fields=fields
        )
        self.apply_all()

    def held(self, key: bytes) -> tuple[bytes | None, dict[bytes, bytes]]:
        """Return a key's record, and what its lane has of strays."""
        taken = self.state.hashes.get(strays_key(self.layout, lane_of_key(self.layout, key)), {})
        return self.state.entries.get(value_key(self.layout, key)), dict(taken)

    def hold(self, key: bytes, held: tuple[bytes | None, dict[bytes, bytes]]) -> None:
        """Have what `held` returned, as after a failover that lost writes; the lane's watermark stays."""
        self.state.entries[value_key(self.layout, key)], taken = held
        self.state.hashes[strays_key(self.layout, lane_of_key(self.layout, key))] = dict(taken)

    def create_again(self) -> None:
        """Replace log and state, as Kafka and the job do, by those of a topic of the same name."""
        for lane in lanes_of_topic(self.layout):
            self.state.entries[lane.watermark_key] = codec.encode_watermark(a_watermark(superseded=True))
        generation, incarnation = self.layout.generation + 1, self.layout.incarnation + 1
        self.layout = replace(self.layout, generation=generation, incarnation=incarnation)
        self.state.entries |= layout_entry(self.layout)
        self.log = self.kafka.create(self.layout.topic, PARTITIONS)
        self.apply_all()

    def lag(self, key: bytes) -> None:
        """Leave replicas of the key's lane with what is there now."""
        for each in (value_key(self.layout, key), lane_of_key(self.layout, key).watermark_key):
            self.state.lagging[each] = self.state.entries.get(each)

    def ends(self) -> Mapping[int, int]:
        """Return how far the state is."""
        return read_position(self.store, self.layout.topic, 1000).next_offsets

    def changed(self, since: dict[int, int], until: dict[int, int]) -> ChangedKeys:
        deadline = Deadline.after_ms(1000, self.clock)
        return find_changed_keys(self.kafka, self.layout.topic, since, until, deadline)

    def stream(self) -> TopicChanges:
        """Return a stream of the topic's changes that has begun."""
        stream = TopicChanges(self.reader, ChangesRequest(self.layout.topic, b"", TERMS, None, None))
        stream.start()
        return stream

    def stream_of(self, key: bytes) -> KeyChanges:
        """Return a stream of a key's changes that has begun."""
        stream = KeyChanges(self.reader, ChangesRequest(self.layout.topic, key, TERMS, None, None))
        stream.start()
        return stream

    @property
    def reader(self) -> ChangeReader:
        return ChangeReader(
            self.store, lambda: self.kafka, lambda **_: ValueDecoder(lambda: None, WaitBudget(0, self.clock))
        )
