"""Reads one hash slot: chooses the node, bounds each attempt, and recovers from failures.

While a slot migrates key by key, its primary answers a read with

1. ASK: the keys have left. The reader sends this command, and no other, to the target node.
2. TRYAGAIN: some keys have left or do not exist; the server can't distinguish the two. The reader then reads
   the keys one by one, the last one first, each from the node that has it at that moment.
3. MOVED: the slot has arrived at the target node. The reader re-reads the slot map.

A replica does not know that keys have left. So a replica's reply that lacks a key counts only if no other
shard has keys of the slot, which it has while the slot migrates to it.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, TryAgainError

from keylane.adapters.redis.errors import Remedy, is_transient, remedy_for
from keylane.adapters.redis.resp import ASKING, READONLY, READWRITE, encode_command, encode_words
from keylane.adapters.redis.slot_map import announced
from keylane.errors import StateUnavailable
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.redis.connections import Node
    from keylane.adapters.redis.slot_map import SlotMap

    Commands = Sequence[tuple[tuple[bytes, ...], bool]]  # words, and whether they must stay together

UNHEALTHY_FOR_S = 1.0
"""For this long after a failed read a node is tried last: a hanging primary must not slow every read."""

MIGRATING_FOR_S = 10.0
"""A slot counts as migrating for this long after the last ASK, TRYAGAIN, or keys of it in another shard.

That is, unless all other shards say that they have none.
"""
SETTLED_AFTER_S = 1.0
"""Then a replica has what the migration brought, this long after the last sign of it."""

ATTEMPT_SHARE = 3
"""One attempt may take a third of the remaining time, so that a hanging node leaves time for another."""

MIN_ATTEMPT_MS = 20.0
USUAL_ATTEMPT_MS = 100.0
"""The attempt timeout of a connected node if another healthy node serves the slot: fifty times a read."""

COMMAND_MS = 1.0
"""Added to the attempt timeout for each further command of the same attempt."""

UNHEALTHY_ATTEMPT_MS = 50.0
"""The attempt timeout of an unhealthy node if a healthy one serves the slot."""

REFRESH_MS = 50.0
PAUSE_S = 0.01


class SlotReader:
    """Reads from a slot's primary or, if that fails, its replicas. Like its cluster, not thread-safe."""

    def __init__(self, cluster: SlotMap) -> None:
        self._cluster = cluster
        self._unhealthy: dict[Node, float] = {}  # until when (monotonic seconds)
        self._migrating: dict[int, float] = {}  # when last seen to (monotonic seconds)

    def _read_slot(
        self, slot: int, commands: Commands, deadline: Deadline, primary_only: bool = False
    ) -> list[Any]:
        """The replies of the first node that answers; all nodes are tried again until the deadline."""
        while True:
            cause: Exception | None = None
            for node in self._healthy_first(slot, deadline):
                is_replica = not self._is_primary(node, slot)
                if primary_only and is_replica:
                    continue
                try:
                    replies = self._ask(node, slot, commands, deadline)
                except (RedisError, OSError) as error:
                    if not is_transient(error):
                        raise
                    cause = error
                    continue
                if is_replica and self._may_have_left(slot, node, replies, deadline):
                    continue
                if cause:
                    self._refresh_quickly(deadline, node)
                return replies
            self._wait_for_change(slot, deadline, cause)

    def _healthy_first(self, slot: int, deadline: Deadline) -> Sequence[Node]:
        """The slot's nodes, primary first, unhealthy ones last."""
        nodes = self._cluster.nodes_of(slot)
        if not self._unhealthy:
            return nodes
        now_s = deadline.clock.monotonic_s()
        return sorted(nodes, key=lambda node: self._unhealthy.get(node, now_s) > now_s)

    def _attempt(self, node: Node, slot: int, deadline: Deadline, commands: int = 1) -> Deadline:
        """Return the deadline of one attempt at this node, for this many commands."""
        now_s = deadline.clock.monotonic_s()
        left_ms = max(0.0, deadline.at_s - now_s) * 1000
        attempt_ms = max(left_ms / ATTEMPT_SHARE, MIN_ATTEMPT_MS)
        if self._has_healthy_alternative(node, slot):
            if node in self._unhealthy:
                attempt_ms = min(attempt_ms, UNHEALTHY_ATTEMPT_MS)
            elif self._cluster.is_connected(node):
                attempt_ms = min(attempt_ms, USUAL_ATTEMPT_MS + (commands - 1) * COMMAND_MS)
        return Deadline(now_s + min(attempt_ms, left_ms) / 1000, deadline.clock)

    def _has_healthy_alternative(self, node: Node, slot: int) -> bool:
        nodes = self._cluster.nodes_of(slot)
        if not self._unhealthy:
            return len(nodes) > (node in nodes)
        return any(other != node and other not in self._unhealthy for other in nodes)

    def _ask(self, node: Node, slot: int, commands: Commands, deadline: Deadline) -> list[Any]:
        """Send the commands one by one, to this node or where it redirects them; return the replies."""
        attempt = self._attempt(node, slot, deadline, len(commands))
        replies = []
        for words, atomic in commands:  # a comprehension would cost the read of one key a frame
            replies.append(self._ask_one(node, slot, words, attempt, atomic=atomic))
        return replies

    def _ask_one(
        self, node: Node, slot: int, words: tuple[bytes, ...], attempt: Deadline, *, atomic: bool
    ) -> Any:
        try:
            return self._follow(node, slot, encode_words(words), attempt)
        except TryAgainError:
            self._note_migrating(slot, attempt)
            if atomic or words[0] != b"MGET":
                raise
        keys = reversed(words[1:])
        values = [self._follow(node, slot, encode_command(b"MGET", key), attempt)[0] for key in keys]
        return values[::-1]

    def _follow(self, node: Node, slot: int, packed: bytes, deadline: Deadline) -> Any:
        """Send one command to the node, and to those that it redirects to."""
        prefix = b"" if self._is_primary(node, slot) else READONLY
        while True:
            try:
                reply = self._roundtrip(node, prefix, packed, deadline)
                remedy = remedy_for(reply) if isinstance(reply, Exception) else None
                if remedy in (Remedy.RETRY, Remedy.LOAD_CODE, Remedy.NONE):
                    raise reply
            except (RedisError, OSError) as error:
                if is_transient(error):
                    self._mark_unhealthy(node, deadline)
                raise
            if self._unhealthy:
                self._unhealthy.pop(node, None)
            if remedy is None:
                return reply
            if remedy is Remedy.SPLIT:
                raise reply
            node, prefix = announced(reply.host, reply.port, node), ASKING
            if remedy is Remedy.FOLLOW_MOVED:
                self._refresh_quickly(deadline, node)
                self._cluster.learn(slot, node)
                prefix = b""
            else:
                self._note_migrating(slot, deadline)

    def _roundtrip(self, node: Node, prefix: bytes, packed: bytes, deadline: Deadline) -> Any:
        suffix = READWRITE if prefix is READONLY else b""
        reply_count = 1 + bool(prefix) + bool(suffix)
        was_connected = self._cluster.is_connected(node)
        packed = b"".join((prefix, packed, suffix)) if prefix else packed
        try:
            replies = self._cluster.roundtrip(node, packed, reply_count, deadline)
        except RedisConnectionError:
            if not was_connected:
                raise
            # Servers and firewalls close idle connections; a Lambda that was frozen notices only now.
            replies = self._cluster.roundtrip(node, packed, reply_count, deadline)
        return replies[1 if prefix else 0]

    def _mark_unhealthy(self, node: Node, deadline: Deadline) -> None:
        self._cluster.meter.count("NodeFailures")
        self._unhealthy[node] = deadline.clock.monotonic_s() + UNHEALTHY_FOR_S

    def _note_migrating(self, slot: int, deadline: Deadline) -> None:
        self._migrating[slot] = deadline.clock.monotonic_s()

    def _may_have_left(self, slot: int, node: Node, replies: list[Any], deadline: Deadline) -> bool:
        """Whether a key that these replies of a replica lack may have migrated."""
        if not any(map(lacks, replies)):
            return False
        found = self._is_elsewhere(slot, node, deadline)
        if found:
            self._note_migrating(slot, deadline)
        doubted_s = SETTLED_AFTER_S if found is False else MIGRATING_FOR_S
        seen_s = self._migrating.get(slot, -math.inf)
        return deadline.clock.monotonic_s() - seen_s < doubted_s

    def _is_elsewhere(self, slot: int, replica: Node, deadline: Deadline) -> bool | None:
        """Whether another shard than the replica's has keys of the slot; None: a shard did not answer.

        A shard that does not answer for long has lost what it took. The replica says which shard is its own:
        the slot's entry in the slot map may be newer than the shards, and roles change.
        """
        others = (shard for shard in self._cluster.shards if replica not in shard)
        answer: bool | None = False
        for shard in others:
            found = self._has_keys(shard, slot, deadline)
            if found:
                return True
            if found is None:
                answer = None
        return answer

    def _has_keys(self, shard: Sequence[Node], slot: int, deadline: Deadline) -> bool | None:
        """As `_is_elsewhere`, of one shard. A replica may lag behind: that it has none proves nothing."""
        packed = encode_command(b"CLUSTER", b"COUNTKEYSINSLOT", b"%d" % slot)
        for node in sorted(shard, key=self._unhealthy.__contains__):
            attempt_ms = min(UNHEALTHY_ATTEMPT_MS, deadline.remaining_s * 1000)
            try:
                count = self._roundtrip(node, b"", packed, Deadline.after_ms(attempt_ms, deadline.clock))
            except (RedisError, OSError):
                self._mark_unhealthy(node, deadline)
                continue
            if isinstance(count, int) and (count or node == shard[0]):
                return count > 0
        return None

    def _is_primary(self, node: Node, slot: int) -> bool:
        nodes = self._cluster.nodes_of(slot)
        return bool(nodes) and nodes[0] == node

    def _refresh_quickly(self, deadline: Deadline, ask_first: Node) -> None:
        """Try to re-read the slot map within REFRESH_MS; this read does not depend on it."""
        attempt_ms = min(deadline.remaining_s * 1000, REFRESH_MS)
        with suppress(StateUnavailable):
            self._cluster.refresh(Deadline.after_ms(attempt_ms, deadline.clock), ask_first)

    def _wait_for_change(self, slot: int, deadline: Deadline, cause: Exception | None) -> None:
        """Re-read the slot map before the next round; at the deadline raise the last round's error."""
        deadline.clock.pause_s(min(PAUSE_S, deadline.remaining_s))
        with suppress(StateUnavailable):
            self._cluster.refresh(deadline)
        if not deadline.remaining_s:
            raise cause or StateUnavailable(f"no Redis node is known to serve slot {slot}")


def lacks(reply: Any) -> bool:
    """Whether the reply says that a key is absent."""
    return not reply or (isinstance(reply, list) and None in reply)
