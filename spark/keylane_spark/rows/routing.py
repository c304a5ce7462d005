"""The functions of `keylane.routing` over columns: the same results, without a Python loop over rows.

A column of keys is an Arrow array of type binary, or a slice of one, or `Slices`. Null keys raise ValueError:
they belong to no lane, and the caller filters them. Empty keys are keys.

Rows are processed in chunks that fit the processor's cache, longest row first: the rows that still have a
block of four bytes are then always a prefix, and one numpy step per block serves all of them.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.model.records import Layout
from keylane.routing import check_partitioning, separator_of
from keylane_spark.rows.hashing import CRC32, FNV1A, MMH3, MURMUR2, ColumnHash

_COLUMN_HASHES = {"murmur2": MURMUR2, "crc32": CRC32, "fnv1a": FNV1A}
_CHUNK_ROWS = 16_384
_BLOCK_BYTES = 4
_FEW_ROWS = 32  # up to so many a Python loop beats numpy; and one huge key does not delay its chunk
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)


class Slices(NamedTuple):
    """Keys as parts of one buffer (bytes, uint8): row i is `data[starts[i]:starts[i] + lengths[i]]`."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int32]
    lengths: NDArray[np.integer]


def partition_keys(keys: pa.BinaryArray, partition_by: str) -> pa.BinaryArray | Slices:
    """The part of each key that partition and stripe are computed from: `routing.partition_key`.

    The keys are not copied. Raises ValueError as `routing.partition_key`.
    """
    separator = separator_of(partition_by)
    if not separator:
        return keys
    complete = _slices(keys)
    ends = pc.find_substring(keys, pattern=separator).to_numpy(zero_copy_only=False)
    return complete._replace(lengths=np.where(ends < 0, complete.lengths, ends))


def partition_column(
    keys: pa.BinaryArray | Slices, partition_count: int, partitioner: str = "murmur2"
) -> NDArray[np.int32]:
    """Partition of each key, int32, one per row: `routing.partition_for`, with its ValueErrors."""
    check_partitioning(partition_count, partitioner)
    hashes = hash_column(keys, _COLUMN_HASHES[partitioner])
    if partitioner == "murmur2":
        hashes &= 0x7FFFFFFF  # Kafka's Utils.toPositive
    return (hashes % np.uint32(partition_count)).astype(np.int32)


def stripe_column(keys: pa.BinaryArray | Slices, stripes: int) -> NDArray[np.int32]:
    """Stripe of each key, int32, one per row: `routing.stripe_for`, with its ValueError."""
    if stripes < 1:
        raise ValueError(f"a partition has at least 1 stripe, not {stripes}")
    if stripes == 1:
        return np.zeros(len(_slices(keys).starts), dtype=np.int32)
    return (hash_column(keys, MMH3) % np.uint32(stripes)).astype(np.int32)


def lane_column(keys: pa.BinaryArray, layout: Layout) -> NDArray[np.int32]:
    """Number of each key's lane: its partition times the layout's stripes, plus its stripe."""
    routed_by = partition_keys(keys, layout.partition_by)
    numbers = partition_column(routed_by, layout.partition_count, layout.partitioner)
    if layout.stripes > 1:
        numbers = numbers * layout.stripes + stripe_column(routed_by, layout.stripes)
    return numbers


def hash_column(keys: pa.BinaryArray | Slices, hash_: ColumnHash) -> NDArray[np.uint32]:
    """The unsigned hash of each key."""
    data, starts, lengths = _slices(keys)
    if len(data) < _BLOCK_BYTES:
        data = np.concatenate([data, np.zeros(_BLOCK_BYTES, dtype=np.uint8)])
    hashes = np.empty(len(starts), dtype=np.uint32)
    for first in range(0, len(starts), _CHUNK_ROWS):
        chunk = slice(first, first + _CHUNK_ROWS)
        hashes[chunk] = _hash_rows(data, starts[chunk], lengths[chunk].astype(np.uint32), hash_)
    return hashes


def _slices(keys: pa.BinaryArray | Slices) -> Slices:
    """The keys of an Arrow array, without a copy."""
    if isinstance(keys, Slices):
        return keys
    if keys.type != pa.binary():
        raise TypeError(f"a column of keys is binary, not {keys.type}")
    if keys.null_count:
        raise ValueError(
            f"{keys.null_count} of {len(keys)} keys are null: they belong to no lane, filter them"
        )
    if not len(keys):  # it may have no buffers
        return Slices(np.empty(0, np.uint8), np.empty(0, np.int32), np.empty(0, np.int32))
    _, ends, data = keys.buffers()
    bounds = np.frombuffer(ends, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return Slices(np.frombuffer(data or b"", np.uint8), bounds[:-1], np.diff(bounds))


def _hash_rows(
    data: NDArray[np.uint8],
    starts: NDArray[np.int32],
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
    starts: NDArray[np.int32],
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
