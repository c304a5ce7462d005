"""What Kafka has refused of each topic lately, so that records like these are sent in batches of their own.

Kafka refuses a complete batch for one record in it. A stranger who sends such records again and again would
slow down everybody whose records share a batch with them. Which records a topic takes follows from its
settings; what it has refused says the same, and needs no permission to read settings.

    INVALID_TIMESTAMP    records at least half as far from now, on the same side of it
    INVALID_RECORD       records without a key: the topic is compacted
    MESSAGE_TOO_LARGE    records of at least half the size
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

if TYPE_CHECKING:
    from keylane.model.records import NewRecord
    from keylane.ports import Clock

REMEMBERED_S = 60.0
LIMIT = 1_000
"""Refusals that are remembered: a few of each topic."""


class Refusals:
    """The refusals of one producer. Records are compared by what the topic has refused them for."""

    def __init__(self) -> None:
        self._least: dict[tuple[str, int, bool], tuple[float, float]] = {}
        """(topic, error code, whether ahead of now) -> the least measure that is refused, and until when."""

    def __bool__(self) -> bool:
        return bool(self._least)

    def note(self, record: NewRecord, code: int, clock: Clock) -> None:
        """Remember that Kafka has refused the record, which was alone in its batch."""
        found = _measure(record, code, clock.now_ms())
        if found is None:
            return
        measure, is_ahead = found
        now_s = clock.monotonic_s()
        if len(self._least) >= LIMIT:
            self._least = {name: each for name, each in self._least.items() if each[1] > now_s}
        if len(self._least) < LIMIT:
            name = record.topic, code, is_ahead
            before, until_s = self._least.get(name, (measure, 0.0))
            least = min(measure / 2, before) if until_s > now_s else measure / 2
            self._least[name] = least, now_s + REMEMBERED_S

    def is_like_refused(self, record: NewRecord, clock: Clock) -> bool:
        """Whether the topic has refused such a record within the last minute."""
        now_s, now_ms = clock.monotonic_s(), clock.now_ms()
        for code in _CODES:
            found = _measure(record, code, now_ms)
            if found is not None:
                least, until_s = self._least.get((record.topic, code, found[1]), (0.0, 0.0))
                if until_s > now_s and found[0] >= least:
                    return True
        return False


_CODES = (KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD, KafkaError.MSG_SIZE_TOO_LARGE)


def _measure(record: NewRecord, code: int, now_ms: float) -> tuple[float, bool] | None:
    """How much the record has of what the error is about, and on which side of now; None if nothing of it."""
    if code == KafkaError.INVALID_TIMESTAMP and record.timestamp_ms is not None:
        return abs(record.timestamp_ms - now_ms), record.timestamp_ms > now_ms
    if code == KafkaError.INVALID_RECORD and record.key is None:
        return 0.0, False
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return float(len(record.key or b"") + len(record.value or b"")), False
    return None
