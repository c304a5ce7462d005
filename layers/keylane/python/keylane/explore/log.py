"""Offsets and raw records of a partition."""

from dataclasses import dataclass, replace

from keylane.errors import OffsetOutOfRange
from keylane.explore.ports import Metadata
from keylane.explore.topics import check_partition
from keylane.model.kafka import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    KafkaTopic,
    LogBatch,
    LogRange,
    OffsetFound,
    OffsetQuery,
)
from keylane.ports import Deadline, LogReader


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Records, and the partition's offsets: `low` of its first record, `high` the one after its last."""

    batch: LogBatch
    low: int
    high: int


def find_offset(
    metadata: Metadata, reader: LogReader, query: OffsetQuery, isolation: str, deadline: Deadline
) -> OffsetFound | None:
    """The offset of a query, None if the partition has no such record.

    Raises UnknownTopic, UnknownPartition, LogUnavailable, LogRefused.
    """
    check_partition(metadata.topic(query.topic, deadline), query.partition)
    (found,) = reader.offsets(query.topic, query.partition, (query.at,), isolation, deadline)
    return found


def find_ends(reader: LogReader, topic: KafkaTopic, partition: int, deadline: Deadline) -> tuple[int, int]:
    """The partition's first offset, and the one after its last.

    Raises UnknownTopic, UnknownPartition, LogUnavailable, LogRefused.
    """
    check_partition(topic, partition)
    return _span(reader, topic.name, partition, READ_UNCOMMITTED, deadline)


def read_records(
    metadata: Metadata,
    reader: LogReader,
    wanted: LogRange,
    max_bytes: int,
    begin: str | None,
    deadline: Deadline,
) -> RecordPage:
    """Records from `begin` (EARLIEST or LATEST) on, or from `wanted.offset` if that is None.

    `wanted.end` is determined here. At the end of the partition the page is empty: no new record is awaited.
    Raises UnknownTopic, UnknownPartition, OffsetOutOfRange, LogUnavailable, LogRefused.
    """
    check_partition(metadata.topic(wanted.topic, deadline), wanted.partition)
    low, high = _span(reader, wanted.topic, wanted.partition, wanted.isolation, deadline)
    first = {EARLIEST: low, LATEST: high}.get(begin or "", wanted.offset)
    wanted = replace(wanted, offset=first, end=high)
    if low <= first < high:
        try:
            [batch] = reader.read([wanted], max_bytes, deadline)
        except OffsetOutOfRange:
            # Retention has removed the record since.
            span = _span(reader, wanted.topic, wanted.partition, wanted.isolation, deadline)
            raise _out_of_range(wanted, *span) from None
        return RecordPage(batch, low, max(high, batch.next_offset))
    if first == high or _is_in_open_transaction(reader, wanted, deadline):
        return RecordPage(LogBatch((), first), low, high)
    raise _out_of_range(wanted, low, high)


def _span(
    reader: LogReader, topic: str, partition: int, isolation: str, deadline: Deadline
) -> tuple[int, int]:
    """The partition's first offset and the one after its last, as a reader of that isolation sees them."""
    low, high = reader.offsets(topic, partition, (EARLIEST, LATEST), isolation, deadline)
    return (low.offset if low else 0), (high.offset if high else 0)


def _is_in_open_transaction(reader: LogReader, wanted: LogRange, deadline: Deadline) -> bool:
    """Whether the offset exists, but lies behind the start of a transaction that has not ended."""
    if wanted.isolation != READ_COMMITTED or wanted.offset < wanted.end:
        return False
    _, high = _span(reader, wanted.topic, wanted.partition, READ_UNCOMMITTED, deadline)
    return wanted.offset <= high


def _out_of_range(wanted: LogRange, low: int, high: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(wanted.topic, wanted.partition, wanted.offset, low, high)
