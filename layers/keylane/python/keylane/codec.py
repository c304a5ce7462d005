"""Bytes in Redis: keys, the record envelope, the watermark record, the layout record.

Envelope, before the value's own bytes (all numbers big-endian):

    0       version         u8   1
    1       flags           u8   bit 0: a source partition follows (the record is a stray)
                                 bit 1: tombstone (on the way to a lane; kept as a marker for strays alone)
    2..9    offset          u64
    10..17  timestamp ms    u64
    18..21  source partition u32 only with flag bit 0
    ...     value           untouched, to the end

Watermark record, 34 bytes:

    0       version         u8   1
    1       flags           u8   bit 0: superseded by a newer generation; bit 1: incomplete
    2..9    next offset     u64
    10..17  epoch           u64
    18..25  newest timestamp ms    u64
    26..33  complete as of ms      u64

Layout record: JSON with the fields of `model.Layout`.
Timestamps before 1970 are stored as 0: Kafka has -1 for "none".
"""

from __future__ import annotations

import json
import struct

from keylane.model import Layout, Record, Watermark

VERSION = 1
STRAY = 0b01
TOMBSTONE = 0b10
SUPERSEDED = 0b01
INCOMPLETE = 0b10

HEADER = struct.Struct(">BBQQ")
_SOURCE = struct.Struct(">I")
_WATERMARK = struct.Struct(">BBQQQQ")
HEADER_BYTES = HEADER.size
WATERMARK_BYTES = _WATERMARK.size


class CodecError(ValueError):
    """Bytes that aren't what they should be; the sentence says how."""


def value_key_prefix(tag: bytes, topic: str, generation: int) -> bytes:
    """All that stands before the record's own key: `{tag}:T:g:v:`."""
    return b"{%b}:%b:%d:v:" % (tag, topic.encode(), generation)


def value_key(tag: bytes, topic: str, generation: int, key: bytes) -> bytes:
    """Key of the latest record: `{tag}:T:g:v:<key>`."""
    return value_key_prefix(tag, topic, generation) + key


def watermark_key(tag: bytes, topic: str, generation: int, partition: int, stripe: int) -> bytes:
    """Key of a lane's watermark record: `{tag}:T:g:w:<partition>.<stripe>`."""
    return b"{%b}:%b:%d:w:%d.%d" % (tag, topic.encode(), generation, partition, stripe)


def layout_key(topic: str) -> bytes:
    """Key of a topic's layout record."""
    return b"{keylane}:layout:" + topic.encode()


def epoch_key(topic: str) -> bytes:
    """Key of the counter that numbers a topic's writers."""
    return b"{keylane}:epoch:" + topic.encode()


def encode_record(
    value: bytes | None, offset: int, timestamp_ms: int, source_partition: int | None = None
) -> bytes:
    """Envelope and value; a value of None is a tombstone. `source_partition` marks a stray."""
    flags = (STRAY if source_partition is not None else 0) | (TOMBSTONE if value is None else 0)
    head = HEADER.pack(VERSION, flags, offset, max(0, timestamp_ms))
    source = b"" if source_partition is None else _SOURCE.pack(source_partition)
    return head + source + (value or b"")


def decode_record(key: bytes, data: bytes, partition: int) -> Record | None:
    """The record under `key` of the lane of `partition`; None for a tombstone's marker.

    Raises CodecError for bytes that are cut off or of another version.
    """
    if len(data) < HEADER_BYTES:
        raise CodecError(f"{len(data)} bytes are too few for an envelope of {HEADER_BYTES}")
    version, flags, offset, timestamp_ms = HEADER.unpack_from(data)
    if version != VERSION:
        raise CodecError(f"envelope version {version} is unknown, {VERSION} is known")
    start = HEADER_BYTES
    if flags & STRAY:
        start += _SOURCE.size
        if len(data) < start:
            raise CodecError(f"{len(data)} bytes are too few for a stray's envelope of {start}")
        (partition,) = _SOURCE.unpack_from(data, HEADER_BYTES)
    if flags & TOMBSTONE:
        return None
    return Record(key, data[start:], partition, offset, timestamp_ms)


def encode_watermark(watermark: Watermark) -> bytes:
    """34 bytes; the Lua library writes the same layout."""
    flags = (SUPERSEDED if watermark.superseded else 0) | (INCOMPLETE if watermark.incomplete else 0)
    return _WATERMARK.pack(
        VERSION,
        flags,
        watermark.next_offset,
        watermark.epoch,
        watermark.newest_timestamp_ms,
        watermark.complete_as_of_ms,
    )


def decode_watermark(data: bytes) -> Watermark:
    """Raises CodecError for bytes of another length or version."""
    if len(data) != WATERMARK_BYTES:
        raise CodecError(f"a watermark record has {WATERMARK_BYTES} bytes, not {len(data)}")
    version, flags, next_offset, epoch, newest_ms, complete_ms = _WATERMARK.unpack(data)
    if version != VERSION:
        raise CodecError(f"watermark version {version} is unknown, {VERSION} is known")
    return Watermark(
        next_offset, epoch, newest_ms, complete_ms, bool(flags & SUPERSEDED), bool(flags & INCOMPLETE)
    )


def encode_layout(layout: Layout) -> bytes:
    """JSON in UTF-8."""
    return json.dumps(
        {
            "topic": layout.topic,
            "partition_count": layout.partition_count,
            "stripes": layout.stripes,
            "partitioner": layout.partitioner,
            "generation": layout.generation,
            "options": layout.options,
        },
        sort_keys=True,
    ).encode()


def decode_layout(data: bytes) -> Layout:
    """Raises CodecError for what is no layout record. Unknown fields are a newer writer's: left alone."""
    try:
        fields = json.loads(data)
        layout = Layout(
            topic=str(fields["topic"]),
            partition_count=int(fields["partition_count"]),
            stripes=int(fields["stripes"]),
            partitioner=str(fields["partitioner"]),
            generation=int(fields["generation"]),
            options=dict(fields.get("options", {})),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CodecError(f"this is no layout record: {error!r}") from error
    if layout.partition_count < 1 or layout.stripes < 1:
        raise CodecError("a layout has one partition and one stripe at least")
    return layout
