"""The model's Kafka: a log of one topic that grows, and of which retention and compaction remove records."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

from keylane import routing
from keylane_spark.log.kafka_admin import LogEnd, TopicShape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TOPIC = "model"
BASE_MS = 1_700_000_000_000
GROWN = 3
"""How many partitions the topic has once it has grown."""
TOMBSTONES_LAST_MS = 3_600_000
"""How long a compacted log keeps tombstones: longer than any number of steps."""


class Logged(NamedTuple):
    """A record. Its timestamp and its acknowledgement follow the order in which records were written."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None
    number: int
    acked: int

    @property
    def place(self) -> tuple[str, int]:
        return TOPIC, self.partition


class Kind(NamedTuple):
    """What a record to be written is: in this partition, a set or a tombstone, of one of KEYS."""

    partition: int
    is_set: bool
    key: int = 0

    def __str__(self) -> str:
        of = f" of key {self.key}" if self.key else ""
        return f"{'set' if self.is_set else 'delete'}{of} in {self.partition}"


@dataclass(frozen=True)
class Batch:
    """A batch, as far as the job asks Spark for it."""

    records: list[Logged]

    def coalesce(self, _: int) -> Self:
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802 (Spark's name)
        records = self.records
        return pa.table(
            {
                "partition": pa.array([r.partition for r in records], pa.int32()),
                "offset": pa.array([r.offset for r in records], pa.int64()),
                "timestamp": pa.array(
                    [(BASE_MS + r.number) * 1000 for r in records], pa.timestamp("us", tz="UTC")
                ),
                "key": pa.array([r.key for r in records], pa.binary()),
                "value": pa.array([r.value for r in records], pa.binary()),
            }
        )


@dataclass(kw_only=True)
class Kafka:
    """The log, and what the job asks a broker. Time is the number of the step, and the hours that go by.

    `log`: all records that were ever acknowledged. `removed_below`: the oldest offset of partitions of which
    retention has removed records. `cleaned`: the numbers of the records that compaction has removed.
    `compacted_after`: how long compaction leaves tombstones in the log. `expired`: how many records' times to
    live are over.
    """

    partition_count: int = 2
    log: tuple[Logged, ...] = ()
    now: int = 1
    removed_below: dict[int, int] = field(default_factory=dict)
    cleaned: frozenset[int] = frozenset()
    compacted_after: float = math.inf
    expired: int = 0

    # What the job asks of Kafka.

    def describe(self, topics: Sequence[str]) -> dict[str, TopicShape]:
        return {topic: TopicShape("id", self.partition_count) for topic in topics}

    def oldest_offsets(self, counts: Mapping[str, int]) -> dict[tuple[str, int], int]:
        return {place: self.removed_below.get(place[1], 0) for place in self._places(counts)}

    def tombstones_last_ms(self, topic: str) -> float:  # noqa: ARG002
        return self.compacted_after

    def ends(self, counts: Mapping[str, int]) -> dict[tuple[str, int], LogEnd]:
        return {place: LogEnd(self.end(place[1]), 0) for place in self._places(counts)}

    def _places(self, counts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        return ((TOPIC, partition) for partition in range(counts[TOPIC]))

    # What the model asks.

    def end(self, partition: int) -> int:
        """The offset behind a partition's last record."""
        return sum(record.partition == partition for record in self.log)

    def rows(
        self, ends: Mapping[tuple[str, int], int], begins: Mapping[tuple[str, int], int]
    ) -> Batch | None:
        """What the log still has of these ranges; None where retention has removed their beginning."""
        if any(begins[place] < min(self.removed_below.get(place[1], 0), end) for place, end in ends.items()):
            return None
        return Batch(
            [
                row
                for row in self.log
                if row.place in ends
                and begins[row.place] <= row.offset < ends[row.place]
                and row.number not in self.cleaned
            ]
        )

    def is_there(self, record: Logged) -> bool:
        """Whether the log still has a record."""
        return record.number not in self.cleaned and record.offset >= self.removed_below.get(
            record.partition, 0
        )

    # What happens to it.

    def write(self, kind: Kind) -> bool:
        """Kafka acknowledges a record."""
        self.now += 1
        offset, value = self.end(kind.partition), document(len(self.log)) if kind.is_set else None
        record = Logged(kind.partition, offset, KEYS[kind.key], value, len(self.log), self.now)
        self.log = (*self.log, record)
        return True

    def grow(self) -> bool:
        """The topic gets another partition."""
        self.now += 1
        self.partition_count = GROWN
        return True

    def retain(self, partition: int) -> bool:
        """Retention removes a partition's oldest record."""
        oldest = self.removed_below.get(partition, 0)
        if oldest >= self.end(partition):
            return False
        self.now += 1
        self.removed_below = self.removed_below | {partition: oldest + 1}
        return True

    def compact(self) -> bool:
        """Compaction removes what a later record of the same partition replaces, and tombstones of old."""
        self.now += 1
        replaced = {
            record.number
            for record in self.log
            for later in self.log[record.number + 1 :]
            if (later.partition, later.key) == (record.partition, record.key)
        }
        old = {
            record.number
            for record in self.log
            if record.value is None and record.acked < self.now - self.compacted_after
        }
        before, self.cleaned = self.cleaned, self.cleaned | replaced | old
        return self.cleaned != before


def document(number: int) -> bytes:
    """A record's value: some of its fields are those of the record before, and every third has one less."""
    parity = "odd" if number % 2 else "even"
    found = {"n": number, "tags": ["all", parity]}
    return json.dumps(found if number % 3 == 2 else {**found, "parity": parity}).encode()


def _keys() -> tuple[bytes, ...]:
    """Two keys of lane 0 around one of lane 1; the first one moves when the topic grows."""
    found = [b"%d" % number for number in range(1000)]
    of_lane = [[key for key in found if routing.partition_for(key, 2) == lane] for lane in (0, 1)]
    first = next(key for key in of_lane[0] if routing.partition_for(key, GROWN) == GROWN - 1)
    return first, of_lane[1][0], next(key for key in of_lane[0] if key != first)


KEYS = _keys()
