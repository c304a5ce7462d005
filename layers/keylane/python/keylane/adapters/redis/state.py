"""The port `State` over Redis Cluster: commands go to each slot's primary, to all shards at once.

`replicas` reads one slot, and recovers from failures.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from keylane.adapters.redis.errors import is_transient, translate_redis_errors
from keylane.adapters.redis.replicas import SlotReader
from keylane.adapters.redis.resp import READONLY, READWRITE, encode_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from keylane.adapters.redis.connections import Node
    from keylane.ports import Call, Deadline

    Slots = dict[int, list[int]]  # hash slot -> numbers of its calls

ROUNDS = 2


class NodeCalls(NamedTuple):
    """What one node is asked in a round: `own` as the primary of the slots, `others` as their replica."""

    own: Slots
    others: Slots

    @property
    def slots(self) -> Slots:
        """All slots, in the order in which they are asked."""
        return self.own | self.others

    def pack(self, calls: Sequence[Call]) -> list[bytes]:
        """Return the encoded commands. Only a replica's slots are read from a node that is READONLY."""
        own, others = (
            [encode_words(calls[number].words) for numbers in slots.values() for number in numbers]
            for slots in self
        )
        return [*own, READONLY, *others, READWRITE] if others else own

    def unpack(self, found: list[Any]) -> list[Any]:
        """Return the replies to the calls alone."""
        if not self.others:
            return found
        count = sum(map(len, self.own.values()))
        return [*found[:count], *found[count + 1 : -1]]


class RedisState(SlotReader):
    """Reads one hash slot or many. Like its cluster, not thread-safe."""

    def read(
        self, slot: int, keys: Sequence[bytes], deadline: Deadline, *, primary_only: bool = False
    ) -> list[bytes | None]:
        """See `State.read`. It reads from the slot's primary and, if that fails, from its replicas.

        A replica may lag behind its primary. Its watermark lags too, so the answer never claims too much.
        If no node answers, the slot map is re-read and all nodes are tried again until the deadline.
        """
        with translate_redis_errors():
            if not self._cluster.nodes:
                self._cluster.refresh(deadline)
            commands = (((b"MGET", *keys), False),)
            values: list[bytes | None] = self._read_slot(slot, commands, deadline, primary_only)[0]
            return values

    def run(self, calls: Sequence[Call], deadline: Deadline) -> list[Any]:
        """As `State.run`: rounds in which all nodes work at once, then slot by slot as `read`.

        A round asks the first healthy node of each slot for all that is still unanswered. Migrating slots,
        and what two rounds did not answer, are then read one by one.
        """
        replies: list[Any] = [None] * len(calls)
        left: Slots = {}
        for number, call in enumerate(calls):
            left.setdefault(call.slot, []).append(number)
        with translate_redis_errors():
            if not self._cluster.nodes:
                self._cluster.refresh(deadline)
            for _ in range(ROUNDS):
                left = self._run_round(calls, left, replies, deadline)
                if not left:
                    return replies
            for slot, numbers in left.items():
                commands = [(calls[number].words, calls[number].atomic) for number in numbers]
                found = self._read_slot(slot, commands, deadline)
                for number, reply in zip(numbers, found, strict=True):
                    replies[number] = reply
        return replies

    def hosts(self, slots: Sequence[int], deadline: Deadline) -> list[str]:
        """As `State.hosts`, by the current slot map."""
        with translate_redis_errors():
            self._cluster.refresh(deadline)
        return [f"{node.host}:{node.port}" for node in map(self._cluster.primary, slots)]

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def _run_round(
        self, calls: Sequence[Call], asked: Slots, replies: list[Any], deadline: Deadline
    ) -> Slots:
        """Send to all nodes, then read their replies; returns the slots without an answer yet."""
        left: Slots = {}
        by_node: dict[Node, NodeCalls] = {}
        for slot, numbers in asked.items():
            nodes = self._healthy_first(slot, deadline)
            if not nodes:
                left[slot] = numbers
                continue
            of_node = by_node.setdefault(nodes[0], NodeCalls({}, {}))
            (of_node.own if self._is_primary(nodes[0], slot) else of_node.others)[slot] = numbers
        unread: dict[Node, tuple[int, bool]] = {}
        try:
            for node, of_node in by_node.items():
                packed = of_node.pack(calls)
                was_connected = self._cluster.is_connected(node)
                with self._note_failure(node, deadline, was_connected=was_connected):
                    attempt = self._attempt(node, next(iter(of_node.slots)), deadline, len(packed))
                    self._cluster.send(node, b"".join(packed), attempt, len(packed))
                    unread[node] = len(packed), was_connected
            for node, of_node in by_node.items():
                found: list[Any] = []
                if node in unread:
                    count, was_connected = unread.pop(node)
                    with self._note_failure(node, deadline, was_connected=was_connected):
                        # Counted from here: the replies may have arrived while slower nodes were read.
                        attempt = self._attempt(node, next(iter(of_node.slots)), deadline, count)
                        found = self._cluster.receive(node, count, attempt)
                left |= self._take(node, of_node, found, replies)
        finally:
            for node in unread:
                self._cluster.abandon(node)
        return left | self._doubtful(by_node, left, replies, deadline)

    def _doubtful(
        self, by_node: Mapping[Node, NodeCalls], left: Slots, replies: Sequence[Any], deadline: Deadline
    ) -> Slots:
        """The slots of which a replica lacks keys that may have migrated.

        Other nodes are asked about it, so no reply may be outstanding.
        """
        found: Slots = {}
        for node, of_node in by_node.items():
            for slot, numbers in of_node.others.items():
                if slot in left:
                    continue
                if self._may_have_left(slot, node, [replies[number] for number in numbers], deadline):
                    found[slot] = numbers
        return found

    @contextmanager
    def _note_failure(self, node: Node, deadline: Deadline, *, was_connected: bool) -> Iterator[None]:
        """Suppress a transient error: the slots are read again.

        The node then counts as unhealthy, unless only an old connection was closed.
        """
        try:
            yield
        except (RedisError, OSError) as error:
            if not is_transient(error):
                raise
            if not (was_connected and isinstance(error, RedisConnectionError)):
                self._mark_unhealthy(node, deadline)

    def _take(self, node: Node, asked: NodeCalls, found: list[Any], replies: list[Any]) -> Slots:
        """Keep a node's replies, all of a slot or none; returns the slots to be asked again."""
        if not found:
            return asked.slots
        self._unhealthy.pop(node, None)
        found = asked.unpack(found)
        left: Slots = {}
        begin = 0
        for slot, numbers in asked.slots.items():
            own = found[begin : begin + len(numbers)]
            begin += len(numbers)
            errors = [reply for reply in own if isinstance(reply, Exception)]
            for error in errors:
                if not is_transient(error):
                    raise error
            if errors:
                left[slot] = numbers
                continue
            for number, reply in zip(numbers, own, strict=True):
                replies[number] = reply
        return left
