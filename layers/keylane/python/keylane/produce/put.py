"""Writing records: acknowledged by Kafka, with the position that a read can wait for, or queued for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.errors import KeylaneError, LogUnavailable, ProduceFailed, TooLarge, UnknownPartition
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.model.records import is_topic_name
from keylane.ports import Deadline
from keylane.produce.enqueue import enqueue, with_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.model.records import NewRecord
    from keylane.ports import Checks, Clock, Fate, Log
    from keylane.produce.enqueue import WriteAheadLog


@dataclass(frozen=True, slots=True)
class Way:
    """How records go. `wal`: None where all go to Kafka; `is_async`: the writer need not wait for that."""

    wal: WriteAheadLog | None = None
    is_async: bool = False

    @property
    def is_queue(self) -> bool:
        """Whether all go to the write-ahead log."""
        return self.is_async and self.wal is not None and self.wal.takes_async


STRAIGHT = Way()


def put_all(
    log: Log,
    clock: Clock,
    records: Sequence[NewRecord],
    *,
    limit_bytes: int,
    timeout_ms: float,
    way: Way = STRAIGHT,
    checks: Checks | None = None,
) -> list[Fate]:
    """Write records, tombstones among them, at once; give the fate of each, in their order.

    One that can't be written as it is (key or value over its limit, no topic's name, a negative partition)
    keeps none of the others back. Keys may be missing or empty here: such records can't be read by key.
    """
    faults = [_fault(record, limit_bytes) for record in records]
    if checks is not None:
        looked_at = checks.faults([r for r, fault in zip(records, faults, strict=True) if fault is None])
        rest = iter(looked_at)
        faults = [next(rest) if fault is None else fault for fault in faults]
    sound = [record for record, fault in zip(records, faults, strict=True) if fault is None]
    written = iter(_sent(log, clock, sound, timeout_ms, way) if sound else ())
    return [next(written) if fault is None else fault for fault in faults]


def _sent(log: Log, clock: Clock, records: Sequence[NewRecord], timeout_ms: float, way: Way) -> list[Fate]:
    deadline = Deadline.after_ms(timeout_ms, clock)
    if way.wal is None:
        return list(log.append_all(records, deadline))
    if way.is_queue:
        return enqueue(way.wal, clock, records, deadline)
    if not way.wal.takes_failed:
        return list(log.append_all(records, deadline))
    named = with_ids(records)
    # Half of the time is the queue's.
    outcomes: list[Fate] = list(log.append_all(named, Deadline.after_ms(timeout_ms / 2, clock)))
    places = _to_be_queued(records, outcomes)
    queued = enqueue(way.wal, clock, [named[place] for place in places], deadline) if places else []
    for place, outcome in zip(places, queued, strict=True):
        outcomes[place] = outcome
    return outcomes


def _to_be_queued(records: Sequence[NewRecord], outcomes: Sequence[Fate]) -> list[int]:
    """Places of records that Kafka may take later; not those of which a newer one of the key was written."""
    written: set[tuple[str, bytes]] = set()
    places: list[int] = []
    for place in reversed(range(len(records))):
        record, outcome = records[place], outcomes[place]
        identity = None if record.key is None else (record.topic, record.key)
        if not isinstance(outcome, KeylaneError):
            written |= {identity} if identity else set()
        elif _may_pass(outcome) and identity not in written:
            places.append(place)
    return places[::-1]


def _may_pass(error: KeylaneError) -> bool:
    return isinstance(error, LogUnavailable) or (isinstance(error, ProduceFailed) and error.retriable)


def _fault(record: NewRecord, limit_bytes: int) -> KeylaneError | None:
    if not is_topic_name(record.topic):
        what = "that can't be a topic's name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"
        return ProduceFailed("INVALID_TOPIC_EXCEPTION", what, retriable=False)
    if record.key is not None and len(record.key) > KEY_LIMIT_BYTES:
        return TooLarge("key", len(record.key), KEY_LIMIT_BYTES)
    if record.value is not None and len(record.value) > limit_bytes:
        return TooLarge("value", len(record.value), limit_bytes)
    if record.partition is not None and record.partition < 0:
        return UnknownPartition(record.topic, record.partition)
    return None
