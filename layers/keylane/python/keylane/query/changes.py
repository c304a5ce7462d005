"""What changed in a topic: the state says how far it is, the log which keys its records are of.

A change is reported once the state has it, so whoever reads the key after that finds it, or a newer one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from keylane.errors import OffsetOutOfRange
from keylane.model.kafka import EARLIEST, READ_UNCOMMITTED, LogRange
from keylane.model.records import Position
from keylane.ports import Call, Deadline
from keylane.query.store import read_current
from keylane.state.lanes import lanes_of_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.ports import LogReader
    from keylane.query.decoding import ValueDecoder
    from keylane.query.store import Reading, Store

BATCH_RECORDS = 500
"""Of one partition: what a batch has of each is read from the state, too."""
BATCH_BYTES = 1 << 20


class ChangeReader(NamedTuple):
    """What changes are read with. `log`: opens Kafka, which only changes of whole topics need."""

    store: Store
    log: Callable[[], LogReader]
    decoder: Callable[[], ValueDecoder]


class ChangedKeys(NamedTuple):
    """Keys that have new records, in the log's order within each partition.

    `next_offsets`: where the next batch begins. `lost`: where records were removed before they were read.
    """

    keys: list[bytes]
    next_offsets: dict[int, int]
    lost: list[Position]


def read_next_offsets(store: Store, topic: str, timeout_ms: float) -> dict[int, int]:
    """Return how far the state of each partition is: the offset below which it has everything.

    Raises UnknownTopic, LaneBuilding for a lane that has not begun, StateUnavailable, CorruptState.
    """
    deadline = Deadline.after_ms(timeout_ms, store.clock)
    _, reading = read_current(store, topic, deadline, _read_watermarks)
    reading.watermarks.check_complete(partial=True)
    return reading.watermarks.next_offsets


def _read_watermarks(reading: Reading) -> None:
    lanes = lanes_of_topic(reading.layout)
    replies = reading.run([Call(lane.slot, (b"GET", lane.watermark_key)) for lane in lanes])
    for lane, watermark in zip(lanes, replies, strict=True):
        reading.watermarks.note(lane, watermark)


def find_changed_keys(
    log: LogReader, topic: str, since: Mapping[int, int], until: Mapping[int, int], deadline: Deadline
) -> ChangedKeys:
    """Return the keys of the log's records from `since` on and below `until`, or of the first of them.

    A partition that `since` lacks is read from its first record: it was added. Transactions that are not
    committed, or were aborted, are read too: the state knows what counts. Raises LogUnavailable, LogRefused,
    UnknownTopic.
    """
    keys: dict[bytes, None] = {}
    next_offsets, lost = dict(since), []
    for partition, end in until.items():
        offset = since.get(partition, 0)
        if offset >= end:
            continue
        wanted = LogRange(
            topic, partition, offset, end, BATCH_RECORDS, BATCH_BYTES, isolation=READ_UNCOMMITTED
        )
        try:
            batch = log.read(wanted, deadline)
        except OffsetOutOfRange:
            (first,) = log.offsets(topic, partition, (EARLIEST,), READ_UNCOMMITTED, deadline)
            next_offsets[partition] = first.offset if first and offset < first.offset < end else end
            if partition in since:
                lost.append(Position(partition, offset))
            continue
        # A record that is newer moves its key to the end: in this order they were written.
        for record in batch.records:
            if record.key:
                keys.pop(record.key, None)
                keys[record.key] = None
        next_offsets[partition] = min(batch.next_offset, end) if batch.records else end
    return ChangedKeys(list(keys), next_offsets, lost)
