"""Writing records to Kafka: each acknowledged, with the position that a read can wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import KeylaneError, ProduceFailed, TooLarge, UnknownPartition
from keylane.keys import KEY_LIMIT_BYTES
from keylane.model import is_topic_name
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.model import NewRecord
    from keylane.ports import Clock, Log, Outcome


def put_all(
    log: Log, clock: Clock, records: Sequence[NewRecord], *, limit_bytes: int, timeout_ms: float
) -> list[Outcome]:
    """Write records, tombstones among them, at once; give the fate of each, in their order.

    One that can't be written as it is (key or value over its limit, no topic's name, a negative partition)
    keeps none of the others back. Keys may be missing or empty here: such records can't be read by key.
    """
    faults = [_fault(record, limit_bytes) for record in records]
    sound = [record for record, fault in zip(records, faults, strict=True) if fault is None]
    written = iter(log.append_all(sound, Deadline.after_ms(timeout_ms, clock)) if sound else ())
    return [next(written) if fault is None else fault for fault in faults]


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
