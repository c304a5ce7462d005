"""Values of windows, and what a view's lanes store of them: compressed where the view has `compression`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from keylane.model.records import Layout
from keylane.state.codec import CodecError
from keylane.state.compression import Dictionary, no_dictionary, read_head
from keylane_spark.lanes.dictionaries import Compressors
from keylane_spark.rows.records import Records


class WindowValues:
    """Compresses and expands the values of one view's generation. Not thread-safe.

    `compressors` compresses them; what reads them is its, too. None: they are stored as they are.
    """

    def __init__(self, layout: Layout, compressors: Compressors | None = None) -> None:
        self._layout = layout
        self._compressors = compressors
        self._dictionaries: dict[int, Dictionary] = {}

    def stored(self, values: Sequence[bytes]) -> list[tuple[bytes, bool]]:
        """Return what is stored of each value, and whether that is compressed.

        One that is larger than what readers expand stays as it is.
        """
        found = [(value, False) for value in values]
        small = [at for at, value in enumerate(values) if len(value) <= self._limit_bytes]
        if self._compressors is None or not small:
            return found
        column = pa.array([values[at] for at in small], pa.binary())
        nothing = np.zeros(len(small), np.int64)
        records = self._compressors(self._layout, Records(column, column, nothing, nothing))
        if records.compressed is not None:
            for at, frame, is_shorter in zip(small, records.values, records.compressed, strict=True):
                if is_shorter:
                    found[at] = frame.as_py(), True
        return found

    def expand(self, frame: bytes) -> bytes:
        """Return the value of a frame. Raises CodecError, StateUnavailable."""
        dictionary_id, size_bytes = read_head(frame)
        if size_bytes > self._limit_bytes:
            raise CodecError(f"a compressed value names {size_bytes} bytes, the limit is {self._limit_bytes}")
        return self._dictionary(dictionary_id).expand(frame, size_bytes)

    def close(self) -> None:
        """Close the connections."""
        if self._compressors is not None:
            self._compressors.close()

    @property
    def _limit_bytes(self) -> int:
        return self._layout.options.max_value_bytes

    def _dictionary(self, dictionary_id: int) -> Dictionary:
        if not dictionary_id:
            return no_dictionary()
        if dictionary_id not in self._dictionaries:
            if self._compressors is None:
                raise CodecError("the value is compressed, where none is expected")
            data = self._compressors.dictionary(self._layout, dictionary_id)
            self._dictionaries[dictionary_id] = Dictionary(data)
        return self._dictionaries[dictionary_id]
