"""Kafka's record batches, written as the protocol says, for tests of what reads them."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass, field

import google_crc32c
import pyarrow as pa

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


@dataclass(frozen=True)
class Sent:
    """A record, as a producer sends it."""

    offset: int
    timestamp_ms: int = 0
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())


def varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def compressed(codec: int, data: bytes, *, xerial: bool = False) -> bytes:
    if codec == GZIP:
        return gzip.compress(data)
    if codec == SNAPPY and xerial:
        blocks = [data[at : at + 100] for at in range(0, len(data), 100)]
        packed = [pa.compress(block, "snappy", asbytes=True) for block in blocks]
        head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
        return head + b"".join(struct.pack(">i", len(block)) + block for block in packed)
    if codec == SNAPPY:
        return pa.compress(data, "snappy", asbytes=True)
    if codec in (LZ4, ZSTD):
        return pa.compress(data, {LZ4: "lz4", ZSTD: "zstd"}[codec], asbytes=True)
    return data


def a_batch(
    *records: Sent,
    codec: int = NONE,
    attributes: int = 0,
    producer_id: int = -1,
    covers: tuple[int, int] | None = None,
    xerial: bool = False,
) -> bytes:
    """One batch. `covers`: its first and last offset, where that is more than its records say."""
    first, last = covers or (records[0].offset, records[-1].offset)
    base_ms = records[0].timestamp_ms if records else 0
    max_ms = max((record.timestamp_ms for record in records), default=0)
    bodies = []
    for record in records:
        body = b"\0" + varint(record.timestamp_ms - base_ms) + varint(record.offset - first)
        body += sized(record.key) + sized(record.value) + varint(len(record.headers))
        body += b"".join(sized(name.encode()) + sized(value) for name, value in record.headers)
        bodies.append(varint(len(body)) + body)
    packed = compressed(codec, b"".join(bodies), xerial=xerial)
    head = struct.pack(
        ">hiqqqhii", attributes | codec, last - first, base_ms, max_ms, producer_id, 0, 0, len(records)
    )
    crc = google_crc32c.value(head + packed)
    tail = struct.pack(">ibI", 7, 2, crc) + head + packed
    return struct.pack(">qi", first, len(tail)) + tail
