"""What the state must be: a fold of the log in plain Python, by the order rule in docs/decisions.

It shares only the partitioner with the writer. When each write was acknowledged says what an answer that is
complete as of a later time must contain: one machine has the clocks of producers, job and readers.
"""

from __future__ import annotations

import bisect
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.torture.schedule import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from keylane.model.kafka import TopicPartition as Source
    from keylane.model.records import Record


class Acknowledged:
    """Of each partition, the offsets acknowledged so far by time.

    A record in a transaction counts as acknowledged once the commit has returned.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times_ms: dict[Source, list[float]] = {}
        self._next_offsets: dict[Source, list[int]] = {}

    def note(self, at_ms: float, positions: Iterable[tuple[str, int, int]]) -> None:
        """Add topic, partition and offset of records whose acknowledgement arrived by `at_ms`."""
        highest: dict[Source, int] = {}
        for topic, partition, offset in positions:
            source = topic, partition
            highest[source] = max(offset, highest.get(source, -1))
        with self._lock:
            for source, offset in highest.items():
                times_ms = self._times_ms.setdefault(source, [])
                next_offsets = self._next_offsets.setdefault(source, [])
                # The time comes last: `next_offset` looks for it, without the lock.
                next_offsets.append(max(offset + 1, next_offsets[-1] if next_offsets else 0))
                # A clock that goes back makes no earlier write due.
                times_ms.append(max(at_ms, times_ms[-1] if times_ms else 0))

    def ends(self) -> dict[Source, int]:
        """Of each partition the offset behind all that were acknowledged."""
        with self._lock:
            return {source: offsets[-1] for source, offsets in self._next_offsets.items()}

    def next_offset(self, topic: str, partition: int, before_ms: float) -> int:
        """Everything below this offset of the partition was written before a time; 0: nothing was."""
        source = topic, partition
        index = bisect.bisect_left(self._times_ms.get(source, ()), before_ms)
        return self._next_offsets[source][index - 1] if index else 0


_END = 1 << 63


class Logged(NamedTuple):
    """A committed record as Kafka has it; a value of None is a tombstone."""

    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    order_ms: int
    """The highest timestamp of the key's records in this partition up to this one."""


@dataclass(slots=True)
class KeyLog:
    """The committed records of one key: by partition, in offset order."""

    own_partition: int
    shape: Shape = Shape("", 1)  # noqa: RUF009 - frozen
    records: dict[int, list[Logged]] = field(default_factory=dict)
    _stray_tombstones: list[Logged] = field(default_factory=list)
    _counted: int = -1
    _kept: dict[int, list[Logged]] = field(default_factory=dict)
    """Of a topic that keeps first values: what each record left of those before it."""

    def rank(self, record: Logged) -> tuple[int, bool, int, int]:
        """Of two records the one with the higher rank stays."""
        return record.order_ms, record.partition == self.own_partition, -record.partition, record.offset

    def newest(self) -> Logged | None:
        """The record that stays in the end; it may be a tombstone."""
        lasts = [self.newest_of(partition) for partition in self.records]
        return max((last for last in lasts if last is not None), key=self.rank, default=None)

    def newest_at(self, next_offset: int) -> Logged | None:
        """What stays of the key's own partition below an offset."""
        return self.newest_of(self.own_partition, next_offset)

    def newest_of(self, partition: int, next_offset: int = _END) -> Logged | None:
        """What stays of the key's records in a partition below an offset: the last, or the first set."""
        records = self.records.get(partition, [])
        index = bisect.bisect_left(records, next_offset, key=lambda record: record.offset)
        if not index or not self.shape.options.insert_once:
            return records[index - 1] if index else None
        kept = self._kept.setdefault(partition, [])
        for record in records[len(kept) :]:
            is_second = kept and kept[-1].value is not None and record.value is not None
            kept.append(kept[-1] if is_second else record)
        return kept[index - 1]

    def is_gone(self, record: Logged, at_ms: int) -> bool:
        """Whether a key whose newest record is this one is absent at a time."""
        ttl_ms = self.shape.options.ttl_ms
        return record.value is None or (ttl_ms is not None and record.timestamp_ms + ttl_ms <= at_ms)

    def stray_tombstone_above(self, record: Logged) -> Logged | None:
        """The lowest tombstone above a record in a partition that is not the key's own."""
        count = sum(map(len, self.records.values()))
        if count != self._counted:
            self._counted = count
            self._stray_tombstones = sorted(
                (
                    other
                    for partition, records in self.records.items()
                    if partition != self.own_partition
                    for other in records
                    if other.value is None
                ),
                key=self.rank,
            )
        index = bisect.bisect_right(self._stray_tombstones, self.rank(record), key=self.rank)
        return self._stray_tombstones[index] if index < len(self._stray_tombstones) else None

    def may_vanish(self, record: Logged, next_offset: int, at_ms: int) -> bool:
        """Whether a record of the key's own partition from an offset on leaves nothing of an older one."""
        records = self.records.get(self.own_partition, [])
        index = bisect.bisect_left(records, next_offset, key=lambda own: own.offset)
        rank = self.rank(record)
        return any(self.is_gone(own, at_ms) and self.rank(own) > rank for own in records[index:])

    def at(self, partition: int, offset: int) -> Logged | None:
        """The record at a position; None where this key has none."""
        records = self.records.get(partition, [])
        index = bisect.bisect_left(records, offset, key=lambda record: record.offset)
        return records[index] if index < len(records) and records[index].offset == offset else None

    def history(self) -> list[Logged]:
        """What a history holds, tombstones too, oldest first: the newest ones, or all of them."""
        everything = [record for records in self.records.values() for record in records]
        everything.sort(key=self.history_rank)
        count = self.shape.options.history_count
        return everything if count is None else everything[-count:]

    def as_of_rank(self, record: Logged) -> tuple[int, bool, int, int]:
        """Of two records of a history the one with the higher rank is the newer one as of a time."""
        return record.timestamp_ms, *self.rank(record)[1:]

    def history_rank(self, record: Logged) -> tuple[int, int, bool, int]:
        """The order of a history: time and offset; then the own partition wins, and the lower one."""
        own = record.partition == self.own_partition
        return record.timestamp_ms, record.offset, own, -record.partition


class Log:
    """Everything committed to the topics; after each schedule the rest is read."""

    def __init__(self, bootstrap: str, shapes: Mapping[str, Shape]) -> None:
        """`shapes`: by name."""
        self._shapes = shapes
        self._bootstrap = bootstrap
        self._admin = self._new_admin()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "torture",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )
        self.next_offsets = {
            (topic, partition): 0 for topic, shape in shapes.items() for partition in range(shape.partitions)
        }
        self.keys: dict[tuple[str, bytes], KeyLog] = {}
        self._offsets: dict[tuple[str, int], list[tuple[int, bytes]]] = {}

    def keys_between(self, topic: str, partition: int, begin: int, end: int) -> set[bytes]:
        """The keys of a partition's records from an offset on and below another."""
        offsets = self._offsets.get((topic, partition), [])
        at, until = (bisect.bisect_left(offsets, (offset, b"")) for offset in (begin, end))
        return {key for _, key in offsets[at:until]}

    def keys_of(self, topic: str) -> list[bytes]:
        return [key for (name, key), log in self.keys.items() if name == topic and log.records]

    def ends(self, within_s: float = 60) -> dict[tuple[str, int], int]:
        """The end of each partition, before any open transaction."""
        until = time.monotonic() + within_s
        while True:
            try:
                return self._ends()
            except KafkaException:
                if time.monotonic() > until:
                    raise
                # A broker that was killed leaves the client with an old leader epoch, for minutes.
                self._admin = self._new_admin()

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 2})

    def _ends(self) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(*partition): OffsetSpec.latest() for partition in self.next_offsets}
        futures = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=10
        )
        return {(each.topic, each.partition): f.result(15).offset for each, f in futures.items()}

    def read_on(self, timeout_s: float = 60) -> dict[tuple[str, int], int]:
        """Read to the present ends, and return them."""
        ends = self.ends()
        open_ = {each for each, end in ends.items() if end > self.next_offsets[each]}
        self._consumer.assign([TopicPartition(*each, self.next_offsets[each]) for each in sorted(open_)])
        until = time.monotonic() + timeout_s
        while open_:
            assert time.monotonic() < until, f"the log could not be read to its ends: {open_}"
            for message in self._consumer.consume(2_000, 0.05):
                source = message.topic(), message.partition()
                error = message.error()
                if error is None:
                    self._take(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= ends[source]:
                        open_.discard(source)
                else:
                    assert error.retriable() or not error.fatal(), error
        self.next_offsets = ends
        return ends

    def close(self) -> None:
        self._consumer.close()

    def of(self, topic: str, key: bytes) -> KeyLog:
        """The records of a key; empty for one that has none."""
        log = self.keys.get((topic, key))
        if log is None:
            shape = self._shapes[topic]
            log = KeyLog(shape.partition_of(key), shape)
            self.keys[topic, key] = log
        return log

    def forget(self, kept: int, before_ms: int) -> None:
        """Let a long run need no more memory: keep so many records of a key, none that had expired by then.

        `keys_between` knows nothing any more of what was read before.
        """
        self._offsets.clear()
        for name, key_log in list(self.keys.items()):
            for records in key_log.records.values():
                del records[:-kept]
            newest = key_log.newest()
            if newest and newest.value is not None and key_log.is_gone(newest, before_ms):
                del self.keys[name]

    def _take(self, message) -> None:
        kind, timestamp_ms = message.timestamp()
        assert kind != TIMESTAMP_NOT_AVAILABLE
        records = self.of(message.topic(), message.key()).records.setdefault(message.partition(), [])
        if records and records[-1].offset >= message.offset():
            return  # read before: an end moved while it was read
        source = message.topic(), message.partition()
        self._offsets.setdefault(source, []).append((message.offset(), message.key()))
        records.append(
            Logged(
                message.partition(),
                message.offset(),
                timestamp_ms,
                message.value(),
                tuple(message.headers() or ()),
                max(timestamp_ms, records[-1].order_ms if records else 0),
            )
        )


def is_same(record: Record | None, logged: Logged | None) -> bool:
    """Whether both are the same record; an absent one equals a tombstone."""
    if record is None or logged is None or logged.value is None:
        return record is None and (logged is None or logged.value is None)
    return (
        (record.partition, record.offset, record.value, record.timestamp_ms)
        == (logged.partition, logged.offset, logged.value, logged.timestamp_ms)
    )  # fmt: skip


def show(record: Logged | Record | None) -> str:
    """The record as a fault names it."""
    if record is None:
        return "nothing"
    value = "a tombstone" if record.value is None else f"{record.value[:24]!r}"
    return f"{value} at {record.partition}:{record.offset}"
