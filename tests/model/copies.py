"""Copies of the model's jobs: packed once where a state is saved, unpacked each time that it is restored."""

from __future__ import annotations

import copyreg
import io
import pickle
import threading
from types import FunctionType
from typing import Any, NamedTuple

from keylane_spark.rows.compression import ColumnCompressor

for _new in (threading.Lock, threading.RLock):
    copyreg.pickle(type(_new()), lambda _, new=_new: (new, ()))
copyreg.pickle(ColumnCompressor, lambda each: (ColumnCompressor, (each.dictionary,)))
_STAND_INS = {threading.Thread: threading.Thread(), threading.Event: threading.Event()}
"""What copies have in place of these: nothing runs by itself, and a thread would keep what it is to run."""


class Packed(NamedTuple):
    """A job's bytes, and the objects that all its copies share."""

    data: bytes
    shared: dict[int, Any]


def pack(job: Any, shared: list[Any]) -> Packed:
    """Pack a job; `shared` and what can't be copied remain the same objects."""
    data = io.BytesIO()
    packer = _Packer(data, {id(each): each for each in shared})
    packer.dump(job)
    return Packed(data.getvalue(), packer.shared)


def unpack(packed: Packed) -> Any:
    """Return a new copy."""
    return _Unpacker(packed).load()


class _Packer(pickle.Pickler):
    def __init__(self, data: io.BytesIO, shared: dict[int, Any]) -> None:
        super().__init__(data, pickle.HIGHEST_PROTOCOL)
        self.shared = shared

    def persistent_id(self, obj: Any) -> int | None:
        if isinstance(obj, FunctionType):
            self.shared[id(obj)] = obj
        elif type(obj) in _STAND_INS:
            stand_in = _STAND_INS[type(obj)]
            self.shared[id(stand_in)] = stand_in
            return id(stand_in)
        return id(obj) if id(obj) in self.shared else None


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: Packed) -> None:
        super().__init__(io.BytesIO(packed.data))
        self._shared = packed.shared

    def persistent_load(self, pid: Any) -> Any:
        return self._shared[pid]
