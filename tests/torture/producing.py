"""Sends a schedule's records, with and without transactions, and reports positions to wait for."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.servers.own import CLOCK
from tests.torture.configurations import DOCUMENTS
from tests.torture.found import document_with_fields
from tests.torture.oracle import Acknowledged
from tests.torture.schedule import Write
from tests.torture.views import document

from keylane import routing
from keylane.model.records import WHOLE_KEY, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.torture.schedule import Produce, Schedule, Shape

_TIMEOUT_S = 90
_TIED, _MOST_APART = 3, 200
_TIED_FROM = 10_000_000
"""The serial numbers of records that tie begin here."""
_WAITED_FOR = 10
"""A reader waits for one record in so many."""


class Producers:
    """An idempotent and a transactional producer for the whole run; `written` is called with positions."""

    def __init__(
        self,
        bootstrap: str,
        shapes: Mapping[str, Shape],
        written: Callable[[str, bytes, Position], None],
    ) -> None:
        self._shapes = shapes
        self._options = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": _TIMEOUT_S * 1000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 2,
        }
        self._written = written
        self._uncommitted: list[tuple[str, int, int]] = []
        self.acknowledged = Acknowledged()
        self._plain = Producer(self._options)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._tied = 0
        self._transactional = self._new_transactional()
        self.faults: list[str] = []

    def send(self, schedule: Schedule, step: Produce, base_ms: int) -> None:
        """Send the step's records; those outside transactions may still be in flight when it returns."""
        if step.transaction is None:
            self._produce(self._plain, schedule, step, base_ms, report=True)
            self._plain.poll(0)
            return
        until = time.monotonic() + _TIMEOUT_S
        while not self._transact(schedule, step, base_ms):
            if time.monotonic() > until:
                self.faults.append(f"a transaction did not end within {_TIMEOUT_S} s")
                return

    def send_one(self, topic: str, key: bytes, partition: int, timestamp_ms: int = 0) -> None:
        """Send one record with an empty value; 0: of the present time."""
        self._plain.produce(
            topic,
            key=key,
            value=b"",
            partition=partition,
            timestamp=timestamp_ms,
            on_delivery=self._acknowledged,
        )

    def send_tied(self, schedule: Schedule, step: Produce, base_ms: int) -> None:
        """Send records of one key to two partitions, with one timestamp and, if nobody else writes, offset.

        One of the two values is too short to be compressed.
        """
        shape, last = self._shapes[step.topic], step.writes[-1]
        if (at := self._nearest_ends(shape)) is None:
            return
        (low, begin), (high, end) = at
        for _ in range(end - begin):
            self.send_one(step.topic, schedule.key(last.key), low, base_ms + last.time_ms)
        self.finish()
        for number in range(_TIED):
            for partition in (low, high):
                self._tied += 1
                write = Write(_TIED_FROM + self._tied, last.key, 0, partition, last.time_ms)
                value = value_of(schedule, write)
                if (partition == low) == bool(number % 2):
                    value = _as_written(shape, value + b"x" * 300, write, base_ms)
                self._plain.produce(
                    step.topic,
                    key=schedule.key(write.key),
                    value=value,
                    partition=partition,
                    timestamp=base_ms + write.time_ms,
                    on_delivery=self._acknowledged,
                )
        self._plain.poll(0)

    def _nearest_ends(self, shape: Shape) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """The two partitions of a topic whose ends differ least, with their ends; None where that is much."""
        asked = {TopicPartition(shape.name, each): OffsetSpec.latest() for each in range(shape.partitions)}
        try:
            futures = self._admin.list_offsets(asked, request_timeout=2)
            ends = sorted((each.result(3).offset, at.partition) for at, each in futures.items())
        except (KafkaException, TimeoutError):
            return None  # a broker is away
        pairs = [(high - low, (p, low), (q, high)) for (low, p), (high, q) in pairwise(ends)]
        apart, low, high = min(pairs)
        return (low, high) if apart <= _MOST_APART else None

    def pause(self, seconds: float) -> None:
        """Send nothing, and take acknowledgements as they arrive."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._plain.poll(left)

    def finish(self) -> None:
        """Wait until all that was sent is in the log."""
        left = self._plain.flush(_TIMEOUT_S)
        if left:
            self.faults.append(f"{left} records did not reach the broker within {_TIMEOUT_S} s")

    def take_faults(self) -> list[str]:
        """The faults since the last call."""
        taken, self.faults = self.faults, []
        return taken

    def _produce(
        self, producer: Producer, schedule: Schedule, step: Produce, base_ms: int, *, report: bool
    ) -> None:
        for write in step.writes:
            key = schedule.key(write.key)
            on_delivery = self._arrived if not report else self._acknowledged
            if report and write.serial % _WAITED_FOR == 0:
                on_delivery = self._reported
            producer.produce(
                step.topic,
                key=key,
                value=_as_written(self._shapes[step.topic], value_of(schedule, write), write, base_ms),
                partition=_partition(self._shapes[step.topic], key, write.placed_by),
                timestamp=base_ms + write.time_ms,
                headers=[("serial", b"%d" % write.serial), ("none", None)] if write.serial % 3 else None,
                on_delivery=on_delivery,
            )
            if not write.serial % 500:
                producer.poll(0)

    def _arrived(self, error, message) -> None:
        """A record of a transaction is in the log."""
        if error is None:
            self._uncommitted.append((message.topic(), message.partition(), message.offset()))
        elif error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self.faults.append(f"a record did not reach the broker: {error}")

    def _acknowledged(self, error, message) -> None:
        if error is None:
            position = message.topic(), message.partition(), message.offset()
            self.acknowledged.note(CLOCK.now_ms(), [position])
        else:
            self._arrived(error, message)

    def _reported(self, error, message) -> None:
        self._acknowledged(error, message)
        if error is None:
            position = Position(message.partition(), message.offset())
            self._written(message.topic(), message.key(), position)

    def _transact(self, schedule: Schedule, step: Produce, base_ms: int) -> bool:
        """Send in a transaction; returns whether it ended as planned. If not, it is sent again."""
        producer = self._transactional
        self._uncommitted = []
        try:
            producer.begin_transaction()
            self._produce(producer, schedule, step, base_ms, report=False)
            if step.transaction == "abort":
                # Flushed first: records that readers must not see have to be in the log.
                producer.flush(_TIMEOUT_S)
                _retry(producer.abort_transaction)
            else:
                _retry(producer.commit_transaction)
                self.acknowledged.note(CLOCK.now_ms(), self._uncommitted)
        except KafkaException:
            # Fatal, or must be aborted: a new producer with the same id ends the open transaction.
            self._transactional = self._new_transactional()
            return False
        return True

    def _new_transactional(self) -> Producer:
        producer = Producer(
            {**self._options, "transactional.id": "torture", "transaction.timeout.ms": _TIMEOUT_S * 1000}
        )
        _retry(producer.init_transactions)
        return producer


def value_of(schedule: Schedule, write: Write) -> bytes | None:
    """A value that is unique in the run; None for a tombstone."""
    if write.size is None:
        return None
    text = b"%b-%d-" % (schedule.prefix[:-1], write.serial)
    return text + b"x" * max(0, write.size - len(text))


def _as_written(topic: Shape, value: bytes | None, write: Write, base_ms: int) -> bytes | None:
    if value is None or not (topic.name == DOCUMENTS or topic.options.fields):
        return value
    made = document_with_fields if topic.options.fields else document
    return made(value, write.serial, base_ms + write.time_ms)


def _partition(topic: Shape, key: bytes, placed_by: str | int) -> int:
    if isinstance(placed_by, int):
        return placed_by
    if placed_by == WHOLE_KEY:
        return routing.partition_for(key, topic.partitions)
    return topic.partition_of(key, placed_by)


def _retry(call: Callable[[float], None]) -> None:
    """Repeat a call while its errors are retriable: a broker that is down comes back."""
    until = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            call(10)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise
        else:
            return
