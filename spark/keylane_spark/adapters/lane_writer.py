"""The lane protocol from the writer's side: open lanes, apply chunks to them, in order, pipelined.

How a chunk gets into its lane:

1. `apply` sends it at once to the lane's primary and remembers it until its reply has come.
2. A lane's chunks go over one connection in order, each names the offset it begins at, and the server
   refuses one that does not follow: so many may be under way, and a lost one stops those behind it.
3. What may pass (a connection lost, a node loading or full, a slot on its way, the library missing) is
   repeated from the first chunk without a reply, with pauses, until `patience_s` is over. What a lane
   already has is skipped by the server, so repeating is no harm.
4. `Fenced` and `LaneBehind` come out at once: they don't pass.

Not to be shared between threads, as `Cluster`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from keylane.adapters.redis.resp import encode_command, read_reply
from keylane.errors import CorruptState, Fenced, KeylaneError, LaneBehind, StateUnavailable, StraysLost
from keylane.ports import Deadline
from keylane.state import codec
from keylane_spark.adapters import function_library as library
from keylane_spark.adapters.function_library import PATIENCE_S, TURN_S, Refused
from keylane_spark.adapters.lane import LaneStart, LaneTarget, rules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from keylane.adapters.redis.cluster import Cluster, Node
    from keylane.ports import Clock

__all__ = ["LaneStart", "LaneTarget", "LaneWriter"]

IN_FLIGHT = 16
"""Chunks without a reply on one connection: enough to hide a round trip, few enough for Redis' buffers."""


@dataclass(slots=True)
class _Call:
    lane: LaneTarget
    begin_offset: int
    packed: bytes
    take: Callable[[Any], None]


class LaneWriter:
    """Writes lanes for one epoch. `notify` is told in a sentence of each pause that trouble costs.

    With `wait_replicas` what was written counts as arrived once so many replicas of its shard have it; where
    they don't within `wait_ms`, `notify` is told, once until they do again, and it counts all the same.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        epoch: int,
        *,
        patience_s: float = PATIENCE_S,
        turn_s: float = TURN_S,
        wait_replicas: int = 0,
        wait_ms: int = 1000,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._epoch = epoch
        self._patience_s = patience_s
        self._turn_s = turn_s
        self._wait_replicas = wait_replicas
        self._wait_ms = wait_ms
        self._notify = notify
        self._pending: dict[Node, deque[_Call]] = {}
        self._written: set[Node] = set()
        self._is_short = False

    def open(
        self, lanes: Iterable[tuple[LaneTarget, int]], incomplete: Collection[LaneTarget] = ()
    ) -> dict[LaneTarget, LaneStart]:
        """Take each lane for this epoch; the int is the oldest offset that the log still has of it.

        A lane that is new and in `incomplete` begins as one that has lost records. A superseded lane serves
        again. Raises Fenced (a writer has this epoch or a newer one), CorruptState, StateUnavailable.
        """
        starts: dict[LaneTarget, LaneStart] = {}
        able: set[Node | None] = set()
        for lane, oldest in lanes:
            prefix = b"%d" % len(lane.key_prefix)
            packed = self._command(library.OPEN, lane, b"%d" % oldest, b"%d" % (lane in incomplete), prefix)
            call = _Call(lane, oldest, packed, _taker(starts, lane))
            if self._node_of(lane) in able:
                self._send(call)
                continue
            # A node's first lane alone, for the library may be missing there: a lane that is opened again
            # because of what another node lacks would meet its own epoch.
            self.flush()
            self._recover(None, call)
            able.add(self._node_of(lane))
        self.flush()
        return starts

    def _node_of(self, lane: LaneTarget) -> Node | None:
        try:
            return self._cluster.primary(lane.slot)
        except StateUnavailable:
            return None

    def supersede(self, lanes: Iterable[LaneTarget]) -> None:
        """Tell readers of these lanes that theirs is not the current generation; all are told on return.

        Lanes without a watermark are left alone. Errors as `open`.
        """
        self._mark(lanes, codec.SUPERSEDED)

    def mark_incomplete(self, lanes: Iterable[LaneTarget]) -> None:
        """Tell readers of these lanes that records are lost for good. Errors as `open`."""
        self._mark(lanes, codec.INCOMPLETE)

    def _mark(self, lanes: Iterable[LaneTarget], flag: int) -> None:
        for lane in lanes:
            self._send(_Call(lane, 0, self._command(library.MARK, lane, b"%d" % flag), lambda _: None))
        self.flush()

    def apply(
        self,
        lane: LaneTarget,
        begin_offset: int,
        end_offset: int,
        *,
        arguments: bytes | memoryview = b"",
        count: int = 0,
        has_tombstones: bool = False,
        newest_timestamp_ms: int = 0,
        complete_as_of_ms: int = 0,
        log_end: int = 0,
        has_strays: bool = False,
    ) -> None:
        """Send the records of [begin, end) on their way; `flush` tells that they have arrived.

        `arguments`: `count` pairs of key and payload as RESP bulk strings, in offset order (see codec).
        Without records it moves the watermark alone. `log_end`: where the partition was seen to end, 0 when
        it was not looked at. `has_strays`: refused by a lane that may have lost some. Raises what an earlier
        chunk met: Fenced, LaneBehind, StraysLost, CorruptState, StateUnavailable.
        """
        head = self._command(
            library.WHOLE if has_strays else library.APPLY,
            lane,
            b"%d" % begin_offset,
            b"%d" % end_offset,
            b"%d" % newest_timestamp_ms,
            b"%d" % complete_as_of_ms,
            b"%d" % log_end,
            b"%d" % has_tombstones,
            *rules(lane.options, len(lane.key_prefix)),
        )
        self._send(_Call(lane, begin_offset, _with_records(head, arguments, count), lambda _: None))

    def put_strays(
        self,
        lane: LaneTarget,
        arguments: bytes | memoryview,
        count: int,
        source_partition: int = -1,
        end_offset: int = 0,
    ) -> None:
        """Send records of another partition to the lane where readers look for their keys.

        Each is written only if newer than what is there. `arguments` as for `apply`, the payloads with their
        source partition; with these the lane has all strays of `source_partition` below `end_offset` (-1:
        nothing is said of that). Errors as `apply`.
        """
        numbers = b"%d" % source_partition, b"%d" % end_offset
        head = self._command(library.STRAYS, lane, *rules(lane.options, len(lane.key_prefix)), *numbers)
        self._send(_Call(lane, 0, _with_records(head, arguments, count), lambda _: None))

    def note_strays(self, source: LaneTarget, given: Mapping[LaneTarget, int]) -> None:
        """Note in a partition's first lane which lanes have been given its strays, each below which offset.

        After they have arrived, before the partition's watermark moves. Errors as `apply`.
        """
        pairs = [part for lane, to in given.items() for part in (lane.name.encode(), b"%d" % to)]
        packed = self._command(library.GAVE, source, b"%d" % len(source.key_prefix), *pairs)
        self._send(_Call(source, 0, packed, lambda _: None))

    def flush(self) -> None:
        """Wait until everything sent has arrived; errors as `apply`."""
        while self._pending:
            self._receive(next(iter(self._pending)), leave=0)
        if self._wait_replicas and self._written:
            self._wait()
            self._written.clear()

    def _wait(self) -> None:
        wanted = self._wait_replicas
        try:
            reached = library.replicas_reached(
                self._cluster, self._written, wanted, self._wait_ms, self._turn()
            )
            trouble = f"{reached} of {wanted} replicas have the writes" if reached < wanted else ""
        except StateUnavailable as error:
            trouble = f"it is not known whether {wanted} replicas have the writes: {error}"
        if trouble and not self._is_short:
            self._notify(trouble)
        self._is_short = bool(trouble)

    def abandon(self) -> None:
        """Forget what is under way: after an error, when the batch will be written anew."""
        for node in self._pending:
            self._cluster.drop(node)
        self._pending.clear()

    def _command(self, function: bytes, lane: LaneTarget, *arguments: bytes) -> bytes:
        return encode_command(b"FCALL", function, b"1", lane.watermark_key, b"%d" % self._epoch, *arguments)

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
        self._written.add(node)
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
                reply = library.check(read_reply(connection))
                waiting.popleft().take(reply)
        except Refused as refused:
            self.abandon()
            raise self._refusal(refused, waiting[0]) from refused
        except (RedisError, OSError) as error:
            self._recover(error)
            return
        if not waiting:
            self._pending.pop(node, None)

    def _refusal(self, refused: Refused, call: _Call) -> KeylaneError:
        if refused.word == "FENCED":
            return Fenced(str(call.lane), self._epoch, int(refused.detail))
        if refused.word == "BEHIND":
            stands_at = int(refused.detail)
            return LaneBehind(str(call.lane), stands_at if stands_at >= 0 else None, call.begin_offset)
        if refused.word == "LOST":
            return StraysLost(str(call.lane))
        return CorruptState(ascii(call.lane.watermark_key)[2:-1], str(refused))

    def _recover(self, error: Exception | None, *more: _Call) -> None:
        """Send all that has no reply yet again, wherever its lanes are now, until each has its reply.

        All nodes', not just the one in trouble: the map may change, and a lane's chunks stay in order.
        """
        calls = [*(call for waiting in self._pending.values() for call in waiting), *more]
        self.abandon()
        for call in calls:
            try:
                reply = library.call(
                    self._cluster,
                    call.lane.slot,
                    call.packed,
                    self._clock,
                    patience_s=self._patience_s,
                    turn_s=self._turn_s,
                    notify=self._notify,
                    error=error,
                )
            except Refused as refused:
                raise self._refusal(refused, call) from refused
            error = None
            self._written.add(self._cluster.primary(call.lane.slot))
            call.take(reply)

    def _turn(self) -> Deadline:
        return Deadline.after_ms(self._turn_s * 1000, self._clock)


def _with_records(head: bytes, arguments: bytes | memoryview, count: int) -> bytes:
    """The command with its records: the head counts its own arguments, the records' come on top."""
    own, _, rest = head.partition(b"\r\n")
    return b"".join((b"*%d\r\n" % (int(own[1:]) + 2 * count), rest, arguments))


def _taker(starts: dict[LaneTarget, LaneStart], lane: LaneTarget) -> Callable[[Any], None]:
    def take(reply: Any) -> None:
        starts[lane] = LaneStart.of(reply)

    return take
