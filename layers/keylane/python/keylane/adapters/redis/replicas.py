"""Reads one hash slot: chooses the node, bounds each attempt, and recovers from failures. No I/O.

While a slot migrates key by key, its primary answers a read with

1. ASK: the keys have left. The reader sends this command, and no other, to the target node.
2. TRYAGAIN: some keys have left or do not exist; the server can't distinguish the two. The reader then reads
   the keys one by one, the last one first, each from the node that has it at that moment.
3. MOVED: the slot has arrived at the target node. The reader re-reads the slot map.

A replica does not know that keys have left. So a replica's reply that lacks a key counts only if no other
shard has keys of the slot, which it has while the slot migrates to it.
"""

import math
from collections.abc import Sequence
from typing import Any

from keylane.adapters.redis.connections import Node
from keylane.adapters.redis.conversation import Answered, Ask, Conversation, Refresh, Sleep
from keylane.adapters.redis.error_replies import (
    NoScriptError,
    RedisConnectionError,
    RedisError,
    TryAgainError,
)
from keylane.adapters.redis.errors import Remedy, may_differ_elsewhere, remedy_for
from keylane.adapters.redis.resp import ASKING, READONLY, READWRITE, encode_command, encode_words
from keylane.adapters.redis.slot_map import SlotMap, announced
from keylane.errors import StateUnavailable
from keylane.ports import Call, Deadline

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
    """Asks a slot's primary or, if that fails, its replicas. Like its slot map, for one thread."""

    def __init__(self, slot_map: SlotMap) -> None:
        self._slot_map = slot_map
        self._unhealthy: dict[Node, float] = {}  # until when (monotonic seconds)
        self._migrating: dict[int, float] = {}  # when last seen to (monotonic seconds)

    def ask_primary(self, slot: int, words: tuple[bytes, ...], deadline: Deadline) -> Ask | None:
        """What to ask where nothing is wrong, which is most reads: None where something is.

        `words`: of one command. A reply that is not an exception is the answer. Else `read_slot` goes on from
        what came of it.
        """
        nodes = self._slot_map.slots[slot]
        if not nodes or nodes[0] not in self._slot_map.connections or nodes[0] in self._unhealthy:
            return None
        return Ask(nodes[0], encode_words(words), 1, self._attempt(nodes[0], slot, deadline))

    def note_late(self, asked: Ask) -> None:
        """Ask other nodes first for a while: this one did not answer in time."""
        self._mark_unhealthy(asked.node, asked.deadline)

    def read_slot(
        self,
        calls: Sequence[Call],
        deadline: Deadline,
        answered: Answered | None = None,
        *,
        primary_only: bool = False,
    ) -> Conversation[list[Any]]:
        """The replies of the first node that answers; all nodes are tried again until the deadline.

        `answered`: what `ask_primary` asked for the one call, and what came of it.
        """
        slot = calls[0].slot
        yield from self._require_slot_map(deadline)
        while True:
            cause: Exception | None = None
            nodes = self._healthy_first(slot, deadline)
            for node in dict.fromkeys((answered.asked.node, *nodes)) if answered else nodes:
                is_replica = not answered and not self._is_primary(node, slot)
                if primary_only and is_replica:
                    continue
                attempt = (
                    answered.asked.deadline if answered else self._attempt(node, slot, deadline, len(calls))
                )
                replies = []
                try:
                    for call in calls:
                        reply = yield from self._ask(node, call, attempt, answered)
                        replies.append(reply)
                except (RedisError, OSError) as error:
                    if not may_differ_elsewhere(error):
                        raise
                    cause = error
                    continue
                finally:
                    answered = None
                if is_replica and (yield from self._may_have_left(slot, node, replies, deadline)):
                    continue
                if cause:
                    yield self._quick_refresh(deadline, node)
                return replies
            yield Sleep(min(PAUSE_S, deadline.remaining_s), deadline.clock)
            yield Refresh(deadline)
            if not deadline.remaining_s:
                raise cause or StateUnavailable(f"no Redis node is known to serve slot {slot}")

    def _require_slot_map(self, deadline: Deadline) -> Conversation[None]:
        if not self._slot_map.nodes and (error := (yield Refresh(deadline))):
            raise error

    def _healthy_first(self, slot: int, deadline: Deadline) -> Sequence[Node]:
        """The slot's nodes, primary first, unhealthy ones last."""
        nodes = self._slot_map.slots[slot]
        if not self._unhealthy:
            return nodes
        now_s = deadline.clock.monotonic_s()
        return sorted(nodes, key=lambda node: self._unhealthy.get(node, now_s) > now_s)

    def _attempt(self, node: Node, slot: int, deadline: Deadline, commands: int = 1) -> Deadline:
        """Return the deadline of one attempt at this node, for this many commands."""
        now_s = deadline.clock.monotonic_s()
        left_ms = (deadline.at_s - now_s) * 1000
        attempt_ms = max(left_ms / ATTEMPT_SHARE, MIN_ATTEMPT_MS)
        nodes = self._slot_map.slots[slot]
        healthy = [each for each in nodes if each not in self._unhealthy] if self._unhealthy else nodes
        if len(healthy) > (node in healthy):  # another one serves the slot
            if node in self._unhealthy:
                attempt_ms = min(attempt_ms, UNHEALTHY_ATTEMPT_MS)
            elif node in self._slot_map.connections:
                attempt_ms = min(attempt_ms, USUAL_ATTEMPT_MS + (commands - 1) * COMMAND_MS)
        return Deadline(now_s + min(attempt_ms, left_ms) / 1000, deadline.clock)

    def _ask(self, node: Node, call: Call, attempt: Deadline, answered: Answered | None) -> Conversation[Any]:
        """Send one command to this node, or where it redirects it; return the reply."""
        try:
            return (yield from self._follow(node, call, attempt, answered))
        except NoScriptError:
            if not call.script:
                raise
            return (yield from self._follow(node, call.with_text, attempt))
        except TryAgainError:
            self._note_migrating(call.slot, attempt)
            if call.atomic or call.words[0] != b"MGET":
                raise
        values = []
        for key in reversed(call.words[1:]):
            reply = yield from self._follow(node, call._replace(words=(b"MGET", key)), attempt)
            values.append(reply[0])
        return values[::-1]

    def _follow(
        self, node: Node, call: Call, deadline: Deadline, answered: Answered | None = None
    ) -> Conversation[Any]:
        """Send one command to the node, and to those that it redirects to."""
        packed = encode_words(call.words)
        asked = Ask(node, packed, 1, deadline)
        if not answered and not self._is_primary(node, call.slot):
            asked = Ask(node, READONLY + packed + READWRITE, 3, deadline)
        while True:
            outcome = yield from self._exchange(asked, answered)
            # A command's own reply is behind that to READONLY or ASKING.
            reply: Any = outcome if isinstance(outcome, Exception) else outcome[asked.reply_count > 1]
            remedy = remedy_for(reply) if isinstance(reply, Exception) else None
            if remedy is Remedy.RETRY or (remedy is Remedy.NONE and may_differ_elsewhere(reply)):
                self._mark_unhealthy(asked.node, deadline)
            elif remedy not in (Remedy.LOAD_CODE, Remedy.NONE):
                self._unhealthy.pop(asked.node, None)
            if remedy is None:
                return reply
            if remedy not in (Remedy.FOLLOW_MOVED, Remedy.FOLLOW_ASK):
                raise reply
            node, answered = announced(reply.host, reply.port, asked.node), None
            if remedy is Remedy.FOLLOW_MOVED:
                yield self._quick_refresh(deadline, node)
                self._slot_map.learn(call.slot, node)
                asked = Ask(node, packed, 1, deadline)
            else:
                self._note_migrating(call.slot, deadline)
                asked = Ask(node, ASKING + packed, 2, deadline)

    def _exchange(self, asked: Ask, answered: Answered | None = None) -> Conversation[list[Any] | Exception]:
        """What comes of an `Ask`, or came of it; it is made again where an open connection was closed."""
        was_connected = answered is not None or asked.node in self._slot_map.connections
        outcome = answered.outcome if answered else (yield asked)
        if was_connected and isinstance(outcome, RedisConnectionError):
            # Servers and firewalls close idle connections; a Lambda that was frozen notices only now.
            outcome = yield asked
        return outcome

    def _mark_unhealthy(self, node: Node, deadline: Deadline) -> None:
        self._slot_map.meter.count("NodeFailures")
        self._unhealthy[node] = deadline.clock.monotonic_s() + UNHEALTHY_FOR_S

    def _note_migrating(self, slot: int, deadline: Deadline) -> None:
        self._migrating[slot] = deadline.clock.monotonic_s()

    def _may_have_left(
        self, slot: int, replica: Node, replies: list[Any], deadline: Deadline
    ) -> Conversation[bool]:
        """Whether a key that these replies of a replica lack may have migrated to another shard.

        A shard that does not answer for long has lost what it took. The replica says which shard is its own:
        the slot's entry in the slot map may be newer than the shards, and roles change.
        """
        if not any(map(lacks, replies)):
            return False
        doubted_s = SETTLED_AFTER_S
        for shard in self._slot_map.shards:
            found = replica not in shard and (yield from self._has_keys(shard, slot, deadline))
            if found:
                self._note_migrating(slot, deadline)
                return True
            if found is None:
                doubted_s = MIGRATING_FOR_S
        return deadline.clock.monotonic_s() - self._migrating.get(slot, -math.inf) < doubted_s

    def _has_keys(self, shard: Sequence[Node], slot: int, deadline: Deadline) -> Conversation[bool | None]:
        """Whether a shard has keys of the slot, None if it does not answer.

        A replica may lag behind: that it has none proves nothing.
        """
        packed = encode_command(b"CLUSTER", b"COUNTKEYSINSLOT", b"%d" % slot)
        for node in sorted(shard, key=self._unhealthy.__contains__):
            attempt_ms = min(UNHEALTHY_ATTEMPT_MS, deadline.remaining_s * 1000)
            attempt = Deadline.after_ms(attempt_ms, deadline.clock)
            outcome = yield from self._exchange(Ask(node, packed, 1, attempt))
            if isinstance(outcome, Exception):
                self._mark_unhealthy(node, deadline)
            elif isinstance(outcome[0], int) and (outcome[0] or node == shard[0]):
                return outcome[0] > 0
        return None

    def _is_primary(self, node: Node, slot: int) -> bool:
        return self._slot_map.slots[slot][:1] == (node,)

    def _quick_refresh(self, deadline: Deadline, ask_first: Node) -> Refresh:
        """A try to re-read the slot map within REFRESH_MS, on which this read does not depend."""
        attempt_ms = min(deadline.remaining_s * 1000, REFRESH_MS)
        return Refresh(Deadline.after_ms(attempt_ms, deadline.clock), ask_first)


def lacks(reply: Any) -> bool:
    """Whether the reply, or a part of a script's, says that a key is absent."""
    if not isinstance(reply, list) or not reply:
        return not reply
    return None in reply or any(isinstance(each, list) and lacks(each) for each in reply)
