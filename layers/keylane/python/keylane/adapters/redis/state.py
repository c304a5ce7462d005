"""The port `State` over Redis Cluster: commands to each slot's primary, all shards at once.

How one slot is asked, and what heals that, is in `redis_copies`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from keylane.adapters.redis.replicas import PASSING, READONLY, Copies, lacks
from keylane.adapters.redis.resp import encode_command, translate_redis_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.adapters.redis.cluster import Node
    from keylane.ports import Call, Deadline

    Slots = dict[int, list[int]]  # hash slot -> numbers of its calls

ROUNDS = 2


class RedisState(Copies):
    """Reads of one hash slot or of many. As its cluster: one thread at a time."""

    def read(self, slot: int, keys: Sequence[bytes], deadline: Deadline) -> list[bytes | None]:
        """As `State.read` has it. The primary is asked, and where it fails its replicas.

        A replica may be behind its primary, and its watermark says so: the answer stays honest.
        When no copy answers, the map is read anew and all is tried again until the deadline.
        """
        with translate_redis_errors():
            if not self._cluster.nodes:
                self._cluster.refresh(deadline)
            values: list[bytes | None] = self._ask_copies(slot, (((b"MGET", *keys), False),), deadline)[0]
            return values

    def run(self, calls: Sequence[Call], deadline: Deadline) -> list[Any]:
        """As `State.run` has it: rounds in which all nodes work at once, then slot by slot as `read`.

        A round asks the best copy of each slot for all that is still unanswered. What moves, and what two
        rounds did not answer, is asked with the patience and in the order that one slot needs.
        """
        replies: list[Any] = [None] * len(calls)
        left: Slots = {}
        for number, call in enumerate(calls):
            left.setdefault(call.slot, []).append(number)
        with translate_redis_errors():
            if not self._cluster.nodes:
                self._cluster.refresh(deadline)
            for _ in range(ROUNDS):
                left = self._round(calls, left, replies, deadline)
                if not left:
                    return replies
            for slot, numbers in left.items():
                commands = [(calls[number].words, calls[number].atomic) for number in numbers]
                found = self._ask_copies(slot, commands, deadline)
                for number, reply in zip(numbers, found, strict=True):
                    replies[number] = reply
        return replies

    def hosts(self, slots: Sequence[int], deadline: Deadline) -> list[str]:
        """As `State.hosts` has it, by the map as it is now."""
        with translate_redis_errors():
            self._cluster.refresh(deadline)
        return [f"{node.host}:{node.port}" for node in map(self._cluster.primary, slots)]

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def _round(self, calls: Sequence[Call], asked: Slots, replies: list[Any], deadline: Deadline) -> Slots:
        """Send to all nodes, then take what they answer; give the slots that have no answer yet."""
        left: Slots = {}
        by_node: dict[Node, Slots] = {}
        for slot, numbers in asked.items():
            copies = self._in_order(slot, deadline)
            (by_node.setdefault(copies[0], {}) if copies else left)[slot] = numbers
        unread: dict[Node, tuple[int, bool]] = {}
        try:
            for node, part in by_node.items():
                packed = [encode_command(*calls[number].words) for each in part.values() for number in each]
                slot = next(iter(part))
                if not self._is_primary(node, slot):
                    packed.insert(0, READONLY)
                kept = self._cluster.is_connected(node)
                with self._judged(node, deadline, kept=kept):
                    self._cluster.send(node, b"".join(packed), self._part(node, slot, deadline, len(packed)))
                    unread[node] = len(packed), kept
            for node, part in by_node.items():
                got: list[Any] = []
                if node in unread:
                    count, kept = unread.pop(node)
                    with self._judged(node, deadline, kept=kept):
                        # Counted from here: its answer may be there already, however slow others were.
                        limit = self._part(node, next(iter(part)), deadline, count)
                        got = self._cluster.receive(node, count, limit)
                left |= self._take(node, part, got, replies, deadline)
        finally:
            for node in unread:
                self._cluster.drop(node)
        return left

    @contextmanager
    def _judged(self, node: Node, deadline: Deadline, *, kept: bool) -> Iterator[None]:
        """What fails here is asked again: of another copy, or of this one where its connection was stale."""
        try:
            yield
        except AuthenticationError:
            raise
        except PASSING as error:
            if not (kept and isinstance(error, RedisConnectionError)):
                self._suspect(node, deadline)

    def _take(self, node: Node, part: Slots, got: list[Any], replies: list[Any], deadline: Deadline) -> Slots:
        """Keep what a node answered, all of a slot or nothing; give the slots to be asked again."""
        count = sum(map(len, part.values()))
        if len(got) < count:
            return part
        self._suspects.pop(node, None)
        got = got[len(got) - count :]  # without READONLY's
        left: Slots = {}
        begin = 0
        for slot, numbers in part.items():
            found = got[begin : begin + len(numbers)]
            begin += len(numbers)
            faults = [reply for reply in found if isinstance(reply, Exception)]
            for fault in faults:
                if not isinstance(fault, PASSING):
                    raise fault
            if faults or (self._may_have_left(slot, node, deadline) and any(map(lacks, found))):
                left[slot] = numbers
                continue
            for number, reply in zip(numbers, found, strict=True):
                replies[number] = reply
        return left
