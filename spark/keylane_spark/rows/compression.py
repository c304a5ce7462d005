"""Columns of values -> compressed values, and dictionaries from samples of them. No I/O.

All values of a chunk are compressed by one call, on Arrow's buffers: see docs/decisions/state-and-protocol.md
for what that costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keylane.model.records import Layout
from keylane.state.compression import with_hash_id, zstandard
from keylane_spark.rows.chunks import Folded
from keylane_spark.rows.records import Records, bounds_of, lengths_of

LEVEL = 1
DICTIONARY_BYTES = 4096
MOST_SAMPLES = 4000
MOST_SAMPLED_BYTES = 8 * 1024 * 1024
FEWEST_SAMPLES = 100
"""Of so many a dictionary is nearly as good as of 4,000: flights of 346 bytes get 84 bytes, and then 78."""
_LONGEST_SAMPLE = 16 * 1024
"""What values have in common is in their first bytes, too."""
WINDOW_BYTES = 1024 * 1024
WORSE = 1.25
"""A window is worse whose values are so many times as large after compression as those of the first."""
WINDOWS = 2
"""So many windows in a row are no accident."""
BETTER = 0.9
"""Another dictionary is taken if it leaves so much of what the present one does, or less."""
_SHORTEST = 16
_LEAST_GAIN = 8
"""A value that would lose fewer bytes stays as it is: Redis' allocator has classes that are wider."""

Compress: TypeAlias = Callable[[Layout, Records], Records]
"""Returns a layout's records with those values compressed that get shorter by it."""


def keep_values(layout: Layout, records: Records) -> Records:
    """Return the records as they are."""
    return records


@dataclass(slots=True)
class Sizes:
    """Bytes of values before they were compressed, and after."""

    before: int = 0
    after: int = 0

    @property
    def ratio(self) -> float:
        """What part of the bytes is left; 1 of no bytes."""
        return self.after / self.before if self.before else 1.0


class ColumnCompressor:
    """Compresses values with a dictionary; b"": without one. Not thread-safe."""

    def __init__(self, dictionary: bytes = b"") -> None:
        """Raises CodecError where `zstandard` is missing."""
        module = zstandard()
        self.dictionary = dictionary
        given = None
        if dictionary:
            given = module.ZstdCompressionDict(dictionary, dict_type=module.DICT_TYPE_FULLDICT)
        self.id = int(given.dict_id()) if given else 0
        parameters = module.ZstdCompressionParameters.from_level(
            LEVEL,
            format=module.FORMAT_ZSTD1_MAGICLESS,
            write_content_size=True,
            write_checksum=False,
            write_dict_id=True,
        )
        self._segments = module.BufferWithSegments
        self._compressor = module.ZstdCompressor(dict_data=given, compression_params=parameters)

    def compress(self, records: Records) -> tuple[Records, Sizes]:
        """Return the records with shorter values, and the sizes of all values that are not short anyway."""
        values = records.values
        lengths = lengths_of(values).to_numpy(zero_copy_only=False)
        tried = np.flatnonzero(lengths >= _SHORTEST)
        before = lengths[tried]
        sizes = Sizes(int(before.sum(dtype=np.int64)))
        if not len(tried):
            return records, sizes
        frames = self._frames(values, tried, before)
        after = pc.binary_length(frames).to_numpy(zero_copy_only=False)
        is_shorter = after + _LEAST_GAIN <= before
        sizes.after = int(np.where(is_shorter, after, before).sum(dtype=np.int64))
        if not is_shorter.any():
            return records, sizes
        mask = np.zeros(len(values), np.bool_)
        mask[tried[is_shorter]] = True
        frames = frames if is_shorter.all() else frames.filter(pa.array(is_shorter))
        shorter = frames if mask.all() else pc.replace_with_mask(values, pa.array(mask), frames)
        return replace(records, values=shorter, compressed=mask), sizes

    def _frames(
        self, values: pa.BinaryArray, rows: NDArray[np.int64], lengths: NDArray[np.int32]
    ) -> pa.BinaryArray:
        """The frames of the values of these rows; they are read where they are."""
        segments = np.empty((len(rows), 2), np.uint64)
        segments[:, 0] = bounds_of(values)[:-1][rows]
        segments[:, 1] = lengths
        given = self._segments(values.buffers()[2], segments.tobytes())
        frames = self._compressor.multi_compress_to_buffer(given, threads=1)
        # The library does not show its result's buffers: 0.1 us a value, of the 1.5 that it takes in all.
        return pa.array([frame.tobytes() for frame in frames], pa.binary())


@dataclass(slots=True)
class Samples:
    """Values from which a dictionary is made: the first that come, evenly spread over a chunk."""

    values: list[bytes] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Whether no more are taken."""
        return len(self.values) >= MOST_SAMPLES or self.size_bytes >= MOST_SAMPLED_BYTES

    def add(self, values: pa.BinaryArray) -> None:
        """Take some of these values, evenly spread, unless there are enough."""
        wanted = MOST_SAMPLES - len(self.values)
        if self.is_full or not len(values):
            return
        lengths = lengths_of(values).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(lengths >= _SHORTEST)
        if len(rows) > wanted:
            rows = rows[np.linspace(0, len(rows) - 1, wanted).astype(np.int64)]
        chosen = values.take(pa.array(rows))
        for value in pc.binary_slice(chosen, 0, _LONGEST_SAMPLE).to_pylist():
            self.values.append(value)
            self.size_bytes += len(value)
            if self.size_bytes >= MOST_SAMPLED_BYTES:
                return

    def as_records(self, step: int = 1) -> Records:
        """Every so many of them, as records."""
        values = pa.array(self.values[::step], pa.binary())
        nothing = np.zeros(len(values), np.int64)
        return Records(values, values, nothing, nothing)


def train(samples: Samples) -> bytes | None:
    """Return a dictionary of samples; None of which none can be made, as of values that are all alike."""
    module = zstandard()
    if len(samples.values) < FEWEST_SAMPLES:
        return None
    try:
        trained: bytes = module.train_dictionary(DICTIONARY_BYTES, samples.values, level=LEVEL).as_bytes()
    except module.ZstdError:
        return None
    return with_hash_id(trained)


def best_of(compressors: Sequence[ColumnCompressor], samples: Samples) -> ColumnCompressor:
    """Return which of these compresses samples best: the first one, unless another is much better."""
    some = samples.as_records(max(1, len(samples.values) // FEWEST_SAMPLES))
    first, *others = [each.compress(some)[1].ratio for each in compressors]
    best = min(others, default=first)
    return compressors[1 + others.index(best)] if best <= first * BETTER else compressors[0]


class RatioWatch:
    """Notices that a dictionary no longer fits the values: it compares windows with the first one."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._window = Sizes()
        self._worse = 0

    def note(self, sizes: Sizes) -> bool:
        """Add sizes; returns whether the ratio of the last windows is worse for good."""
        self._window.before += sizes.before
        self._window.after += sizes.after
        if self._window.before < WINDOW_BYTES:
            return False
        ratio, self._window = self._window.ratio, Sizes()
        if self._first is None:
            self._first = ratio
        self._worse = self._worse + 1 if ratio > self._first * WORSE else 0
        return self._worse >= WINDOWS


def compress_chunks(chunks: Sequence[Folded], layout: Layout, compress: Compress) -> list[Folded]:
    """Compress the values of a layout's chunks, at least one, all at once."""
    if layout.options.compression == "none":
        return list(chunks)
    records = compress(layout, Records.joined([chunk.records for chunk in chunks]))
    ends = list(accumulate(len(chunk.records) for chunk in chunks))
    return [
        replace(chunk, records=records.part(begin, end))
        for chunk, (begin, end) in zip(chunks, pairwise([0, *ends]), strict=True)
    ]
