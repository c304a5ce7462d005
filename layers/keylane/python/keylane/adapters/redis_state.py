"""The port `State` over Redis Cluster: one `MGET` on the slot's primary, and what to do when that fails."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    InvalidResponse,
    MovedError,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from keylane.adapters.redis_cluster import announced
from keylane.adapters.redis_wire import encode_command, translate_redis_errors
from keylane.errors import StateUnavailable
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.redis_cluster import Cluster, Node

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

SHARE = 3
"""One node gets a third of the time that is left, so that a hanging one leaves time for another copy."""

MIN_SHARE_MS = 20.0
REFRESH_MS = 50.0
PAUSE_S = 0.01


class RedisState:
    """Reads of one hash slot. As its cluster: one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._suspects: dict[Node, float] = {}

    def read(self, slot: int, keys: Sequence[bytes], deadline: Deadline) -> list[bytes | None]:
        """As `State.read` has it. The primary is asked, and where it fails its replicas.

        A replica may be behind its primary, and its watermark says so: the answer stays honest.
        When no copy answers, the map is read anew and all is tried again until the deadline.
        """
        packed = encode_command(b"MGET", *keys)
        with translate_redis_errors():
            if not self._cluster.nodes:
                self._cluster.refresh(deadline)
            while True:
                cause: Exception | None = None
                for node in self._in_order(slot, deadline):
                    try:
                        values = self._ask(node, slot, packed, deadline)
                    except AuthenticationError:
                        raise
                    except PASSING as error:
                        self._suspects[node] = deadline.clock.monotonic_s() + SUSPECT_FOR_S
                        cause = error
                        continue
                    if cause:
                        self._refresh_soon(deadline, node)
                    return values
                self._wait_for_change(slot, deadline, cause)

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def _in_order(self, slot: int, deadline: Deadline) -> Sequence[Node]:
        """The slot's nodes, primary first, those that failed lately last."""
        copies = self._cluster.copies(slot)
        if not self._suspects:
            return copies
        now_s = deadline.clock.monotonic_s()
        self._suspects = {node: until_s for node, until_s in self._suspects.items() if until_s > now_s}
        return sorted(copies, key=self._suspects.__contains__)

    def _ask(self, node: Node, slot: int, packed: bytes, deadline: Deadline) -> list[bytes | None]:
        """Ask one node, and those that it sends us to."""
        left_ms = deadline.remaining_s * 1000
        part_ms = min(max(left_ms / SHARE, MIN_SHARE_MS), left_ms)
        part = Deadline.after_ms(part_ms, deadline.clock)
        prefix = b"" if node == self._cluster.primary(slot) else READONLY
        while True:
            reply = self._roundtrip(node, prefix, packed, part)
            if isinstance(reply, list):
                return reply
            if not isinstance(reply, AskError):
                raise reply
            node, prefix = announced(reply.host, reply.port, node), ASKING
            if isinstance(reply, MovedError):
                self._refresh_soon(part, node)
                self._cluster.learn(slot, node)
                prefix = b""

    def _roundtrip(
        self, node: Node, prefix: bytes, packed: bytes, deadline: Deadline
    ) -> list[bytes | None] | RedisError:
        reply_count = 2 if prefix else 1
        kept = self._cluster.is_connected(node)
        try:
            replies = self._cluster.roundtrip(node, prefix + packed, reply_count, deadline)
        except RedisConnectionError:
            if not kept:
                raise
            # A server or a firewall closes idle connections, and a frozen Lambda learns of it only now.
            replies = self._cluster.roundtrip(node, prefix + packed, reply_count, deadline)
        return cast("list[bytes | None] | RedisError", replies[-1])

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
