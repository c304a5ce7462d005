"""The copies of a hash slot, and what to do when one fails to answer.

Where a slot is moved key by key, a command finds its keys on both sides or is sent from one to the other:

1. ASK: the keys have left. The other side is asked, for this command alone.
2. TRYAGAIN: some have left, or some are absent, which the server can't tell from it. The keys are then read
   one by one, the last first, each where it is by then.
3. MOVED: the slot has arrived. The map is read anew.

A replica doesn't know that keys have left. While a slot is known to move, an answer of one counts only if
no key is absent in it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    InvalidResponse,
    MovedError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from keylane.adapters.redis.cluster import announced
from keylane.adapters.redis.resp import encode_command
from keylane.errors import StateUnavailable
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.redis.cluster import Cluster, Node

    Commands = Sequence[tuple[tuple[bytes, ...], bool]]  # words, and whether they must stay together

READONLY = encode_command(b"READONLY")
ASKING = encode_command(b"ASKING")

PASSING = (
    RedisConnectionError,  # LOADING is one too
    RedisTimeoutError,
    OSError,
    InvalidResponse,
    AskError,
    ClusterDownError,  # MASTERDOWN is one too
    TryAgainError,
)
"""What another copy, a newer map or a little patience may heal; other errors are raised at once."""

SUSPECT_FOR_S = 1.0
"""A node that failed a read is asked last for this long: a hanging primary must not slow every read."""

MOVING_FOR_S = 10.0
"""A slot from which keys were seen to leave is taken to be moving for this long after."""

SHARE = 3
"""One node gets a third of the time that is left, so that a hanging one leaves time for another copy."""

MIN_SHARE_MS = 20.0
USUAL_MS = 100.0
"""What a connected node gets where another copy is in good standing: fifty times what a read takes."""

COMMAND_MS = 1.0
"""And what it gets for each further one that is sent with it."""

PROBE_MS = 50.0
"""What a node gets that failed lately, where another copy is in good standing."""

REFRESH_MS = 50.0
PAUSE_S = 0.01


class Copies:
    """Asks a slot's primary, and where it fails its replicas. As its cluster: one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._suspects: dict[Node, float] = {}
        self._moving: dict[int, float] = {}

    def _ask_copies(self, slot: int, commands: Commands, deadline: Deadline) -> list[Any]:
        """Replies of the first copy that answers, with patience until the deadline."""
        while True:
            cause: Exception | None = None
            for node in self._in_order(slot, deadline):
                try:
                    replies = self._ask(node, slot, commands, deadline)
                except AuthenticationError:
                    raise
                except PASSING as error:
                    cause = error
                    continue
                if self._moving and self._may_have_left(slot, node, deadline) and any(map(lacks, replies)):
                    continue
                if cause:
                    self._refresh_soon(deadline, node)
                return replies
            self._wait_for_change(slot, deadline, cause)

    def _in_order(self, slot: int, deadline: Deadline) -> Sequence[Node]:
        """The slot's nodes, primary first, those that failed lately last."""
        copies = self._cluster.copies(slot)
        if not self._suspects:
            return copies
        now_s = deadline.clock.monotonic_s()
        return sorted(copies, key=lambda node: self._suspects.get(node, now_s) > now_s)

    def _part(self, node: Node, slot: int, deadline: Deadline, commands: int = 1) -> Deadline:
        """What of the time that is left this node gets for so many commands before the next copy's turn."""
        left_ms = deadline.remaining_s * 1000
        part_ms = max(left_ms / SHARE, MIN_SHARE_MS)
        if self._has_another(node, slot):
            if node in self._suspects:
                part_ms = min(part_ms, PROBE_MS)
            elif self._cluster.is_connected(node):
                part_ms = min(part_ms, USUAL_MS + (commands - 1) * COMMAND_MS)
        return Deadline.after_ms(min(part_ms, left_ms), deadline.clock)

    def _has_another(self, node: Node, slot: int) -> bool:
        """Whether another copy of the slot is in good standing."""
        copies = self._cluster.copies(slot)
        if not self._suspects:
            return len(copies) > (node in copies)
        return any(copy != node and copy not in self._suspects for copy in copies)

    def _ask(self, node: Node, slot: int, commands: Commands, deadline: Deadline) -> list[Any]:
        """Ask one node, and those that it sends us to: one command after the other."""
        part = self._part(node, slot, deadline, len(commands))
        replies = []
        for words, atomic in commands:  # no comprehension: the read of one key comes this way
            replies.append(self._ask_one(node, slot, words, part, atomic=atomic))
        return replies

    def _ask_one(
        self, node: Node, slot: int, words: tuple[bytes, ...], part: Deadline, *, atomic: bool
    ) -> Any:
        try:
            return self._follow(node, slot, encode_command(*words), part)
        except TryAgainError:
            self._note_moving(slot, part)
            if atomic or words[0] != b"MGET":
                raise
        keys = reversed(words[1:])
        values = [self._follow(node, slot, encode_command(b"MGET", key), part)[0] for key in keys]
        return values[::-1]

    def _follow(self, node: Node, slot: int, packed: bytes, deadline: Deadline) -> Any:
        """Send one command to the node, and where that says the keys are elsewhere, to there."""
        prefix = b"" if self._is_primary(node, slot) else READONLY
        while True:
            try:
                reply = self._roundtrip(node, prefix, packed, deadline)
                if isinstance(reply, Exception) and not isinstance(reply, (AskError, TryAgainError)):
                    raise reply
            except PASSING:
                self._suspect(node, deadline)
                raise
            if self._suspects:
                self._suspects.pop(node, None)
            if isinstance(reply, TryAgainError):
                raise reply
            if not isinstance(reply, AskError):
                return reply
            node, prefix = announced(reply.host, reply.port, node), ASKING
            if isinstance(reply, MovedError):
                self._refresh_soon(deadline, node)
                self._cluster.learn(slot, node)
                self._moving.pop(slot, None)
                prefix = b""
            else:
                self._note_moving(slot, deadline)

    def _suspect(self, node: Node, deadline: Deadline) -> None:
        self._cluster.meter.count("NodeFailures")
        self._suspects[node] = deadline.clock.monotonic_s() + SUSPECT_FOR_S

    def _note_moving(self, slot: int, deadline: Deadline) -> None:
        self._moving[slot] = deadline.clock.monotonic_s() + MOVING_FOR_S

    def _may_have_left(self, slot: int, node: Node, deadline: Deadline) -> bool:
        """Whether what this node lacks may be on the other side of a slot that moves."""
        until_s = self._moving.get(slot)
        if until_s is None or self._is_primary(node, slot):
            return False
        return deadline.clock.monotonic_s() < until_s

    def _is_primary(self, node: Node, slot: int) -> bool:
        return self._cluster.copies(slot)[:1] == (node,)

    def _roundtrip(self, node: Node, prefix: bytes, packed: bytes, deadline: Deadline) -> Any:
        reply_count = 2 if prefix else 1
        kept = self._cluster.is_connected(node)
        try:
            replies = self._cluster.roundtrip(node, prefix + packed, reply_count, deadline)
        except RedisConnectionError:
            if not kept:
                raise
            # A server or a firewall closes idle connections, and a frozen Lambda learns of it only now.
            replies = self._cluster.roundtrip(node, prefix + packed, reply_count, deadline)
        return replies[-1]

    def _refresh_soon(self, deadline: Deadline, ask_first: Node) -> None:
        """Read the map anew if that is a matter of milliseconds: the present read goes on without it."""
        part_ms = min(deadline.remaining_s * 1000, REFRESH_MS)
        with suppress(StateUnavailable):
            self._cluster.refresh(Deadline.after_ms(part_ms, deadline.clock), ask_first)

    def _wait_for_change(self, slot: int, deadline: Deadline, cause: Exception | None) -> None:
        """Read the map anew before the next round; at the deadline raise what the last round met."""
        deadline.clock.pause_s(min(PAUSE_S, deadline.remaining_s))
        with suppress(StateUnavailable):
            self._cluster.refresh(deadline)
        if not deadline.remaining_s:
            raise cause or StateUnavailable(f"no Redis node is known to serve slot {slot}")


def lacks(reply: Any) -> bool:
    """Whether the reply tells of something that isn't there."""
    return not reply or (isinstance(reply, list) and None in reply)
