"""The slot map of a Redis Cluster, and the conversation that reads it. No I/O."""

from typing import Any

from keylane.adapters.redis.connections import Node, RedisSettings
from keylane.adapters.redis.conversation import Ask, Conversation
from keylane.adapters.redis.errors import CREDENTIALS
from keylane.adapters.redis.resp import encode_command
from keylane.errors import StateUnavailable
from keylane.metrics.meter import NO_METER, Meter
from keylane.ports import Deadline
from keylane.routing import SLOTS

_CLUSTER_SLOTS = encode_command(b"CLUSTER", b"SLOTS")


class SlotMap:
    """Which nodes serve which hash slot, and to which of them there is a connection.

    `slots`: of each slot its primary, then its replicas; () where no node is known to serve it. `nodes`,
    `shards`: all nodes, and those of each shard, its primary first; empty before the first refresh.
    `connections`: those that are open on this side; the server may have closed them.
    """

    def __init__(self, settings: RedisSettings, meter: Meter = NO_METER) -> None:
        self.meter = meter
        self.slots: list[tuple[Node, ...]] = [()] * SLOTS
        self.nodes: tuple[Node, ...] = ()
        self.shards: tuple[tuple[Node, ...], ...] = ()
        self.connections: dict[Node, Any] = {}
        self._settings = settings
        self._bounds = [0]  # the slots at which another range begins
        self._refreshes = 0

    def is_connected(self, node: Node) -> bool:
        """Whether there is a connection to the node."""
        return node in self.connections

    def primary(self, slot: int) -> Node:
        """The node that takes the slot's writes. Raises StateUnavailable when none is known."""
        node = self.known_primary(slot)
        if node is None:
            raise StateUnavailable(f"no Redis node is known to serve slot {slot}")
        return node

    def known_primary(self, slot: int) -> Node | None:
        """The node that takes the slot's writes, None when the slot map does not list the slot."""
        nodes = self.slots[slot]
        return nodes[0] if nodes else None

    def primaries(self) -> list[Node]:
        """All nodes that take writes. Raises StateUnavailable when none is known for a slot."""
        return sorted({self.primary(slot) for slot in self._bounds})

    def learn(self, slot: int, primary: Node) -> None:
        """Record a MOVED redirect: until the next refresh this node is the slot's primary."""
        self.slots[slot] = (primary, *(node for node in self.slots[slot] if node != primary))

    def read_again(self, deadline: Deadline, ask_first: Node | None = None) -> Conversation[None]:
        """Read the slot map from the first node that answers; the nodes share the time that is left.

        Raises StateUnavailable when no node answers; the old slot map then stays.
        """
        self.meter.count("MapRefreshes")
        nodes = list(dict.fromkeys((*self.nodes, *self._settings.nodes)))
        # Start with another node each time: one that was cut off would return an outdated map every time.
        self._refreshes += 1
        first = self._refreshes % len(nodes)
        nodes = [ask_first or nodes[first], *nodes[first:], *nodes[:first]]
        candidates = list(dict.fromkeys(nodes))
        cause: Exception | None = None
        for left, node in zip(range(len(candidates), 0, -1), candidates, strict=True):
            attempt_ms = min(deadline.remaining_s / left, self._settings.connect_timeout_s) * 1000
            outcome = yield Ask(node, _CLUSTER_SLOTS, 1, Deadline.after_ms(attempt_ms, deadline.clock))
            reply = outcome if isinstance(outcome, Exception) else outcome[0]
            if isinstance(reply, list) and reply:
                self._set_slots(reply, node)
                return
            cause = reply if isinstance(reply, Exception) else None
        if isinstance(cause, CREDENTIALS):
            raise cause
        raise StateUnavailable("no node of the Redis Cluster returned the slot map") from cause

    def _set_slots(self, reply: list[Any], asked: Node) -> None:
        slots: list[tuple[Node, ...]] = [()] * SLOTS
        bounds = {0}
        for start, end, *members in reply:
            nodes = tuple(announced(member[0], member[1], asked) for member in members)
            slots[start : end + 1] = [nodes] * (end + 1 - start)
            bounds |= {start, end + 1}
        self.slots = slots
        self._bounds = sorted(bounds - {SLOTS})
        self.shards = tuple(dict.fromkeys(slots[slot] for slot in self._bounds))
        self.nodes = tuple(dict.fromkeys(node for nodes in self.shards for node in nodes))


def announced(host: bytes | str | None, port: int, asked: Node) -> Node:
    """The node that a reply names; an absent host ("", "?" or null) means the host that was asked."""
    name = host.decode() if isinstance(host, bytes) else host
    return Node(name if name and name != "?" else asked.host, int(port))
