"""Copies of the model's jobs: packed once where a state is saved, unpacked each time that it is restored."""

from __future__ import annotations

import copyreg
import io
import pickle
import threading
from types import FunctionType
from typing import Any, NamedTuple

copyreg.pickle(type(threading.Lock()), lambda _: (threading.Lock, ()))
_KEPT = (threading.Thread, threading.Event, FunctionType)
"""What a copy shares with its original."""


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
        if isinstance(obj, _KEPT):
            self.shared[id(obj)] = obj
        return id(obj) if id(obj) in self.shared else None


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: Packed) -> None:
        super().__init__(io.BytesIO(packed.data))
        self._shared = packed.shared

    def persistent_load(self, pid: Any) -> Any:
        return self._shared[pid]
