"""Writes records: directly to Kafka, which acknowledges each one, or into the write-ahead log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from keylane.errors import (
    KeylaneError,
    LogUnavailable,
    ProduceFailed,
    TooLarge,
    TopicNotServed,
    UnknownPartition,
)
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.model.records import NewRecord, Queued, is_topic_name
from keylane.model.routes import PermissionKind
from keylane.model.served_topics import ALL_TOPICS, ServedTopics
from keylane.ports import Checks, Clock, Deadline, Log, RecordResult, WaitBudget
from keylane.produce.enqueue import WriteAheadLog, enqueue, with_ids
from keylane.produce.readable import ReadersRules

NOTHING_REFUSED: Mapping[str, KeylaneError] = MappingProxyType({})
NO_REGISTRY_TIME = WaitBudget(0, Clock())


@dataclass(frozen=True, slots=True)
class RecordWriter:
    """Where records go, and the limits of one request.

    `timeout_ms` bounds the request. `wal` is None without a write-ahead log, `checks` without schemas.
    `served`: the topics that may be written. `readers`: what these expect of records, None without a Redis.
    """

    log: Log
    clock: Clock
    value_limit_bytes: int
    timeout_ms: float
    wal: WriteAheadLog | None = None
    checks: Checks | None = None
    served: ServedTopics = ALL_TOPICS
    readers: ReadersRules | None = None


def put_all(
    writer: RecordWriter,
    records: Sequence[NewRecord],
    *,
    refused: Mapping[str, KeylaneError] = NOTHING_REFUSED,
    is_async: bool = False,
    is_raw: bool = False,
    registry_wait: WaitBudget = NO_REGISTRY_TIME,
) -> list[RecordResult]:
    """Write records, tombstones included, in one batch; return their results in the same order.

    A record that can't be written (its key or value is over the limit, its topic is not served, its
    partition is negative, its value doesn't match the schema, readers could not read it) doesn't hold up the
    others. A key may be None or empty: such a record can't be read by key.
    `refused`: topic -> why its records are not written. `is_async`: the client doesn't wait for Kafka.
    `is_raw`: whether readers can read a record is the client's concern.
    `registry_wait`: how long the request may wait for the schemas of its checks.
    """
    faults = [refused.get(record.topic) or _fault(record, writer) for record in records]
    if writer.readers is not None and not is_raw:
        # Only of topics that may be written: clients could name any number of others.
        topics = {record.topic for record, fault in zip(records, faults, strict=True) if fault is None}
        if expected := writer.readers.expectations(topics):
            unread = iter(writer.readers.faults(_sound(records, faults), expected, registry_wait))
            faults = [next(unread) if fault is None else fault for fault in faults]
    if writer.checks is not None:
        with registry_wait.asking() as deadline:
            found = iter(writer.checks.faults(_sound(records, faults), deadline))
        faults = [next(found) if fault is None else fault for fault in faults]
    sound = _sound(records, faults)
    results = iter(_write(writer, sound, is_async=is_async) if sound else ())
    return [next(results) if fault is None else fault for fault in faults]


def _sound(records: Sequence[NewRecord], faults: Sequence[KeylaneError | None]) -> list[NewRecord]:
    return [record for record, fault in zip(records, faults, strict=True) if fault is None]


def _write(writer: RecordWriter, records: Sequence[NewRecord], *, is_async: bool) -> list[RecordResult]:
    deadline = Deadline.after_ms(writer.timeout_ms, writer.clock)
    wal = writer.wal
    if wal is not None and wal.takes_async and is_async:
        return enqueue(wal, writer.clock, records, deadline)
    if wal is not None and wal.takes_failed:
        return _write_or_enqueue(writer, wal, records, deadline)
    return list(writer.log.append_all(records, deadline))


def _write_or_enqueue(
    writer: RecordWriter, wal: WriteAheadLog, records: Sequence[NewRecord], deadline: Deadline
) -> list[RecordResult]:
    """Write records to Kafka; enqueue those that it may accept later."""
    # A record may be written twice, by this request and from the queue: its id is the same both times.
    named = with_ids(records)
    # Kafka has half of the time, the queue the rest.
    for_kafka = Deadline.after_ms(writer.timeout_ms / 2, writer.clock)
    results: list[RecordResult] = list(writer.log.append_all(named, for_kafka))
    indices = _to_enqueue(records, results)
    queued = enqueue(wal, writer.clock, [named[index] for index in indices], deadline) if indices else []
    for index, result in zip(indices, queued, strict=True):
        # What Kafka may have is uncertain, whatever the queue says.
        if isinstance(result, Queued) or not getattr(results[index], "uncertain", False):
            results[index] = result
    return results


def _to_enqueue(records: Sequence[NewRecord], results: Sequence[RecordResult]) -> list[int]:
    """Indices of failed records that Kafka may accept later.

    A record is left out if a newer one with its key was written: the older one would overwrite it.
    """
    newest = {
        (record.topic, record.key): index
        for index, record in enumerate(records)
        if not isinstance(results[index], KeylaneError)
    }
    return [
        index
        for index, record in enumerate(records)
        if _is_transient(results[index])
        and (record.key is None or newest.get((record.topic, record.key), -1) < index)
    ]


def _is_transient(result: RecordResult) -> bool:
    return isinstance(result, LogUnavailable) or (isinstance(result, ProduceFailed) and result.retriable)


def _fault(record: NewRecord, writer: RecordWriter) -> KeylaneError | None:
    value_limit_bytes = writer.value_limit_bytes
    if not is_topic_name(record.topic):
        what = "that can't be a topic's name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"
        return ProduceFailed("INVALID_TOPIC_EXCEPTION", what, retriable=False)
    if not writer.served.is_served(record.topic, PermissionKind.WRITE):
        return TopicNotServed(record.topic, "written")
    if record.key is not None and len(record.key) > KEY_LIMIT_BYTES:
        return TooLarge("key", len(record.key), KEY_LIMIT_BYTES)
    if record.value is not None and len(record.value) > value_limit_bytes:
        return TooLarge("value", len(record.value), value_limit_bytes)
    if record.partition is not None and record.partition < 0:
        return UnknownPartition(record.topic, record.partition)
    return None
