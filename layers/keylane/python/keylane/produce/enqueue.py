"""Puts records into the write-ahead log: durable when it returns, in Kafka once the drain function has run.

Records of one request, topic and order group share messages. A key's group is its hash, so that its records
stay in order; a record without a key is in the group of the partition that it names, or in any group. A batch
that is too large for a message becomes an object of the bucket, and the message names the object.
"""

import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from keylane.errors import KeylaneError, QueueUnavailable, TooLarge
from keylane.model.records import NewRecord, Queued
from keylane.ports import Bucket, Clock, Deadline, Message, Queue, RecordResult
from keylane.produce import message_codec
from keylane.produce.message_codec import MessageBatch

ID_HEADER = "keylane-id"
"""The id of each record that went through the log: a consumer can drop a record whose id it has seen."""
ATTRIBUTES_BYTES = 1024
"""Left free in each message for the attributes that give the reason, should it become a dead letter."""
_TOPIC_CHARACTERS = 96
"""Of a topic's name in its groups' names, which have at most 128. Topics that begin alike share groups."""


@dataclass(frozen=True, slots=True)
class Batching:
    """How records become messages. `groups`: order groups of a topic, 0 for an unordered queue.

    `limit_bytes` bounds a message with its attributes.
    """

    groups: int
    limit_bytes: int = 262_144

    @property
    def body_limit(self) -> int:
        """The most characters of a message's body."""
        return self.limit_bytes - ATTRIBUTES_BYTES

    @property
    def batch_limit_bytes(self) -> int:
        """The most bytes of a batch in a message."""
        return self.body_limit // 4 * 3


@dataclass(frozen=True, slots=True)
class WriteAheadLog:
    """The queue and bucket, how messages are made, and which records go there.

    `takes_async`: those whose clients don't wait for Kafka. `takes_failed`: those that Kafka did not accept
    in time but may accept later; they may have been written all the same.
    """

    queue: Queue
    bucket: Bucket | None
    batching: Batching
    takes_async: bool = True
    takes_failed: bool = False


@dataclass(slots=True)
class _GrowingBatch:
    """A batch that still takes records: they are encoded; `indices` are theirs in the request."""

    topic: str
    group: str | None
    id: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    indices: list[int] = field(default_factory=list)
    encoded: list[bytes] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    size: int = 0

    def encode(self, accepted_ms: int, object_name: str | None = None) -> bytes:
        batch = MessageBatch(self.id, accepted_ms, self.topic, object_name=object_name)
        return message_codec.encode(batch, self.encoded)


def enqueue(
    wal: WriteAheadLog, clock: Clock, records: Sequence[NewRecord], deadline: Deadline
) -> list[RecordResult]:
    """Put records into the log; return the result of each, in order: Queued, or why it is not.

    The errors are TooLarge (too large for a message, and there is no bucket), QueueUnavailable, Unconfirmed.
    """
    accepted_ms = clock.now_ms()
    results: list[RecordResult] = [QueueUnavailable("it was not queued")] * len(records)
    sendable: list[tuple[_GrowingBatch, Message]] = []
    failed_groups: dict[str, KeylaneError] = {}
    for batch in _batches(records, wal.batching):
        try:
            if batch.group in failed_groups:
                raise failed_groups[batch.group]
            sendable.append((batch, _message(batch, wal, accepted_ms, deadline)))
        except (TooLarge, QueueUnavailable) as error:
            _set_results(results, batch, error)
            if batch.group and isinstance(error, QueueUnavailable):
                failed_groups[batch.group] = error
    errors = wal.queue.send([message for _, message in sendable], deadline) if sendable else []
    for (batch, _), send_error in zip(sendable, errors, strict=True):
        _set_results(results, batch, send_error)
    return results


def with_ids(records: Sequence[NewRecord]) -> list[NewRecord]:
    """The records with an id each, in a header: for records that may be written a second time."""
    request = uuid.uuid4().bytes.hex()
    return [with_id(record, f"{request}-{number}") for number, record in enumerate(records)]


def with_id(record: NewRecord, record_id: str) -> NewRecord:
    """The record with this id in a header; a record that was sent before keeps the id that it has."""
    if _id_in(record) is not None:
        return record
    return replace(record, headers=(*record.headers, (ID_HEADER, record_id.encode())))


def _id_in(record: NewRecord) -> str | None:
    found = next((value for name, value in record.headers if name == ID_HEADER), None)
    return None if found is None else found.decode(errors="replace")


def _set_results(results: list[RecordResult], batch: _GrowingBatch, error: KeylaneError | None) -> None:
    for index, record_id in zip(batch.indices, batch.ids, strict=True):
        results[index] = error or Queued(record_id)


def _message(batch: _GrowingBatch, wal: WriteAheadLog, accepted_ms: int, deadline: Deadline) -> Message:
    data = batch.encode(accepted_ms)
    if message_codec.body_length(len(data)) > wal.batching.body_limit:
        if wal.bucket is None:
            raise TooLarge("record to be queued", len(data), wal.batching.batch_limit_bytes)
        name = f"{batch.topic}/{batch.id.hex()}"
        wal.bucket.put(name, data, deadline)
        data = batch.encode(accepted_ms, name)
    return Message(message_codec.to_body(data), batch.group, batch.id.hex())


def _batches(records: Sequence[NewRecord], batching: Batching) -> list[_GrowingBatch]:
    """Batch records by topic and order group, in order; a record over the limit has its own batch."""
    any_group = uuid.uuid4().int % batching.groups if batching.groups else 0
    batches: list[_GrowingBatch] = []
    growing: dict[tuple[str, str | None], _GrowingBatch] = {}
    for index, record in enumerate(records):
        group = _group_of(record, batching.groups, any_group) if batching.groups else None
        batch = growing.get((record.topic, group))
        encoded = message_codec.encode_record(len(batch.indices) if batch else 0, record)
        if batch is None or batch.size + len(encoded) > batching.batch_limit_bytes:
            batch = _GrowingBatch(record.topic, group, size=message_codec.overhead_bytes(record.topic))
            encoded = message_codec.encode_record(0, record)
            growing[record.topic, group] = batch
            batches.append(batch)
        batch.ids.append(_id_in(record) or f"{batch.id.hex()}-{len(batch.indices)}")
        batch.indices.append(index)
        batch.encoded.append(encoded)
        batch.size += len(encoded)
    return batches


def _group_of(record: NewRecord, groups: int, any_group: int) -> str:
    name = record.topic[:_TOPIC_CHARACTERS]
    if record.key is not None:
        return f"{name}:{zlib.crc32(record.key) % groups}"
    return f"{name}:{any_group}" if record.partition is None else f"{name}:p{record.partition}"
