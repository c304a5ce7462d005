"""What tells one state of the model's world from another, and copies of its jobs.

These are packed once where a state is saved, and unpacked each time that it is restored.
"""

from __future__ import annotations

import copyreg
import hashlib
import io
import json
import pickle
import threading
from dataclasses import dataclass, fields, is_dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.connections import commands_in
from tests.model.log import TOMBSTONES_LAST_MS
from tests.model.shards import kind_of

from keylane.state import codec
from keylane_spark.rows.compression import ColumnCompressor

if TYPE_CHECKING:
    from tests.model.job import Job
    from tests.model.world import World


_PLAIN = (dict, set, frozenset, list, tuple, int, str)


def fingerprint(world: World, *, last_calls: int) -> bytes:
    """What decides all that may follow: a hash, for there may be many.

    `last_calls`: how many calls of a shard a failover may still take back.
    """
    seen = _Seen(world)
    calls = {
        tag: [seen.command(call) for call in each[max(0, len(each) - last_calls) :]]
        for tag, each in sorted(world.cluster.calls.items())
    }
    late = world.cluster.late
    state = (
        [seen.key(key, *each) for key, each in sorted(world.contents().items())],
        calls if last_calls else None,
        seen.job(world.job),
        seen.job(world.zombie),
        late and ([seen.command(packed) for packed in late.sent], seen.watched(dict(late.watched))),
        (
            len(world.log),
            world.partition_count,
            sorted(world.removed_below.items()),
            world.cleaned,
            world.expired,
        ),
        (world.seen.strays, [each.generation for each in world.seen.layouts]),
    )
    return hashlib.blake2b(repr(state).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class _Seen:
    """The world without what differs from path to path: times are the records that were acknowledged by then,
    and the hours since; epochs are compared with those of the processes that there are."""

    world: World

    def level(self, time: int) -> Any:
        if not time:
            return None
        hours = (self.world.now - time) // (TOMBSTONES_LAST_MS // 2)
        return sum(record.acked <= time for record in self.world.log), min(hours, 3)

    def epoch(self, epoch: int) -> Any:
        late = self.world.cluster.late
        others = [job.epoch for job in (self.world.job, self.world.zombie) if job]
        others += [late.epoch] if late else []
        return [(epoch > other) - (epoch < other) for other in others]

    def mark(self, data: bytes) -> Any:
        mark = codec.decode_watermark(data)
        is_current = mark.complete_as_of_ms >= self.world.changed
        writer_s = data[1] & 0b1_1000
        level = self.level(mark.complete_as_of_ms)
        return (
            *mark._replace(epoch=0, complete_as_of_ms=0),
            self.epoch(mark.epoch),
            level,
            is_current,
            writer_s,
        )

    def key(self, key: bytes, value: Any, expires: bool) -> Any:
        found = kind_of(key)
        if found:
            if found[1] == b"w":
                value = self.mark(value)
            elif found[1] == b"e":
                value = self.epoch(int(value))
            elif found[1] == b"x":
                value = [(name, float(at) <= 1) for name, at in zip(value[::2], value[1::2], strict=True)]
        elif b":epoch:" in key:
            value = self.epoch(int(value.partition(b" ")[0]))
        elif b":layout:" in key:
            value = self.layout(json.loads(value))
        elif b":topic:" in key:
            value = self.record(json.loads(value))
        return key, value, expires

    def layout(self, given: Any) -> Any:
        return given and sorted((name, repr(each)) for name, each in given.items() if name != "incarnation")

    def record(self, given: dict[str, Any]) -> Any:
        return (
            given["began"],
            self.epoch(given["owner"]["epoch"]),
            self.layout(given["building"]),
            self.layout(given["serving"]),
            given["remove"],
            sorted((generation, self.level(ms)) for generation, ms in given["read_since_ms"].items()),
        )

    def command(self, packed: bytes) -> Any:
        """What is sent, without epoch and claim."""
        found = []
        for _, words in commands_in(packed) if packed.startswith(b"*") else ():
            if words[0] == b"MSET":
                found.append((words[0], words[1], codec.decode_watermark(words[2]).next_offset, *words[3:]))
            elif words[0] == b"FCALL":
                claims = b"apply" in words[1] or b"whole" in words[1]
                arguments = [b"" if claims and at == 3 else word for at, word in enumerate(words[5:])]
                found.append((words[1], *words[3:4], self.epoch(int(words[4])), *arguments))
            elif words[0] in (b"SET", b"DEL", b"ZADD", b"ZREM"):
                found.append(tuple(words))
        return found or packed

    def watched(self, watched: dict[bytes, bytes | None]) -> Any:
        """Which keys are watched, and whether they are as they were."""
        contents = self.world.contents()
        return [(key, contents.get(key, (None, False))[0] == each) for key, each in sorted(watched.items())]

    def job(self, job: Job | None) -> Any:
        if job is None:
            return None
        queries = [self.query(each) for each in (job.query, job.building)]
        return job.ownership.has_begun, queries

    def query(self, query: Any) -> Any:
        if query is None:
            return None
        opening, transactions = query._opening, query._lanes._pipeline._transactions
        kept = [
            (name, _ordered(each)) for name, each in sorted(vars(query).items()) if isinstance(each, _PLAIN)
        ]
        sights = [
            (place, sorted({(self.level(at), end) for at, end in seen}, key=repr))
            for place, seen in sorted(query._freshness._sights.items())
        ]
        return (
            kept,
            [(f.name, _ordered(getattr(opening, f.name))) for f in fields(opening) if f.name not in _OTHER],
            sorted(opening.missed_deletions),
            sorted(opening.parked.reasons),
            self.level(query._heartbeat.complete_as_of_ms),
            sights,
            self.watched(query._cluster.watched()),
            sorted(each.key for each in transactions._watched.values()),
            sorted(transactions._with_strays),
        )


_OTHER = ("writer", "parked", "starts")
"""What is looked at by itself, and what matters only while lanes are opened."""


def _ordered(value: Any) -> Any:
    """The same whatever the order in which sets and dicts were filled."""
    if isinstance(value, dict):
        return sorted(((key, _ordered(each)) for key, each in value.items()), key=repr)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if is_dataclass(value) and not isinstance(value, type):
        return [(f.name, _ordered(getattr(value, f.name))) for f in fields(value)]
    return value


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
