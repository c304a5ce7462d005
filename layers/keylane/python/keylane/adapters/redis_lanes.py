"""The lane protocol from the writer's side: open lanes, apply chunks to them, in order, pipelined.

How a chunk gets into its lane:

1. `apply` sends it at once to the lane's primary and remembers it until its reply has come.
2. A lane's chunks go over one connection in order, each names the offset it begins at, and the server
   refuses one that does not follow: so many may be under way, and a lost one stops those behind it.
3. What may pass (a connection lost, a node moved, loading or full, the library missing) is repeated from
   the first chunk without a reply, with pauses, until `patience_s` is over. What a lane already has is
   skipped by the server, so repeating is no harm.
4. `Fenced` and `LaneBehind` come out at once: they don't pass.

Not to be shared between threads, as `Cluster`.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError, ResponseError

from keylane import codec, routing
from keylane.adapters.redis_wire import (
    encode_command,
    read_reply,
    translate_redis_errors,
)
from keylane.errors import CorruptState, Fenced, LaneBehind, StateUnavailable
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from keylane.adapters.redis_cluster import Cluster, Node
    from keylane.model import Layout, Options
    from keylane.ports import Clock

APPLY = b"keylane_apply_2"
OPEN = b"keylane_open_2"
STRAYS = b"keylane_strays_2"
MARKER_MS = 24 * 3600 * 1000
"""How long a tombstone that meets strays leaves a marker: nothing older comes back within it."""
IN_FLIGHT = 16
"""Chunks without a reply on one connection: enough to hide a round trip, few enough for Redis' buffers."""
PATIENCE_S = 60.0
TURN_S = 5.0
"""What one answer may take: a node that is silent for longer is taken for dead, and the map is read anew."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Where the records of one (topic, partition, stripe) go, and what is kept of them."""

    topic: str
    partition: int
    stripe: int
    slot: int
    watermark_key: bytes
    key_prefix: bytes
    options: Options

    @classmethod
    def of(cls, layout: Layout, partition: int, stripe: int) -> Lane:
        """Compute the lane by the layout, which must be a valid one.

        A partition beyond the layout's (the topic has grown) has a watermark alone, for all of its records
        are at home in others: it lies in the slot of the partition modulo the layout's count.
        """
        home = partition % layout.partition_count
        slot = routing.slot_for(home, stripe, layout.partition_count, layout.stripes)
        tag = routing.hash_tag(slot)
        return cls(
            layout.topic,
            partition,
            stripe,
            slot,
            codec.watermark_key(tag, layout.topic, layout.generation, partition, stripe),
            codec.value_key_prefix(tag, layout.topic, layout.generation),
            layout.options,
        )

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}.{self.stripe}"


@dataclass(frozen=True, slots=True)
class LaneStart:
    """Where an opened lane stands; `incomplete`: the log has lost records that the lane never saw."""

    next_offset: int
    incomplete: bool


@dataclass(slots=True)
class _Call:
    lane: Lane
    begin_offset: int
    packed: bytes
    take: Callable[[Any], None]


class LaneWriter:
    """Writes lanes for one epoch. `notify` is told in a sentence of each pause that trouble costs."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        epoch: int,
        *,
        patience_s: float = PATIENCE_S,
        turn_s: float = TURN_S,
        marker_ms: int = MARKER_MS,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._epoch = epoch
        self._patience_s = patience_s
        self._turn_s = turn_s
        self._marker = b"%d" % marker_ms
        self._notify = notify
        self._pending: dict[Node, deque[_Call]] = {}

    def open(self, lanes: Iterable[tuple[Lane, int]]) -> dict[Lane, LaneStart]:
        """Take each lane for this epoch; the int is the oldest offset that the log still has of it.

        Raises Fenced (a writer has this epoch or a newer one), CorruptState, StateUnavailable.
        """
        starts: dict[Lane, LaneStart] = {}
        for lane, oldest in lanes:
            arguments = (OPEN, b"1", lane.watermark_key, b"%d" % self._epoch, b"%d" % oldest)
            self._send(_Call(lane, oldest, encode_command(b"FCALL", *arguments), _taker(starts, lane)))
        self.flush()
        return starts

    def apply(
        self,
        lane: Lane,
        begin_offset: int,
        end_offset: int,
        *,
        arguments: bytes | memoryview = b"",
        count: int = 0,
        has_tombstones: bool = False,
        newest_timestamp_ms: int = 0,
        complete_as_of_ms: int = 0,
    ) -> None:
        """Send the records of [begin, end) on their way; `flush` tells that they have arrived.

        `arguments`: `count` pairs of key and payload as RESP bulk strings, in offset order (see codec).
        Without records it moves the watermark alone. Raises what an earlier chunk met: Fenced,
        LaneBehind, CorruptState, StateUnavailable.
        """
        head = encode_command(
            b"FCALL",
            APPLY,
            b"1",
            lane.watermark_key,
            b"%d" % self._epoch,
            b"%d" % begin_offset,
            b"%d" % end_offset,
            b"%d" % newest_timestamp_ms,
            b"%d" % complete_as_of_ms,
            b"1" if has_tombstones else b"0",
            self._marker,
        )
        self._send(_Call(lane, begin_offset, _with_records(head, arguments, count), lambda _: None))

    def put_strays(self, lane: Lane, arguments: bytes | memoryview, count: int) -> None:
        """Send records of other partitions to the lane where readers look for their keys.

        Each is written only if newer than what is there. `arguments` as for `apply`, the payloads with their
        source partition. Errors as `apply`.
        """
        head = encode_command(b"FCALL", STRAYS, b"1", lane.watermark_key, b"%d" % self._epoch, self._marker)
        self._send(_Call(lane, 0, _with_records(head, arguments, count), lambda _: None))

    def flush(self) -> None:
        """Wait until everything sent has arrived; errors as `apply`."""
        while self._pending:
            self._receive(next(iter(self._pending)), leave=0)

    def abandon(self) -> None:
        """Forget what is under way: after an error, when the batch will be written anew."""
        for node in self._pending:
            self._cluster.drop(node)
        self._pending.clear()

    def _send(self, call: _Call) -> None:
        try:
            node = self._cluster.primary(call.lane.slot)
        except StateUnavailable as error:
            self._recover(error, call)
            return
        waiting = self._pending.setdefault(node, deque())
        waiting.append(call)
        try:
            self._put(node, call)
        except (RedisError, OSError) as error:
            self._recover(error)
            return
        if len(waiting) > IN_FLIGHT:
            self._receive(node, leave=IN_FLIGHT // 2)

    def _put(self, node: Node, call: _Call) -> None:
        connection = self._cluster.connection(node, self._turn())
        connection._sock.settimeout(self._turn_s)  # noqa: SLF001 (no public way for writes)
        connection.send_packed_command([call.packed], check_health=False)

    def _receive(self, node: Node, leave: int) -> None:
        """Read replies until `leave` are left."""
        waiting = self._pending[node]
        try:
            connection = self._cluster.connection(node, self._turn())
            connection._sock.settimeout(self._turn_s)  # noqa: SLF001
            while len(waiting) > leave:
                reply = read_reply(connection)
                if isinstance(reply, Exception):
                    self._raise_what_stays(reply, waiting[0])
                    raise reply
                waiting.popleft().take(reply)
        except (Fenced, LaneBehind, CorruptState):
            self.abandon()
            raise
        except (RedisError, OSError) as error:
            self._recover(error)
            return
        if not waiting:
            self._pending.pop(node, None)

    def _raise_what_stays(self, error: Exception, call: _Call) -> None:
        """Raise the error that no repeating mends; return for those that pass."""
        word, _, detail = str(error).partition(" ")
        if word == "FENCED":
            raise Fenced(str(call.lane), self._epoch, int(detail)) from error
        if word == "BEHIND":
            stands_at = int(detail)
            raise LaneBehind(
                str(call.lane), stands_at if stands_at >= 0 else None, call.begin_offset
            ) from error
        if word in ("CORRUPT", "WRONGTYPE"):
            raise CorruptState(ascii(call.lane.watermark_key)[2:-1], str(error)) from error

    def _recover(self, error: Exception, *more: _Call) -> None:
        """Send all that has no reply yet again, wherever its lanes are now, until each has its reply.

        All nodes', not just the one in trouble: the map may change, and a lane's chunks stay in order.
        """
        calls = deque([*(call for waiting in self._pending.values() for call in waiting), *more])
        self.abandon()
        until = Deadline.after_ms(self._patience_s * 1000, self._clock)
        pause_s = 0.02
        while calls:
            try:
                with translate_redis_errors():
                    self._mend(error, calls[0])
                    while calls:
                        self._repeat(calls[0])
                        calls.popleft()
            except StateUnavailable as unavailable:
                error = unavailable.__cause__ if isinstance(unavailable.__cause__, Exception) else unavailable
                if until.remaining_s <= 0:
                    raise StateUnavailable(
                        f"Redis took no writes for {self._patience_s:.0f} s: {error}", 10
                    ) from error
                if not _is_library_missing(error):
                    self._clock.pause_s(min(pause_s * random.uniform(0.5, 1.0), until.remaining_s))  # noqa: S311
                    pause_s = min(pause_s * 2, 2.0)

    def _mend(self, error: Exception, call: _Call) -> None:
        """Do what the error asks for before its call is repeated."""
        if _is_library_missing(error):
            self._load_library(call.lane.slot)
            return
        if self._cluster.nodes:
            self._notify(f"writing to Redis is held up: {error}")
        self._cluster.refresh(self._turn())

    def _turn(self) -> Deadline:
        return Deadline.after_ms(self._turn_s * 1000, self._clock)

    def _repeat(self, call: _Call) -> None:
        node = self._cluster.primary(call.lane.slot)
        (reply,) = self._cluster.roundtrip(node, call.packed, 1, self._turn())
        if isinstance(reply, Exception):
            self._raise_what_stays(reply, call)
            raise reply
        call.take(reply)

    def _load_library(self, slot: int) -> None:
        node = self._cluster.primary(slot)
        code = files(__package__).joinpath("library.lua").read_bytes()
        load = encode_command(b"FUNCTION", b"LOAD", b"REPLACE", code)
        (reply,) = self._cluster.roundtrip(node, load, 1, self._turn())
        if isinstance(reply, Exception):
            raise reply


def _with_records(head: bytes, arguments: bytes | memoryview, count: int) -> bytes:
    """The command with its records: the head counts its own arguments, the records' come on top."""
    own, _, rest = head.partition(b"\r\n")
    return b"".join((b"*%d\r\n" % (int(own[1:]) + 2 * count), rest, arguments))


def _taker(starts: dict[Lane, LaneStart], lane: Lane) -> Callable[[Any], None]:
    def take(reply: Any) -> None:
        starts[lane] = LaneStart(int(reply[0]), bool(reply[1]))

    return take


def _is_library_missing(error: Exception) -> bool:
    return isinstance(error, ResponseError) and "Function not found" in str(error)
