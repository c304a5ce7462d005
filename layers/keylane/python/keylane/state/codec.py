"""The bytes of records in Redis: the record envelope, the watermark record, the layout record.

Envelope, before the value's own bytes. Numbers are big-endian; the fields of flags come in this order:

    0       version         u8   1; 2 with fields; 0 where the value is compressed
    1       flags           u8   bit 0: a source partition follows (the record is a stray)
                                 bit 1: tombstone (kept as a marker, and in histories)
                                 bit 2: an order timestamp follows
                                 bit 3: headers follow
                                 bit 4: the value is left in Kafka, its size follows
                                 bit 5: fields follow
                                 bit 6: the value is compressed: a frame of `state.compression`
    2..9    offset          u64
    10..17  timestamp ms    u64
    source partition        u32
    order timestamp ms      u64  the highest timestamp of the key's records so far in this partition,
                                 where that is not the record's own; it decides across partitions
    fields                  u16  bytes that follow, what indexes have of the record: see `field_index`
    headers                 u32  bytes that follow, then for each header: u16 length and UTF-8 of its name,
                                 i32 length (-1: null) and bytes of its value
    size in Kafka           u64
    value                   as it is in Kafka, to the end

A history's member is the same with the offset first (offset, version, flags, timestamp, ...), so that
members of one score are in offset order. Of those of one offset see `rank_of_order`.

Watermark record, 42 bytes:

    0       version         u8   2
    1       flags           u8   bit 0: superseded by a newer generation; bit 1: incomplete;
                                 bit 2: the lane has met strays; bit 5: it may have missed deletions
                                 (bits 3 and 4 are the writer's)
    2..9    next offset     u64
    10..17  epoch           u64
    18..25  newest timestamp ms    u64
    26..33  complete as of ms      u64
    34..41  log end         u64  the partition's end when the writer last looked

Layout record: JSON with the fields of `Layout`, and of its options those that differ from the defaults. The
stripes of a generation with compressed values are words that begin with their number: see `encode_layout`.
A timestamp before 1970 is none, as Kafka's -1 is, and stored as 0.
"""

import json
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from keylane.model.records import WHOLE_KEY, HistoryEntry, Layout, Options, Position, Record, Watermark

VERSION = 1
STRAY = 0b01
TOMBSTONE = 0b10
ORDER = 0b100
HEADERS = 0b1000
LEFT_IN_KAFKA = 0b1_0000
FIELDS = 0b10_0000
COMPRESSED = 0b100_0000
VERSION_WITH_FIELDS = 2
"""An older reader would take the fields for a part of the value: it refuses another version."""
VERSION_COMPRESSED = 0
"""With or without fields. An older reader would take the frame for the value."""
WATERMARK_VERSION = 2
SUPERSEDED = 0b01
INCOMPLETE = 0b10
HAS_STRAYS = 0b100
GAVE_STRAYS = 0b1000
MISSED_DELETIONS = 0b10_0000
HEADER = struct.Struct(">BBQQ")
_SOURCE = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_U32 = struct.Struct(">I")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_HISTORY_HEADER = struct.Struct(">QBBQ")
_FLAGS_IN_ORDER = 17
"""Where `history_order` has a member's flags."""
_WATERMARK = struct.Struct(">BBQQQQQ")
HEADER_BYTES = HEADER.size
HEAD_BYTES = HEADER_BYTES + _SOURCE.size
"""As many bytes of an envelope say where its record is from."""
ORDERED_HEAD_BYTES = HEAD_BYTES + _U64.size
"""As many have its order timestamp, too."""
_PLAIN = bytes((VERSION, 0))
"""How the envelope of most records begins: no flags."""
_COMPRESSED = bytes((VERSION_COMPRESSED, COMPRESSED))
"""The same of a topic whose values are compressed."""
_PLAIN_HEADER = struct.Struct(">2xQQ")
_FIELDS_AT = HEADER_BYTES + _U16.size
"""Where they begin in an envelope that has nothing else of its own."""
LONGEST_BEFORE_FIELDS = ORDERED_HEAD_BYTES + _U16.size
WATERMARK_BYTES = _WATERMARK.size
ODD_JSON = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""The errors of reading fields of a JSON text that are missing or have another type."""


_NEEDS_NEWER = "of compressed values, which need a newer version of Keylane"
"""Follows the number of stripes in the layout record of a generation with compressed values."""


class CodecError(ValueError):
    """Bytes that can't be decoded; the message says why."""


Expand = Callable[[bytes], bytes]
"""Returns the value of a frame. Raises CodecError for a frame that is not one, or too large."""


def expand_none(frame: bytes) -> bytes:
    """Raise CodecError: the caller expects no compressed values, as those of views."""
    raise CodecError(f"the value is compressed, {len(frame)} bytes, where none is expected")


class LeftInKafka(NamedTuple):
    """A value that is too large for the state: its size in Kafka."""

    size_bytes: int


def encode_record(  # noqa: PLR0913 (what an envelope has)
    value: bytes | LeftInKafka | None,
    offset: int,
    timestamp_ms: int,
    source_partition: int | None = None,
    *,
    order_ms: int | None = None,
    fields: bytes = b"",
    headers: tuple[tuple[str, bytes | None], ...] | None = None,
    compressed: bool = False,
) -> bytes:
    """Return envelope and value; a value of None is a tombstone.

    `source_partition`: of a stray. `order_ms`: the order timestamp where it is not the record's own.
    `fields`: as of `field_index`. `compressed`: the value is a frame of `state.compression`.
    """
    parts = [b""]
    flags = COMPRESSED if compressed else 0
    if source_partition is not None:
        flags |= STRAY
        parts.append(_SOURCE.pack(source_partition))
    if order_ms is not None:
        flags |= ORDER
        parts.append(_U64.pack(order_ms))
    if fields:
        flags |= FIELDS
        parts += _U16.pack(len(fields)), fields
    if headers is not None:
        flags |= HEADERS
        block = encode_headers(headers)
        parts += _U32.pack(len(block)), block
    if isinstance(value, LeftInKafka):
        flags |= LEFT_IN_KAFKA
        parts.append(_U64.pack(value.size_bytes))
    elif value is None:
        flags |= TOMBSTONE
    else:
        parts.append(value)
    parts[0] = HEADER.pack(version_of(flags), flags, offset, max(0, timestamp_ms))
    return b"".join(parts)


def version_of(flags: int) -> int:
    """Return the version of envelopes with these flags."""
    if flags & COMPRESSED:
        return VERSION_COMPRESSED
    return VERSION_WITH_FIELDS if flags & FIELDS else VERSION


def encode_headers(headers: tuple[tuple[str, bytes | None], ...]) -> bytes:
    """Return the block of headers, without its length."""
    parts: list[bytes] = []
    for name, value in headers:
        text = name.encode()
        parts += _U16.pack(len(text)), text, _I32.pack(-1 if value is None else len(value)), value or b""
    return b"".join(parts)


def decode_record(key: bytes, data: bytes, partition: int, expand: Expand = expand_none) -> Record | None:
    """Return the record that a lane of `partition` stores under `key`; None for a tombstone's marker.

    `expand`: what makes values of those that are compressed; it may raise errors of its own. Raises
    CodecError for bytes that are cut off or of another version.
    """
    if len(data) < HEADER_BYTES:
        raise CodecError(f"{len(data)} bytes are too few for an envelope of {HEADER_BYTES}")
    version, flags, offset, timestamp_ms = HEADER.unpack_from(data)
    _check_version(version, flags)
    if not flags:
        return Record(key, data[HEADER_BYTES:], partition, offset, timestamp_ms)
    if flags == FIELDS and len(data) >= _FIELDS_AT:
        start = _FIELDS_AT + _U16.unpack_from(data, HEADER_BYTES)[0]
        if len(data) >= start:
            entries = data[_FIELDS_AT:start]
            return Record(key, data[start:], partition, offset, timestamp_ms, entries=entries)
    if flags == COMPRESSED:
        return Record(key, expand(data[HEADER_BYTES:]), partition, offset, timestamp_ms)
    try:
        start, source, headers, left_bytes = _decode_optional(data, flags)
    except struct.error as error:
        raise CodecError(f"{len(data)} bytes are too few for the envelope that their flags name") from error
    if len(data) < start:
        raise CodecError(f"{len(data)} bytes are too few for an envelope of {start}")
    if flags & TOMBSTONE:
        return None
    own = partition if source is None else source
    entries = fields_of(data)
    value = expand(data[start:]) if flags & COMPRESSED else data[start:]
    return Record(key, value, own, offset, timestamp_ms, headers, left_bytes, entries=entries)


def _check_version(version: int, flags: int) -> None:
    if version != version_of(flags):
        raise CodecError(f"envelope version {version} is unknown, {VERSION} is known")


def fields_of(data: bytes) -> bytes:
    """Return the fields in an envelope that `decode_record` accepts, as of `field_index`; b"" without."""
    return fields_in_head(data) or b""


def fields_in_head(head: bytes) -> bytes | None:
    """Return the fields in an envelope of which `head` is the beginning; b"" for other bytes, as the library.

    None: they are longer than `head`.
    """
    if len(head) < HEADER_BYTES or not head[1] & FIELDS or head[0] != version_of(head[1]):
        return b""
    flags = head[1]
    start = _FIELDS_AT
    if flags & (STRAY | ORDER):
        start += (_SOURCE.size if flags & STRAY else 0) + (_U64.size if flags & ORDER else 0)
    end = start + int.from_bytes(head[start - _U16.size : start])
    return head[start:end] if end <= len(head) else None


class RecordHead(NamedTuple):
    """What the first HEAD_BYTES of an envelope say of a record."""

    position: Position
    timestamp_ms: int
    is_tombstone: bool


def decode_head(head: bytes, partition: int) -> RecordHead:
    """Return the head of a record that a lane of `partition` stores. Raises CodecError."""
    if len(head) < HEADER_BYTES:
        raise CodecError(f"{len(head)} bytes are too few for an envelope of {HEADER_BYTES}")
    version, flags, offset, timestamp_ms = HEADER.unpack_from(head)
    _check_version(version, flags)
    if flags & STRAY:
        if len(head) < HEAD_BYTES:
            raise CodecError(f"{len(head)} bytes are too few for the envelope that their flags name")
        (partition,) = _SOURCE.unpack_from(head, HEADER_BYTES)
    return RecordHead(Position(partition, offset), timestamp_ms, bool(flags & TOMBSTONE))


def tombstone_of(head: bytes, partition: int, lane_partition: int) -> bytes:
    """Return a tombstone with a record's position and order, as a lane of `lane_partition` stores it.

    `head`: ORDERED_HEAD_BYTES of the record's envelope in a lane of `partition`. Raises CodecError.
    """
    position, timestamp_ms, _ = decode_head(head, partition)
    order_ms = None
    if head[1] & ORDER:
        start = HEAD_BYTES if head[1] & STRAY else HEADER_BYTES
        if len(head) < start + _U64.size:
            raise CodecError(f"{len(head)} bytes are too few for the envelope that their flags name")
        (order_ms,) = _U64.unpack_from(head, start)
    stray_of = None if position.partition == lane_partition else position.partition
    return encode_record(None, position.offset, timestamp_ms, stray_of, order_ms=order_ms)


def decode_records(
    keys: Sequence[bytes], found: Sequence[bytes | None], partition: int, expand: Expand = expand_none
) -> list[Record | None]:
    """Return `decode_record` of each key; None where nothing was found, too. Raises CodecError."""
    unpack = _PLAIN_HEADER.unpack_from
    new = tuple.__new__  # Record's own constructor, which calls this, takes three times as long
    records: list[Record | None] = []
    for key, data in zip(keys, found, strict=True):
        if data is None:
            records.append(None)
        elif data[:2] == _PLAIN and len(data) >= HEADER_BYTES:
            offset, timestamp_ms = unpack(data)
            fields = key, data[HEADER_BYTES:], partition, offset, timestamp_ms, (), None, None, b""
            records.append(new(Record, fields))
        elif data[:2] == _COMPRESSED and len(data) >= HEADER_BYTES:
            offset, timestamp_ms = unpack(data)
            fields = key, expand(data[HEADER_BYTES:]), partition, offset, timestamp_ms, (), None, None, b""
            records.append(new(Record, fields))
        else:
            records.append(decode_record(key, data, partition, expand))
    return records


def _decode_optional(
    data: bytes, flags: int
) -> tuple[int, int | None, tuple[tuple[str, bytes | None], ...], int | None]:
    """Return where the value begins, source partition, headers, and size in Kafka. Raises struct.error."""
    start = HEADER_BYTES
    source = left_bytes = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if flags & STRAY:
        (source,) = _SOURCE.unpack_from(data, start)
        start += _SOURCE.size
    if flags & ORDER:
        start += _U64.size
    if flags & FIELDS:
        (size,) = _U16.unpack_from(data, start)
        start += _U16.size + size
    if flags & HEADERS:
        (size,) = _U32.unpack_from(data, start)
        start += _U32.size
        headers = _decode_headers(data, start, start + size)
        start += size
    if flags & LEFT_IN_KAFKA:
        (left_bytes,) = _U64.unpack_from(data, start)
        start += _U64.size
    return start, source, headers, left_bytes


def _decode_headers(data: bytes, start: int, end: int) -> tuple[tuple[str, bytes | None], ...]:
    headers: list[tuple[str, bytes | None]] = []
    while start < end:
        (size,) = _U16.unpack_from(data, start)
        start += _U16.size
        try:
            name = data[start : start + size].decode()
        except UnicodeDecodeError as error:
            raise CodecError(f"a header's name is not UTF-8: {error}") from error
        start += size
        (size,) = _I32.unpack_from(data, start)
        start += _I32.size
        headers.append((name, None if size < 0 else data[start : start + size]))
        start += max(size, 0)
    if start != end:
        raise CodecError(f"the headers end at byte {start}, their block at {end}")
    return tuple(headers)


def decode_history_member(
    key: bytes, member: bytes, partition: int, expand: Expand = expand_none
) -> Record | None:
    """Return the record of a history's member; None for a tombstone. Errors as of `decode_record`."""
    return decode_record(key, member[8:10] + member[:8] + member[10:], partition, expand)


def decode_history_entry(
    key: bytes, member: bytes, partition: int, expand: Expand = expand_none
) -> HistoryEntry:
    """Return the entry of a history's member, a tombstone too. Errors as of `decode_record`."""
    record = decode_history_member(key, member, partition, expand)
    if record is not None:
        return HistoryEntry(record.position, record.timestamp_ms, record)
    offset, _, flags, timestamp_ms = _HISTORY_HEADER.unpack_from(member)
    (source,) = _SOURCE.unpack_from(member, HEADER_BYTES) if flags & STRAY else (partition,)
    return HistoryEntry(Position(source, offset), timestamp_ms, None)


def history_order(member: bytes) -> bytes:
    """Return what Redis orders a history by, as far as it is not the value: a member's score and first bytes.

    `rank_of_order` says which of two members is newer.
    """
    is_stray = len(member) > HEADER_BYTES and _HISTORY_HEADER.unpack_from(member)[2] & STRAY
    end = HEADER_BYTES + (_SOURCE.size if is_stray else 0)
    return member[HEADER_BYTES - _U64.size : HEADER_BYTES] + member[:end]


def rank_of_order(order: bytes, partition: int) -> tuple[int, ...]:
    """Return how a member ranks in a history of `partition`, newer ones higher: what orders its pages.

    `order`: what `history_order` returned, or the 16 bytes of timestamp and offset, which rank below what has
    these. At a tie the lane's own partition is newer, then the lower one, and a deletion than the set at its
    position. The bytes of members do not say that: a value may be compressed, or have headers.
    """
    timestamp_ms, offset = int.from_bytes(order[:8]), int.from_bytes(order[8:16])
    if len(order) <= _FLAGS_IN_ORDER:
        return timestamp_ms, offset
    flags = order[_FLAGS_IN_ORDER]
    source = int.from_bytes(order[-_SOURCE.size :]) if flags & STRAY else partition
    return timestamp_ms, offset, source == partition, -source, bool(flags & TOMBSTONE)


def timestamp_of_order(order: bytes) -> int:
    """Return the timestamp, in ms since 1970, of what `history_order` returned."""
    return int.from_bytes(order[: _U64.size], "big")


def is_tombstone(head: bytes) -> bool:
    """Return whether a record is a tombstone, by its first two bytes or more."""
    return len(head) > 1 and bool(head[1] & TOMBSTONE)


def encode_watermark(watermark: Watermark) -> bytes:
    """Return 42 bytes. The Lua library writes the same layout."""
    flags = (
        (SUPERSEDED if watermark.superseded else 0)
        | (INCOMPLETE if watermark.incomplete else 0)
        | (MISSED_DELETIONS if watermark.missed_deletions else 0)
        | (HAS_STRAYS if watermark.has_strays else 0)
        | (GAVE_STRAYS if watermark.gave_strays else 0)
    )
    return _WATERMARK.pack(
        WATERMARK_VERSION,
        flags,
        watermark.next_offset,
        watermark.epoch,
        watermark.newest_timestamp_ms,
        watermark.complete_as_of_ms,
        watermark.log_end,
    )


@lru_cache(maxsize=4096)  # most reads of a lane find the bytes that the one before found
def decode_watermark(data: bytes) -> Watermark:
    """Return the watermark. Raises CodecError for bytes of another length or version."""
    if len(data) != WATERMARK_BYTES:
        raise CodecError(f"a watermark record has {WATERMARK_BYTES} bytes, not {len(data)}")
    version, flags, next_offset, epoch, newest_ms, complete_ms, log_end = _WATERMARK.unpack(data)
    if version != WATERMARK_VERSION:
        raise CodecError(f"watermark version {version} is unknown, {WATERMARK_VERSION} is known")
    return Watermark(
        next_offset,
        epoch,
        newest_ms,
        complete_ms,
        superseded=bool(flags & SUPERSEDED),
        incomplete=bool(flags & INCOMPLETE),
        has_strays=bool(flags & HAS_STRAYS),
        log_end=log_end,
        missed_deletions=bool(flags & MISSED_DELETIONS),
        gave_strays=bool(flags & GAVE_STRAYS),
    )


def advance_watermark(data: bytes, next_offset: int, newest_timestamp_ms: int, log_end: int) -> bytes:
    """Return a valid watermark record with this next offset; the other two rise, flags and the rest stay."""
    version, flags, _, epoch, newest_ms, complete_ms, known_end = _WATERMARK.unpack(data)
    return _WATERMARK.pack(
        version,
        flags,
        next_offset,
        epoch,
        max(newest_timestamp_ms, newest_ms),
        complete_ms,
        max(log_end, known_end),
    )


def encode_layout(layout: Layout) -> bytes:
    """Return JSON in UTF-8.

    The stripes of centered lanes have their own name: a reader that does not know them refuses the record,
    where it would look for keys in other slots. Those of compressed values are words, which a reader that
    does not know them refuses in its error: no number.
    """
    is_compressed = layout.options.compression != "none"
    fields: dict[str, Any] = {
        "topic": layout.topic,
        "partition_count": layout.partition_count,
        "centered_stripes" if layout.centered else "stripes": (
            f"{layout.stripes} {_NEEDS_NEWER}" if is_compressed else layout.stripes
        ),
        "partitioner": layout.partitioner,
        "partition_by": layout.partition_by,
        "generation": layout.generation,
        "options": layout.options.to_dict(),
    }
    if layout.incarnation:
        fields["incarnation"] = layout.incarnation
    return json.dumps(fields, sort_keys=True).encode()


def decode_layout(data: bytes) -> Layout:
    """Return the layout. Raises CodecError. Unknown fields are a newer writer's: they are ignored."""
    try:
        fields = json.loads(data)
        centered = "centered_stripes" in fields
        stripes = str(fields["centered_stripes" if centered else "stripes"])
        layout = Layout(
            topic=str(fields["topic"]),
            partition_count=int(fields["partition_count"]),
            stripes=int(stripes.removesuffix(_NEEDS_NEWER)),
            partitioner=str(fields["partitioner"]),
            generation=int(fields["generation"]),
            options=Options.from_dict(dict(fields.get("options", {}))),
            partition_by=str(fields.get("partition_by", WHOLE_KEY)),
            incarnation=int(fields.get("incarnation", 0)),
            centered=centered,
        )
    except ODD_JSON as error:
        raise CodecError(f"this is not a layout record: {error!r}") from error
    if layout.partition_count < 1 or layout.stripes < 1:
        raise CodecError("a layout has at least one partition and one stripe")
    return layout
