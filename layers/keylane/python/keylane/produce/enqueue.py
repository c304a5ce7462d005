"""Records into the write-ahead log: durable when it returns, in Kafka once the drain function has had them.

Records of one request, topic and order group share messages. A key's group is its hash, so its records stay
in their order; records without a key are in the group of the partition that they name, or in any. A record
that is too large for a message goes into the bucket, and the message names it.
"""

from __future__ import annotations

import uuid
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from keylane.errors import KeylaneError, QueueUnavailable, TooLarge
from keylane.model.records import Queued
from keylane.ports import Message
from keylane.produce import message_codec
from keylane.produce.message_codec import Parcel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.model.records import NewRecord
    from keylane.ports import Bucket, Clock, Deadline, Queue, RecordResult

ID_HEADER = "keylane-id"
"""Of each record that went through the log: a consumer that met the id already drops the record."""
ATTRIBUTES_BYTES = 1024
"""Left free in each message: should it end in the dead-letter queue, its attributes say why."""
_GROUP_CHARACTERS = 96
"""Of a topic's name: a group's has 128 at most. Topics that begin alike merely share their groups."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How messages are made. `groups`: order groups of a topic, 0 for a queue that keeps no order.

    `limit_bytes`: of a message, attributes and all.
    """

    groups: int
    limit_bytes: int = 262_144

    @property
    def body_characters(self) -> int:
        """What a message's body may have."""
        return self.limit_bytes - ATTRIBUTES_BYTES


@dataclass(slots=True)
class _Pack:
    """A parcel in the making: encoded records, and their places in the request."""

    topic: str
    group: str | None
    id: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    places: list[int] = field(default_factory=list)
    encoded: list[bytes] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    size: int = 0

    def data(self, accepted_ms: int, left_at: str | None = None) -> bytes:
        return message_codec.encode(Parcel(self.id, accepted_ms, self.topic, left_at=left_at), self.encoded)


@dataclass(frozen=True, slots=True)
class WriteAheadLog:
    """The queue, how its messages are made, and which records go there.

    `takes_async`: those whose writers need not wait. `takes_failed`: those that Kafka did not take in time,
    though it may later; they may have been written all the same.
    """

    queue: Queue
    bucket: Bucket | None
    packing: Packing
    takes_async: bool = True
    takes_failed: bool = False


def enqueue(
    wal: WriteAheadLog, clock: Clock, records: Sequence[NewRecord], deadline: Deadline
) -> list[RecordResult]:
    """Put records into the log; give the fate of each, in their order: Queued, or why not.

    Gives TooLarge where a record fits into no message and there is no bucket, QueueUnavailable, Unconfirmed.
    """
    accepted_ms = clock.now_ms()
    outcomes: list[RecordResult] = [QueueUnavailable("it was not queued")] * len(records)
    sendable: list[tuple[_Pack, Message]] = []
    failed_groups: dict[str, KeylaneError] = {}
    for pack in _packed(records, wal.packing):
        try:
            if pack.group in failed_groups:
                raise failed_groups[pack.group]
            sendable.append((pack, _message(pack, wal, accepted_ms, deadline)))
        except (TooLarge, QueueUnavailable) as error:
            _tell(outcomes, pack, error)
            if pack.group and isinstance(error, QueueUnavailable):
                failed_groups[pack.group] = error
    fates = wal.queue.send([message for _, message in sendable], deadline) if sendable else []
    for (pack, _), fate in zip(sendable, fates, strict=True):
        _tell(outcomes, pack, fate)
    return outcomes


def with_ids(records: Sequence[NewRecord]) -> list[NewRecord]:
    """The records with ids of their own, in the header: those that may be written a second time."""
    request = uuid.uuid4().bytes.hex()
    return [with_id(record, f"{request}-{number}") for number, record in enumerate(records)]


def id_in(record: NewRecord) -> str | None:
    """The id that a record has in its header, None without one."""
    found = next((value for name, value in record.headers if name == ID_HEADER), None)
    return None if found is None else found.decode(errors="replace")


def with_id(record: NewRecord, record_id: str) -> NewRecord:
    """The record with this id in its header, unless it has one already: then it was sent before."""
    if id_in(record) is not None:
        return record
    return replace(record, headers=(*record.headers, (ID_HEADER, record_id.encode())))


def _tell(outcomes: list[RecordResult], pack: _Pack, error: KeylaneError | None) -> None:
    for place, record_id in zip(pack.places, pack.ids, strict=True):
        outcomes[place] = error or Queued(record_id)


def _message(pack: _Pack, wal: WriteAheadLog, accepted_ms: int, deadline: Deadline) -> Message:
    room = wal.packing.body_characters
    data = pack.data(accepted_ms)
    if message_codec.text_bytes(len(data)) > room:
        if wal.bucket is None:
            raise TooLarge("record to be queued", len(data), room // 4 * 3)
        name = f"{pack.topic}/{pack.id.hex()}"
        wal.bucket.put(name, data, deadline)
        data = pack.data(accepted_ms, name)
    return Message(message_codec.to_text(data), pack.group, pack.id.hex())


def _packed(records: Sequence[NewRecord], packing: Packing) -> list[_Pack]:
    """Parcels of one topic and group each, in the records' order; one of a large record has it alone."""
    room = packing.body_characters // 4 * 3
    group_of = _grouping(packing.groups)
    packs: list[_Pack] = []
    open_packs: dict[tuple[str, str | None], _Pack] = {}
    for place, record in enumerate(records):
        group = group_of(record)
        pack = open_packs.get((record.topic, group))
        encoded = message_codec.encode_record(len(pack.places) if pack else 0, record)
        if pack is None or pack.size + len(encoded) > room:
            pack = _Pack(record.topic, group, size=message_codec.overhead_bytes(record.topic))
            encoded = message_codec.encode_record(0, record)
            open_packs[record.topic, group] = pack
            packs.append(pack)
        pack.ids.append(id_in(record) or f"{pack.id.hex()}-{len(pack.places)}")
        pack.places.append(place)
        pack.encoded.append(encoded)
        pack.size += len(encoded)
    return packs


def _grouping(groups: int) -> Callable[[NewRecord], str | None]:
    """The group of each record of a request."""
    if not groups:
        return lambda _: None
    anywhere = uuid.uuid4().int % groups

    def group_of(record: NewRecord) -> str:
        name = record.topic[:_GROUP_CHARACTERS]
        if record.key is not None:
            return f"{name}:{zlib.crc32(record.key) % groups}"
        return f"{name}:{anywhere}" if record.partition is None else f"{name}:p{record.partition}"

    return group_of
