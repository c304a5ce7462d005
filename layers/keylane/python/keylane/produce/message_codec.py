"""The bytes of a message of the write-ahead log: a batch of records of one topic and one order group.

A message's body is the base64 of a batch (all numbers big-endian):

    0       version        u8   1
    1       flags          u8   bit 0: the batch is an object of the bucket, whose name follows
    2..17   id             16 bytes
    18..25  accepted ms    u64  when the records were accepted: the timestamp of those that have none
    topic                  u8 length, ASCII
    then, for a batch that is in the message, a u16 count of records and for each:
        number             u16  its index in the first batch that held it: with the id it names the record
        flags              u8   bit 0: key, bit 1: value (none: a tombstone), bit 2: partition,
                                bit 3: timestamp, bit 4: headers; flagged fields follow in this order
        key                u32 length, bytes
        value              u32 length, bytes
        partition          u32
        timestamp ms       u64
        headers            u16 count, for each: u32 length and UTF-8 of its name,
                                i32 length (-1: null) and bytes of its value
    or, for a batch that is in the bucket:
        name               u16 length, UTF-8
    checksum               u32  CRC32 of all bytes before it

A record's id is the batch's id in hexadecimal, a dash, and the record's number. A batch that is moved to
another queue, completely or in part, keeps the ids of its records.
"""

import base64
import binascii
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keylane.model.records import NewRecord
from keylane.state.codec import CodecError

VERSION = 1
IN_BUCKET = 0b1
ID_BYTES = 16
_KEY, _VALUE, _PARTITION, _TIMESTAMP, _HEADERS = (1 << bit for bit in range(5))
_HEADER = struct.Struct(f">BB{ID_BYTES}sQ")
_RECORD = struct.Struct(">HB")
_U8, _U16, _U32, _U64, _I32 = (struct.Struct(f">{code}") for code in "BHIQi")


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Records with their numbers; or the name of the object that holds the batch, then `records` is empty."""

    id: bytes
    accepted_ms: int
    topic: str
    records: tuple[tuple[int, NewRecord], ...] = ()
    object_name: str | None = None

    def record_id(self, number: int) -> str:
        """The id of the record with this number."""
        return f"{self.id.hex()}-{number}"


def overhead_bytes(topic: str) -> int:
    """The size of a batch without its encoded records."""
    return _HEADER.size + _U8.size + len(topic) + _U16.size + _U32.size


def body_length(size: int) -> int:
    """The length of the body of a message whose batch has this many bytes."""
    return (size + 2) // 3 * 4


def encode_record(number: int, record: NewRecord) -> bytes:
    """Encode one record as in the layout above; `number` is its index in its batch."""
    flags = 0
    parts: list[bytes] = []
    for flag, field in ((_KEY, record.key), (_VALUE, record.value)):
        if field is not None:
            flags |= flag
            parts += (_U32.pack(len(field)), field)
    if record.partition is not None:
        flags |= _PARTITION
        parts.append(_U32.pack(record.partition))
    if record.timestamp_ms is not None:
        flags |= _TIMESTAMP
        parts.append(_U64.pack(record.timestamp_ms))
    if record.headers:
        flags |= _HEADERS
        parts.append(_encode_headers(record.headers))
    return b"".join([_RECORD.pack(number, flags), *parts])


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [_U16.pack(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (_U32.pack(len(encoded)), encoded, _I32.pack(-1 if value is None else len(value)))
        parts.append(value or b"")
    return b"".join(parts)


def encode(batch: MessageBatch, encoded: Sequence[bytes] | None = None) -> bytes:
    """Encode a batch; `encoded`: its records, if they are encoded already."""
    topic = batch.topic.encode("ascii")
    flags = 0 if batch.object_name is None else IN_BUCKET
    head = _HEADER.pack(VERSION, flags, batch.id, batch.accepted_ms) + _U8.pack(len(topic)) + topic
    if batch.object_name is not None:
        name = batch.object_name.encode()
        body = _U16.pack(len(name)) + name
    else:
        records = [encode_record(*each) for each in batch.records] if encoded is None else encoded
        body = _U16.pack(len(records)) + b"".join(records)
    return head + body + _U32.pack(zlib.crc32(head + body))


def decode(data: bytes) -> MessageBatch:
    """Decode a batch. Raises CodecError for bytes that are malformed or incomplete."""
    if len(data) < _HEADER.size + _U32.size:
        raise CodecError(f"a batch has at least {_HEADER.size + _U32.size} bytes, this one has {len(data)}")
    if data[0] != VERSION:
        raise CodecError(f"batch version {data[0]} is unknown")
    if zlib.crc32(data[: -_U32.size]) != _U32.unpack(data[-_U32.size :])[0]:
        raise CodecError("the batch's checksum is wrong")
    try:
        return _decode_batch(_ByteReader(data[: -_U32.size]))
    except (struct.error, UnicodeDecodeError) as error:
        raise CodecError(f"the batch can't be decoded: {error}") from error


def _decode_batch(source: "_ByteReader") -> MessageBatch:
    _, flags, batch_id, accepted_ms = source.unpack(_HEADER)
    if flags & ~IN_BUCKET:
        raise CodecError(f"batch flags {flags:#x} are unknown")
    topic = source.take(source.number(_U8)).decode("ascii")
    object_name = None
    records: tuple[tuple[int, NewRecord], ...] = ()
    if flags & IN_BUCKET:
        object_name = source.take(source.number(_U16)).decode()
    else:
        records = tuple(_decode_record(source, topic) for _ in range(source.number(_U16)))
    if source.rest:
        raise CodecError(f"{source.rest} bytes follow the batch")
    return MessageBatch(batch_id, accepted_ms, topic, records, object_name)


def _decode_record(source: "_ByteReader", topic: str) -> tuple[int, NewRecord]:
    number, flags = source.unpack(_RECORD)
    if flags >= _HEADERS << 1:
        raise CodecError(f"record flags {flags:#x} are unknown")
    record = NewRecord(
        topic,
        source.take(source.number(_U32)) if flags & _KEY else None,
        source.take(source.number(_U32)) if flags & _VALUE else None,
        source.number(_U32) if flags & _PARTITION else None,
        source.number(_U64) if flags & _TIMESTAMP else None,
        tuple(_decode_header(source) for _ in range(source.number(_U16))) if flags & _HEADERS else (),
    )
    return number, record


def _decode_header(source: "_ByteReader") -> tuple[str, bytes | None]:
    name = source.take(source.number(_U32)).decode()
    length = source.number(_I32)
    return name, None if length < 0 else source.take(length)


def to_body(data: bytes) -> str:
    """The body of the message that carries a batch."""
    return base64.b64encode(data).decode()


def from_body(body: str) -> bytes:
    """The batch that a message's body carries. Raises CodecError."""
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CodecError("the message is not base64") from error


class _ByteReader:
    """Reads bytes from the front. Raises struct.error when they end too soon."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def rest(self) -> int:
        """The number of unread bytes."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if size > self.rest:
            raise struct.error(f"{size} bytes are expected, {self.rest} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """The next fields."""
        return form.unpack(self.take(form.size))

    def number(self, form: struct.Struct) -> int:
        """The next number."""
        found: int = form.unpack(self.take(form.size))[0]
        return found
