"""The port `State` over Redis Cluster: one hash slot as `replicas` reads it, many in rounds."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from keylane.adapters.redis.cluster import ClusterClient
from keylane.adapters.redis.connections import Node
from keylane.adapters.redis.conversation import Answered, Begin, Conversation, End
from keylane.adapters.redis.error_replies import NoScriptError, RedisConnectionError, RedisError
from keylane.adapters.redis.errors import is_transient, may_differ_elsewhere
from keylane.adapters.redis.replicas import SlotReader
from keylane.adapters.redis.resp import READONLY, READWRITE, encode_words
from keylane.ports import Call, Deadline

Calls = dict[int, list[Call]]  # by hash slot
Replies = dict[int, list[Any]]

ROUNDS = 2


class NodeSlots(NamedTuple):
    """What one node is asked in a round: slots of which it is the primary, then others."""

    own: list[int]
    others: list[int]

    @property
    def first(self) -> int:
        """One of the slots."""
        return (self.own or self.others)[0]

    def pack(self, calls: Calls) -> list[bytes]:
        """Return the encoded commands. Only a replica's slots are read from a node that is READONLY."""
        own, others = ([encode_words(call.words) for slot in slots for call in calls[slot]] for slots in self)
        return [*own, READONLY, *others, READWRITE] if others else own

    def unpack(self, found: Sequence[Any], calls: Calls) -> Replies:
        """Return the replies to the calls alone."""
        replies = iter(found)
        own = {slot: [next(replies) for _ in calls[slot]] for slot in self.own}
        next(replies, None)  # to READONLY
        return own | {slot: [next(replies) for _ in calls[slot]] for slot in self.others}


class RoundReader(SlotReader):
    """Reads one slot, or many at once. No I/O."""

    def read_slots(
        self, calls: Sequence[Call], deadline: Deadline, *, primary_only: bool = False
    ) -> Conversation[list[Any]]:
        """The replies to all calls, in their order.

        A round asks the first healthy node of each slot for all that is still unanswered. Migrating slots,
        and what two rounds did not answer, are then read one by one.
        """
        by_slot: Calls = {}
        for call in calls:
            by_slot.setdefault(call.slot, []).append(call)
        yield from self._require_slot_map(deadline)
        replies: Replies = {}
        for _ in range(ROUNDS):
            left = {slot: asked for slot, asked in by_slot.items() if slot not in replies}
            yield from self._round(left, replies, deadline, primary_only=primary_only)
        for slot, asked in by_slot.items():
            if slot not in replies:
                replies[slot] = yield from self.read_slot(asked, deadline, primary_only=primary_only)
        in_order = {slot: iter(found) for slot, found in replies.items()}
        return [next(in_order[call.slot]) for call in calls]

    def _round(
        self, calls: Calls, replies: Replies, deadline: Deadline, *, primary_only: bool
    ) -> Conversation[None]:
        """Send to all nodes, then read their replies; add those of the slots that were answered."""
        by_node: dict[Node, NodeSlots] = {}
        for slot in calls:
            if node := self._node_of(slot, deadline, primary_only=primary_only):
                slots = by_node.setdefault(node, NodeSlots([], []))
                (slots.own if self._is_primary(node, slot) else slots.others).append(slot)
        sent: dict[Node, tuple[int, bool]] = {}
        for node, slots in by_node.items():
            packed = slots.pack(calls)
            was_connected = node in self._slot_map.connections
            attempt = self._attempt(node, slots.first, deadline, len(packed))
            error = yield Begin(node, b"".join(packed), len(packed), attempt)
            if error:
                self._note_failure(node, error, deadline, was_connected=was_connected)
            else:
                sent[node] = len(packed), was_connected
        for node, (count, was_connected) in sent.items():
            # Counted from here: the replies may have arrived while slower nodes were read.
            found = yield End(node, count, self._attempt(node, by_node[node].first, deadline, count))
            if isinstance(found, Exception):
                self._note_failure(node, found, deadline, was_connected=was_connected)
            else:
                self._unhealthy.pop(node, None)
                replies |= without_errors(_without_scripts(by_node[node].unpack(found, calls), calls))
        for node, slots in by_node.items():  # other nodes are asked now: no reply is outstanding
            for slot in [slot for slot in slots.others if slot in replies]:
                if (yield from self._may_have_left(slot, node, replies[slot], deadline)):
                    del replies[slot]

    def _node_of(self, slot: int, deadline: Deadline, *, primary_only: bool) -> Node | None:
        nodes = self._healthy_first(slot, deadline)
        return next((node for node in nodes if not primary_only or self._is_primary(node, slot)), None)

    def _note_failure(self, node: Node, error: Exception, deadline: Deadline, *, was_connected: bool) -> None:
        """Mark the node as unhealthy, unless only an old connection was closed. Raises what will not pass."""
        if not is_transient(error):
            raise error
        if not (was_connected and isinstance(error, RedisConnectionError)):
            self._mark_unhealthy(node, deadline)


class RedisState(RoundReader):
    """Reads one hash slot or many. Like its cluster, not thread-safe."""

    def __init__(self, cluster: ClusterClient) -> None:
        super().__init__(cluster)
        self.cluster = cluster

    def read(
        self, slot: int, keys: Sequence[bytes], deadline: Deadline, *, primary_only: bool = False
    ) -> list[bytes | None]:
        """See `State.read`. It reads from the slot's primary and, if that fails, from its replicas.

        A replica may lag behind its primary. Its watermark lags too, so the answer never claims too much.
        If no node answers, the slot map is re-read and all nodes are tried again until the deadline.
        """
        words = (b"MGET", *keys)
        asked, answered = self.ask_primary(slot, words, deadline), None
        values: list[bytes | None]
        if asked is not None:
            try:
                outcome: Any = self.cluster.roundtrip(*asked)
                if not isinstance(outcome[0], Exception):
                    self._unhealthy.pop(asked.node, None)
                    values = outcome[0]
                    return values
            except (RedisError, OSError) as error:
                outcome = error.with_traceback(None)  # as in `ClusterClient.hold`
            answered = Answered(asked, outcome)
        conversation = self.read_slot([Call(slot, words)], deadline, answered, primary_only=primary_only)
        [values] = self.cluster.hold(conversation)
        return values

    def run(self, calls: Sequence[Call], deadline: Deadline, *, primary_only: bool = False) -> list[Any]:
        """See `State.run`."""
        return self.cluster.hold(self.read_slots(calls, deadline, primary_only=primary_only))

    def hosts(self, slots: Sequence[int], deadline: Deadline) -> list[str]:
        """As `State.hosts`, by the current slot map."""
        self.cluster.refresh(deadline)
        return [f"{node.host}:{node.port}" for node in map(self.cluster.primary, slots)]

    def close(self) -> None:
        """Close the connections."""
        self.cluster.close()


def _without_scripts(found: Replies, calls: Calls) -> Replies:
    """Return the slots whose scripts the node has; the others' calls have their texts from now on."""
    lacking = [slot for slot, own in found.items() if any(isinstance(each, NoScriptError) for each in own)]
    for slot in lacking:
        calls[slot][:] = [call.with_text if call.script else call for call in calls[slot]]
    return {slot: own for slot, own in found.items() if slot not in lacking}


def without_errors(found: Replies) -> Replies:
    """Return the slots that have no error among their replies. Raises an error that will not pass."""
    errors = {slot: [each for each in own if isinstance(each, Exception)] for slot, own in found.items()}
    for error in itertools.chain.from_iterable(errors.values()):
        if not may_differ_elsewhere(error):
            raise error
    return {slot: own for slot, own in found.items() if not errors[slot]}
