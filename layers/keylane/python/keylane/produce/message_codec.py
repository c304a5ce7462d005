"""Bytes of the write-ahead log: records of one topic and one order group, as one message.

A message is the base64 of a parcel (all numbers big-endian):

    0       version        u8   1
    1       flags          u8   bit 0: the parcel itself is left in a bucket, under the name that follows
    2..17   id             16 bytes
    18..25  accepted ms    u64  when the records were accepted: their timestamp, where they have none
    topic                  u8 length, ASCII
    then, as a parcel's records, u16 their count and for each:
        number             u16  its place in the first parcel that held it: with the id it names the record
        flags              u8   bit 0: key, bit 1: value (none: a tombstone), bit 2: partition,
                                bit 3: timestamp, bit 4: headers; what a flag names follows in this order
        key                u32 length, bytes
        value              u32 length, bytes
        partition          u32
        timestamp ms       u64
        headers            u16 count, for each: u32 length and UTF-8 of its name,
                                i32 length (-1: null) and bytes of its value
    or, for one that is left in a bucket:
        name               u16 length, UTF-8
    checksum               u32  CRC32 of all before it

A record's id is the parcel's in hexadecimal, a dash, and its number. What is moved to another queue, whole or
in part, keeps its records' ids.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keylane.model.records import NewRecord
from keylane.state.codec import CodecError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1
LEFT_IN_BUCKET = 0b1
ID_BYTES = 16
_KEY, _VALUE, _PARTITION, _TIMESTAMP, _HEADERS = (1 << bit for bit in range(5))
_HEADER = struct.Struct(f">BB{ID_BYTES}sQ")
_RECORD = struct.Struct(">HB")
_U8, _U16, _U32, _U64, _I32 = (struct.Struct(f">{code}") for code in "BHIQi")


@dataclass(frozen=True, slots=True)
class Parcel:
    """Records by number; or where they are: `left_at` names an object of the bucket, `records` is empty."""

    id: bytes
    accepted_ms: int
    topic: str
    records: tuple[tuple[int, NewRecord], ...] = ()
    left_at: str | None = None

    def record_id(self, number: int) -> str:
        """The id of one of its records."""
        return f"{self.id.hex()}-{number}"


def overhead_bytes(topic: str) -> int:
    """Bytes of a parcel around its encoded records."""
    return _HEADER.size + _U8.size + len(topic) + _U16.size + _U32.size


def text_bytes(size: int) -> int:
    """Characters of a message whose parcel has this many bytes."""
    return (size + 2) // 3 * 4


def encode_record(number: int, record: NewRecord) -> bytes:
    """One record, without its topic."""
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


def encode(parcel: Parcel, encoded: Sequence[bytes] | None = None) -> bytes:
    """A parcel's bytes; `encoded` are its records where that is done already."""
    topic = parcel.topic.encode("ascii")
    flags = 0 if parcel.left_at is None else LEFT_IN_BUCKET
    head = _HEADER.pack(VERSION, flags, parcel.id, parcel.accepted_ms) + _U8.pack(len(topic)) + topic
    if parcel.left_at is not None:
        name = parcel.left_at.encode()
        body = _U16.pack(len(name)) + name
    else:
        records = [encode_record(*each) for each in parcel.records] if encoded is None else encoded
        body = _U16.pack(len(records)) + b"".join(records)
    return head + body + _U32.pack(zlib.crc32(head + body))


def decode(data: bytes) -> Parcel:
    """A parcel of its bytes. Raises CodecError for what is none, or not whole."""
    if len(data) < _HEADER.size + _U32.size:
        raise CodecError(f"a parcel has {_HEADER.size + _U32.size} bytes at least, this has {len(data)}")
    if data[0] != VERSION:
        raise CodecError(f"parcel version {data[0]} is not known")
    if zlib.crc32(data[: -_U32.size]) != _U32.unpack(data[-_U32.size :])[0]:
        raise CodecError("the parcel's checksum is wrong")
    try:
        return _decoded(_Source(data[: -_U32.size]))
    except (struct.error, UnicodeDecodeError) as error:
        raise CodecError(f"the parcel can't be read: {error}") from error


def _decoded(source: _Source) -> Parcel:
    _, flags, parcel_id, accepted_ms = source.unpack(_HEADER)
    if flags & ~LEFT_IN_BUCKET:
        raise CodecError(f"parcel flags {flags:#x} are not known")
    topic = source.take(source.number(_U8)).decode("ascii")
    left_at = None
    records: tuple[tuple[int, NewRecord], ...] = ()
    if flags & LEFT_IN_BUCKET:
        left_at = source.take(source.number(_U16)).decode()
    else:
        records = tuple(_record(source, topic) for _ in range(source.number(_U16)))
    if source.rest:
        raise CodecError(f"{source.rest} bytes follow the parcel")
    return Parcel(parcel_id, accepted_ms, topic, records, left_at)


def _record(source: _Source, topic: str) -> tuple[int, NewRecord]:
    number, flags = source.unpack(_RECORD)
    if flags >= _HEADERS << 1:
        raise CodecError(f"record flags {flags:#x} are not known")
    record = NewRecord(
        topic,
        source.take(source.number(_U32)) if flags & _KEY else None,
        source.take(source.number(_U32)) if flags & _VALUE else None,
        source.number(_U32) if flags & _PARTITION else None,
        source.number(_U64) if flags & _TIMESTAMP else None,
        tuple(_header(source) for _ in range(source.number(_U16))) if flags & _HEADERS else (),
    )
    return number, record


def _header(source: _Source) -> tuple[str, bytes | None]:
    name = source.take(source.number(_U32)).decode()
    length = source.number(_I32)
    return name, None if length < 0 else source.take(length)


def to_text(data: bytes) -> str:
    """A message's body."""
    return base64.b64encode(data).decode()


def from_text(body: str) -> bytes:
    """A parcel's bytes of a message's body. Raises CodecError."""
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CodecError("the message is not base64") from error


class _Source:
    """Takes bytes from the front; struct.error where they end too soon."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def rest(self) -> int:
        """Bytes that are left."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if size > self.rest:
            raise struct.error(f"{size} bytes are told of, {self.rest} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """The next fields."""
        return form.unpack(self.take(form.size))

    def number(self, form: struct.Struct) -> int:
        """The next number."""
        found: int = form.unpack(self.take(form.size))[0]
        return found
