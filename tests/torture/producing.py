"""Sends a schedule's records, in transactions and without, and tells positions that reads may ask for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer
from tests.torture.stack import TOPICS

from keylane import routing
from keylane.model.records import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torture.schedule import Produce, Schedule, Write

_PATIENCE_S = 90
_WAITED_FOR = 10
"""One record of so many is waited for by a reader."""


class Producers:
    """An idempotent producer and a transactional one, for the whole run; `written` gets positions."""

    def __init__(self, bootstrap: str, written: Callable[[str, bytes, Position], None]) -> None:
        self._options = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": _PATIENCE_S * 1000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 2,
        }
        self._written = written
        self._plain = Producer(self._options)
        self._transactional = self._new_transactional()
        self.faults: list[str] = []

    def send(self, schedule: Schedule, step: Produce, base_ms: int) -> None:
        """Send the step's records; those in no transaction are on their way when it returns."""
        if step.transaction is None:
            self._produce(self._plain, schedule, step, base_ms, tell=True)
            self._plain.poll(0)
            return
        until = time.monotonic() + _PATIENCE_S
        while not self._transact(schedule, step, base_ms):
            if time.monotonic() > until:
                self.faults.append(f"a transaction did not come to its end within {_PATIENCE_S} s")
                return

    def finish(self) -> None:
        """Wait until all that was sent is in the log."""
        left = self._plain.flush(_PATIENCE_S)
        if left:
            self.faults.append(f"{left} records did not reach the broker within {_PATIENCE_S} s")

    def take_faults(self) -> list[str]:
        """What went wrong since it was last asked."""
        taken, self.faults = self.faults, []
        return taken

    def _produce(
        self, producer: Producer, schedule: Schedule, step: Produce, base_ms: int, *, tell: bool
    ) -> None:
        for write in step.writes:
            key = schedule.key(write.key)
            told = tell and write.serial % _WAITED_FOR == 0
            producer.produce(
                step.topic,
                key=key,
                value=value_of(schedule, write),
                partition=_partition(step.topic, key, write.place),
                timestamp=base_ms + write.time_ms,
                headers=[("serial", b"%d" % write.serial), ("none", None)] if write.serial % 3 else None,
                on_delivery=self._acknowledged if told else self._arrived,
            )
            if not write.serial % 500:
                producer.poll(0)

    def _arrived(self, error, _) -> None:
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self.faults.append(f"a record did not reach the broker: {error}")

    def _acknowledged(self, error, message) -> None:
        self._arrived(error, message)
        if error is None:
            position = Position(message.partition(), message.offset())
            self._written(message.topic(), message.key(), position)

    def _transact(self, schedule: Schedule, step: Produce, base_ms: int) -> bool:
        """Whether it ended as planned; if not it is to be sent anew (the log tells what counts)."""
        producer = self._transactional
        try:
            producer.begin_transaction()
            self._produce(producer, schedule, step, base_ms, tell=False)
            if step.transaction == "abort":
                # Flushed first: what a reader must not see shall lie in the log.
                producer.flush(_PATIENCE_S)
                _patiently(producer.abort_transaction)
            else:
                _patiently(producer.commit_transaction)
        except KafkaException:
            # Fatal, or to be aborted: a new producer of the same name ends what this one left open.
            self._transactional = self._new_transactional()
            return False
        return True

    def _new_transactional(self) -> Producer:
        producer = Producer(
            {**self._options, "transactional.id": "torture", "transaction.timeout.ms": _PATIENCE_S * 1000}
        )
        _patiently(producer.init_transactions)
        return producer


def value_of(schedule: Schedule, write: Write) -> bytes | None:
    """No two records of a run have the same; None for a tombstone."""
    if write.size is None:
        return None
    text = b"%d-%d-" % (schedule.seed, write.serial)
    return text + b"x" * max(0, write.size - len(text))


def _partition(topic: str, key: bytes, place: str | int) -> int:
    return place if isinstance(place, int) else routing.partition_for(key, TOPICS[topic], place)


def _patiently(call: Callable[[float], None]) -> None:
    """Repeat what may be repeated: a broker that is down comes back."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            call(10)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise
        else:
            return
