"""Applies chunks to lanes that take records as they come, by transactions: WATCH and GET, then MULTI to EXEC.

A function call costs Redis 1 us a record more, for every key and value passes through Lua; where it compares
each record because the lane has an index, 5 us; 10 to 30 us with indexes of fields.

1. The watermark is watched and read. Only if the reply shows that this writer owns the lane, that the lane
   has no strays, and that the chunk brings it forward without a gap, the transaction is sent: one MSET of the
   records and of the moved watermark, then tombstones, and what changes in an index. Nothing is sent before
   that reply has arrived. For indexes of fields the heads of what the keys hold are read in between: whatever
   changes a record of the lane writes the watermark, or finds strays noted there.
2. EXEC does nothing if the watermark was written in between, as by this writer's heartbeat. It is read again
   right behind EXEC, and that reading decides. If the chunk was applied, it serves the lane's next chunk, so
   chunks of one lane wait for one round trip each.
3. What a transaction can't do, the function does: `begin` or `finish` return False, and the caller sends the
   call. So errors, migrating slots and retries are as they are for calls. A chunk whose reply was lost may
   have been applied: the function skips it then.
"""

from dataclasses import dataclass
from typing import Any

from keylane.adapters.redis.cluster import Node
from keylane.adapters.redis.error_replies import RedisError
from keylane.adapters.redis.resp import encode_command
from keylane.state import codec
from keylane_spark.lanes import function_library as library
from keylane_spark.lanes.function_library import FunctionLibrary
from keylane_spark.lanes.lane import LaneCall
from keylane_spark.rows.chunks import Chunk
from keylane_spark.rows.ordered_writes import FieldChanges

_ATTEMPTS = 3
_OWN_REPLIES = 5
"""To MULTI, MSET, EXEC, WATCH and GET."""
_UNWATCH, _MULTI, _EXEC = (encode_command(name) for name in (b"UNWATCH", b"MULTI", b"EXEC"))


@dataclass(frozen=True, slots=True)
class _Watched:
    """The watermark that a connection watches, and what it was. Another connection does not watch it."""

    connection: int
    key: bytes
    stored: bytes


class ChunkTransactions:
    """The transactions of one writer: at most one in flight on a connection, and no calls beside it."""

    def __init__(self, library_: FunctionLibrary, epoch: int) -> None:
        self._library = library_
        self._cluster = library_.cluster
        self._epoch = epoch
        self._watched: dict[Node, _Watched] = {}
        self._sent: dict[Node, int] = {}
        """How many replies are to come from each node to which a transaction was sent."""
        self._with_strays: set[bytes] = set()

    def is_sent(self, node: Node) -> bool:
        """Whether a transaction is in flight; `finish` reads its replies."""
        return node in self._sent

    def has_met_strays(self, watermark_key: bytes) -> bool:
        """Whether the lane of this watermark had strays when a chunk was to be sent."""
        return watermark_key in self._with_strays

    def forget(self, node: Node) -> None:
        """Forget what was sent to a node: its connection is closed."""
        self._sent.pop(node, None)
        self._watched.pop(node, None)

    def begin(self, node: Node, call: LaneCall) -> bool:
        """Send a chunk; False: it must go as a call. Nothing may be in flight on the connection."""
        key = call.lane.watermark_key
        if key in self._with_strays:
            return False
        watched = self._watched.pop(node, None)
        try:
            if watched and watched.key == key and watched.connection == self._cluster.connection_number(node):
                return self._send(node, call, watched.stored)
            return self._send(node, call, self._watch(node, key))
        except (RedisError, OSError):
            return False  # the connection is closed; the call meets the error too, if it lasts

    def finish(self, node: Node, call: LaneCall) -> bool:
        """Wait for a chunk that was sent; False: it must go as a call.

        Raises CallRefused (another type is in the way of the index), RedisError, OSError.
        """
        for _ in range(_ATTEMPTS):
            *_, applied, _, stored = self._receive(node, self._sent.pop(node))
            if isinstance(applied, list):
                for reply in applied:
                    library.checked(reply)
                if isinstance(stored, bytes):
                    connection = self._cluster.connection_number(node)
                    self._watched[node] = _Watched(connection, call.lane.watermark_key, stored)
                return True
            if applied is not None or not self._send(node, call, stored):
                break
        return False

    def _watch(self, node: Node, key: bytes) -> object:
        self._cluster.send(node, _UNWATCH + _watch_and_get(key), self._library.attempt())
        return self._receive(node, 3)[-1]

    def _receive(self, node: Node, count: int) -> list[Any]:
        return self._cluster.receive(node, count, self._library.attempt())

    def _send(self, node: Node, call: LaneCall, stored: object) -> bool:
        """Send a chunk over a connection that watches its lane; `stored`: the reply to GET."""
        key, chunk = call.lane.watermark_key, call.chunk
        writes = chunk.ordered if chunk else None
        if chunk is None or writes is None or (watermark := self._moved(call, chunk, stored)) is None:
            return False
        others, count = writes.others, writes.other_count
        if writes.fields:
            changes = self._field_commands(node, writes.fields)
            if changes is None:
                return False
            others, count = [*others, *changes], count + len(changes)
        head = b"*%d\r\n$4\r\nMSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            *(3 + 2 * writes.count, len(key), key),
            *(len(watermark), watermark),
        )
        packed = b"".join((_MULTI, head, writes.arguments, *others, _EXEC, _watch_and_get(key)))
        self._cluster.send(node, packed, self._library.attempt())
        self._sent[node] = _OWN_REPLIES + count
        return True

    def _field_commands(self, node: Node, fields: FieldChanges) -> list[bytes] | None:
        """What changes in indexes of fields; None where the heads don't say it."""
        self._cluster.send(node, fields.look, self._library.attempt())
        heads = self._receive(node, fields.count)
        for at, head in enumerate(heads):
            if isinstance(head, Exception):
                if not str(head).startswith(library.WRONGTYPE):
                    return None
                heads[at] = b""  # MSET overwrites it
        return fields.commands(heads)

    def _moved(self, call: LaneCall, chunk: Chunk, stored: object) -> bytes | None:
        """The watermark with the chunk's records; None where the chunk is not simply what follows."""
        if not isinstance(stored, bytes):
            return None
        try:
            watermark = codec.decode_watermark(stored)
        except codec.CodecError:
            return None
        if watermark.has_strays:
            self._with_strays.add(call.lane.watermark_key)
            return None
        covered = call.covered
        options = call.lane.options
        if options.has_history and options.compression != "none" and covered.begin < watermark.next_offset:
            return None  # what the lane has may be compressed otherwise, and would be in its history twice
        if watermark.epoch != self._epoch or not covered.begin <= watermark.next_offset < covered.end:
            return None
        return codec.advance_watermark(stored, covered.end, chunk.newest_timestamp_ms, covered.log_end)


def _watch_and_get(key: bytes) -> bytes:
    return encode_command(b"WATCH", key) + encode_command(b"GET", key)
