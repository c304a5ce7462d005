"""The functions of `keylane.routing` over columns: the same results, without a Python loop over rows.

A column of keys is one of

- a pyarrow binary, large_binary, string or large_string array (or a slice of one), or a ChunkedArray of them;
- a pair of numpy arrays `(data, offsets)`: row i is `data[offsets[i]:offsets[i + 1]]`;
- `Slices`.

Null keys raise ValueError: they belong to no lane, and the caller filters them. Empty keys are keys.

Rows are processed in chunks that fit the processor's cache, longest row first: the rows that still have a
block of four bytes are then always a prefix, and one numpy step per block serves all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.routing import check_partitioning, separator_of
from keylane_spark.columns.hashing import CRC32, FNV1A, MMH3, MURMUR2, ColumnHash

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COLUMN_HASHES = {"murmur2": MURMUR2, "crc32": CRC32, "fnv1a": FNV1A}
_CHUNK_ROWS = 16_384
_BLOCK_BYTES = 4
_FEW_ROWS = 32  # up to so many a Python loop beats numpy; and one huge key does not delay its chunk
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)


class Slices(NamedTuple):
    """Keys as parts of one buffer (bytes, uint8): row i is `data[starts[i]:starts[i] + lengths[i]]`."""

    data: NDArray[np.uint8]
    starts: NDArray[np.signedinteger[Any]]
    lengths: NDArray[np.signedinteger[Any]]


def partition_keys(keys: pa.Array, partition_by: str) -> pa.Array | Slices:
    """The part of each key that partition and stripe are computed from: `routing.partition_key`.

    `keys`: one Arrow array without nulls; it is not copied. Raises ValueError as `routing.partition_key`.
    """
    separator = separator_of(partition_by)
    if not separator:
        return keys
    whole = _slices(keys)
    ends = pc.find_substring(keys, pattern=separator).to_numpy(zero_copy_only=False)
    return whole._replace(lengths=np.where(ends < 0, whole.lengths, ends))


def murmur2_column(keys: Any) -> NDArray[np.int32]:
    """Kafka's murmur2 of each key, int32, one per row: `routing.murmur2`."""
    return _hash_column(keys, MURMUR2).view(np.int32)


def partition_column(keys: Any, partition_count: int, partitioner: str = "murmur2") -> NDArray[np.int32]:
    """Partition of each key, int32, one per row: `routing.partition_for`, with its ValueErrors."""
    check_partitioning(partition_count, partitioner)
    hashes = _hash_column(keys, _COLUMN_HASHES[partitioner])
    if partitioner == "murmur2":
        hashes &= 0x7FFFFFFF  # Kafka's Utils.toPositive
    return (hashes % np.uint32(partition_count)).astype(np.int32)


def stripe_column(keys: Any, stripes: int) -> NDArray[np.int32]:
    """Stripe of each key, int32, one per row: `routing.stripe_for`, with its ValueError."""
    if stripes < 1:
        raise ValueError(f"a partition has at least 1 stripe, not {stripes}")
    if stripes == 1:
        return np.zeros(_row_count(keys), dtype=np.int32)
    return (_hash_column(keys, MMH3) % np.uint32(stripes)).astype(np.int32)


def _hash_column(keys: Any, hash_: ColumnHash) -> NDArray[np.uint32]:
    if isinstance(keys, pa.ChunkedArray):
        return np.concatenate(
            [np.empty(0, np.uint32), *(_hash_column(chunk, hash_) for chunk in keys.chunks)]
        )
    data, starts, lengths = _slices(keys)
    if len(data) < _BLOCK_BYTES:
        data = np.concatenate([data, np.zeros(_BLOCK_BYTES, dtype=np.uint8)])
    hashes = np.empty(len(starts), dtype=np.uint32)
    for first in range(0, len(starts), _CHUNK_ROWS):
        chunk = slice(first, first + _CHUNK_ROWS)
        hashes[chunk] = _hash_rows(data, starts[chunk], lengths[chunk].astype(np.uint32), hash_)
    return hashes


def _row_count(keys: Any) -> int:
    if isinstance(keys, Slices):
        return len(keys.starts)
    if isinstance(keys, tuple):
        return len(keys[1]) - 1
    if keys.null_count:
        raise ValueError(
            f"{keys.null_count} of {len(keys)} keys are null: they belong to no lane, filter them"
        )
    return len(keys)


def _slices(keys: Any) -> Slices:
    if isinstance(keys, Slices):
        return keys
    data, offsets = keys if isinstance(keys, tuple) else _views(keys)
    return Slices(data, offsets[:-1], np.diff(offsets))


def _views(keys: Any) -> tuple[NDArray[np.uint8], NDArray[np.signedinteger[Any]]]:
    """The (data, offsets) of an Arrow array, without a copy."""
    rows = _row_count(keys)
    if pa.types.is_binary(keys.type) or pa.types.is_string(keys.type):
        width: type[np.signedinteger[Any]] = np.int32
    elif pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type):
        width = np.int64
    else:
        raise TypeError(f"a column of keys is binary or string, not {keys.type}")
    if rows == 0:  # an empty array may have no buffers
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=width)
    _, offsets, data = keys.buffers()
    return (
        np.frombuffer(data or b"", dtype=np.uint8),
        np.frombuffer(offsets, dtype=width)[keys.offset : keys.offset + rows + 1],
    )


def _hash_rows(
    data: NDArray[np.uint8],
    starts: NDArray[np.signedinteger[Any]],
    lengths: NDArray[np.uint32],
    hash_: ColumnHash,
) -> NDArray[np.uint32]:
    if len(lengths) > _FEW_ROWS and lengths.min() == lengths.max():
        return _hash_longest_first(data, starts, lengths, hash_)
    hashes = np.empty(len(lengths), dtype=np.uint32)
    order = np.argsort(lengths)[::-1]
    blocks = lengths[order[: _FEW_ROWS + 1]] // _BLOCK_BYTES
    few = int(np.count_nonzero(blocks > blocks[-1])) if len(order) > _FEW_ROWS else len(order)
    for row in order[:few]:
        hashes[row] = hash_.one(data[starts[row] : starts[row] + lengths[row]].tobytes())
    if few < len(order):
        rest = order[few:]
        hashes[rest] = _hash_longest_first(data, starts[rest], lengths[rest], hash_)
    return hashes


def _hash_longest_first(
    data: NDArray[np.uint8],
    starts: NDArray[np.signedinteger[Any]],
    lengths: NDArray[np.uint32],
    hash_: ColumnHash,
) -> NDArray[np.uint32]:
    # The block that begins at every byte: a view with a stride of one, not a copy.
    words: NDArray[np.uint32] = np.ndarray(
        (len(data) - _BLOCK_BYTES + 1,), dtype="<u4", buffer=data, strides=(1,)
    )
    states = hash_.start(lengths)
    blocks = lengths // _BLOCK_BYTES
    for index in range(int(blocks[0])):
        active = len(blocks) - int(np.searchsorted(blocks[::-1], index, side="right"))
        hash_.block(states[:active], words[starts[:active] + _BLOCK_BYTES * index])
    sizes = lengths % _BLOCK_BYTES
    if sizes.any():
        ends = starts + (lengths - sizes).astype(starts.dtype)
        readable = np.minimum(ends, len(words) - 1)  # the last row's tail is read from before its start
        tails = words[readable] >> (8 * (ends - readable)).astype(np.uint32)
        hash_.tail(states, tails & _TAIL_MASKS[sizes], sizes)
    hash_.finish(states, lengths)
    return states
