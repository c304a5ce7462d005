"""Kafka's record batches, as a fetch returns them, into columns: `records.Rows`.

    batch    base offset i64, length i32, leader epoch i32, magic i8 (2), CRC32C u32, attributes i16,
             last offset delta i32, base timestamp i64, max timestamp i64, producer id i64, producer
             epoch i16, base sequence i32, record count i32, then the records, compressed together
    record   length, attributes i8, timestamp delta, offset delta, key length (-1: null), key,
             value length, value, header count, then for each header: name length, name, value length, value

All numbers of a record are zigzag varints. The checksum covers all that follows it. Compaction and
transactions leave gaps: a batch's last offset says what it covers, whether or not it has such a record.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keylane_spark.log.compression import CompressionError, decompress
from keylane_spark.rows.headers import cut, read_headers
from keylane_spark.rows.records import Rows, without_large_keys
from keylane_spark.rows.varints import find_bodies, read_varints

_HEAD = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END = 12
_CRC_END = 21
_MAGIC_AT, _MAGIC = 16, 2
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_ABORT_TYPE = 0
_MAX_GROUP_BYTES = 16 * 1024 * 1024
"""Batches are parsed together until they have this size, as large as Spark's own Arrow batches."""
_TOGETHER_BYTES = 4 * 1024 * 1024
"""The same for those of several pieces."""
_INT32_MAX = 2**31 - 1
_Bound: TypeAlias = int | NDArray[np.int64]


class BatchError(Exception):
    """Bytes that are not record batches of this format; the message says where and why."""


class OldFormat(BatchError):
    """Records of before Kafka 0.11, which this reader does not read."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction among the fetched records, as the broker reports it."""

    producer_id: int
    first_offset: int


class Piece(NamedTuple):
    """What `parse_batches` takes for a range."""

    data: bytes
    begin: int
    end: int
    aborted: Sequence[AbortedTransaction] = ()


class _Batch(NamedTuple):
    base_offset: int
    last_offset: int
    attributes: int
    base_ms: int
    max_ms: int
    producer_id: int
    record_count: int
    records: bytes
    """The records, decompressed."""


def next_offset(data: bytes, position: int) -> int:
    """The offset behind the last complete batch; `position` if there is none. Nothing else is checked."""
    at = 0
    while at + _HEAD.size <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if length < _HEAD.size - _LENGTH_END or at + _LENGTH_END + length > len(data):
            break
        position = max(position, base + struct.unpack_from(">i", data, at + 23)[0] + 1)
        at += _LENGTH_END + length
    return position


def parse_batches(
    data: bytes,
    begin: int,
    end: int,
    *,
    aborted: Iterable[AbortedTransaction] = (),
    with_headers: bool = False,
) -> Iterator[Rows]:
    """The records of [begin, end) that a consumer sees. `aborted`: empty where all are to be seen.

    Raises BatchError.
    """
    for group in _groups(_visible(_read_batches(data, begin, end), aborted)):
        rows, _ = _parse(group, begin, end, with_headers=with_headers)
        if len(rows):
            yield rows


def parse_together(
    pieces: Sequence[Piece], *, with_headers: bool = False
) -> tuple[Rows, NDArray[np.int64]] | None:
    """The rows of the first pieces, one behind the other, and how many each of these has.

    They are as many pieces as are parsed together; None where the first one is too large by itself, or none
    has rows. Raises BatchError, without saying of which piece.
    """
    batches: list[_Batch] = []
    owners: list[int] = []
    size = 0
    for number, piece in enumerate(pieces):
        own = []
        for batch in _visible(_read_batches(piece.data, piece.begin, piece.end), piece.aborted):
            own.append(batch)
            size += len(batch.records)
            if size > _TOGETHER_BYTES:
                break
        if size > _TOGETHER_BYTES:
            pieces = pieces[:number]
            break
        batches += own
        owners += [number] * len(own)
    if not batches:
        return None
    numbers = np.repeat(np.array(owners), [batch.record_count for batch in batches])
    begins, ends = (np.array(bounds)[numbers] for bounds in zip(*(each[1:3] for each in pieces), strict=True))
    rows, wanted = _parse(batches, begins, ends, with_headers=with_headers)
    return rows, np.bincount(numbers[wanted], minlength=len(pieces))


def _groups(batches: Iterable[_Batch]) -> Iterator[list[_Batch]]:
    group: list[_Batch] = []
    size = 0
    for batch in batches:
        if group and size + len(batch.records) > _MAX_GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(batch)
        size += len(batch.records)
    if group:
        yield group


def _read_batches(data: bytes, begin: int, end: int) -> Iterator[_Batch]:
    at, last = 0, -1
    while at + _MAGIC_AT < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        stop = at + _LENGTH_END + length
        if base >= end:
            return
        _check_head(data, at, base, length, last)
        if stop > len(data):
            return  # a broker may cut the last one
        head = _HEAD.unpack_from(data, at)
        crc, attributes, last_delta, base_ms, max_ms, producer_id, count = *head[4:10], head[12]
        if google_crc32c.value(data[at + _CRC_END : stop]) != crc:
            raise BatchError(f"the batch at offset {base} does not match its checksum")
        at, last, records = stop, base + last_delta, data[at + _HEAD.size : stop]
        if last >= begin:
            if attributes & _CODEC and count:
                records = _decompress(attributes & _CODEC, records, base)
            yield _Batch(base, last, attributes, base_ms, max_ms, producer_id, count, records)


def _check_head(data: bytes, at: int, base: int, length: int, last: int) -> None:
    if data[at + _MAGIC_AT] != _MAGIC:
        raise OldFormat(
            f"the records at offset {base} have the message format of before Kafka 0.11: set "
            f'reader = "spark" in [job]'
        )
    if length < _HEAD.size - _LENGTH_END:
        raise BatchError(f"the batch at offset {base} has a length of {length} bytes")
    if base <= last:
        raise BatchError(f"the batch at offset {base} comes after offset {last}")


def _decompress(codec: int, records: bytes, base: int) -> bytes:
    try:
        return decompress(codec, records)
    except CompressionError as error:
        raise BatchError(f"the batch at offset {base} can't be decompressed: {error}") from error


def _visible(batches: Iterable[_Batch], aborted: Iterable[AbortedTransaction]) -> Iterator[_Batch]:
    """The batches with records that were not aborted, as Java's consumer decides it."""
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    ended: set[int] = set()
    for batch in batches:
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            ended.add(waiting.pop().producer_id)
        if batch.attributes & _CONTROL:
            if batch.record_count and _is_abort(batch):
                ended.discard(batch.producer_id)
        elif batch.record_count and not (batch.attributes & _TRANSACTIONAL and batch.producer_id in ended):
            yield batch


def _is_abort(batch: _Batch) -> bool:
    rows, _ = _parse([batch], batch.base_offset, batch.last_offset + 1, with_headers=False)
    return any(int.from_bytes(key[2:4], "big") == _ABORT_TYPE for key in rows.keys.to_pylist() if key)


def _parse(
    batches: Sequence[_Batch], begin: _Bound, end: _Bound, *, with_headers: bool
) -> tuple[Rows, slice | NDArray[np.bool_]]:
    """The rows of [begin, end), and which of the batches' records they are; a bound may be each record's."""
    first = batches[0].base_offset
    try:
        return _parse_records(batches, begin, end, with_headers=with_headers)
    except (IndexError, ValueError, pa.ArrowInvalid) as error:
        raise BatchError(f"the records from offset {first} on are malformed: {error}") from error


def _parse_records(
    batches: Sequence[_Batch], begin: _Bound, end: _Bound, *, with_headers: bool
) -> tuple[Rows, slice | NDArray[np.bool_]]:
    data = batches[0].records if len(batches) == 1 else b"".join(batch.records for batch in batches)
    if len(data) > _INT32_MAX:
        raise ValueError("they have more than 2 GiB")
    counts = [batch.record_count for batch in batches]
    bounds = np.cumsum([0, *(len(batch.records) for batch in batches)])
    bodies, stops = find_bodies(data, bounds[:-1].tolist(), counts)
    if (stops != bounds[1:]).any():
        behind = (bounds[1:] - stops)[stops != bounds[1:]]
        raise ValueError(f"a batch has {behind[0]} bytes behind its last record")
    view = np.frombuffer(data, np.uint8)
    position = bodies + 1
    time_delta, position = read_varints(view, position)
    offset_delta, position = read_varints(view, position)
    offsets = offset_delta + np.repeat(np.array([batch.base_offset for batch in batches]), counts)
    is_append_time = np.array([bool(batch.attributes & _APPEND_TIME) for batch in batches])
    stamps = [batch.max_ms if batch.attributes & _APPEND_TIME else batch.base_ms for batch in batches]
    times = np.repeat(np.array(stamps), counts)
    times += time_delta if not is_append_time.any() else time_delta * ~np.repeat(is_append_time, counts)
    key_length, key_begin = read_varints(view, position)
    key_end = key_begin + np.maximum(key_length, 0)
    value_length, value_begin = read_varints(view, key_end)
    value_end = value_begin + np.maximum(value_length, 0)
    header_count, headers_at = read_varints(view, value_end)
    wanted = (offsets >= begin) & (offsets < end)
    rows = slice(None) if wanted.all() else wanted
    keys = without_large_keys(cut(data, key_begin[rows], key_end[rows], key_length[rows] < 0))
    values = cut(data, value_begin[rows], value_end[rows], value_length[rows] < 0)
    headers = None
    if with_headers:
        sizes = np.append(bodies[1:], len(data)) - headers_at  # with the length of the next record
        headers = read_headers(data, headers_at[rows], header_count[rows], sizes[rows])
    return Rows(offsets[rows], times[rows], keys, values, headers), rows
