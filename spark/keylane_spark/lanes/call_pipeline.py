"""Sends the calls of lanes to their primaries, pipelined and in order, and repeats those that get no reply.

After a transient error of a node:

1. The replies of all other nodes are read, so that their lanes don't wait.
2. What has no reply is sent again, first call first: once each, so that a lane in trouble delays no other.
3. What fails again is repeated until the retry budget is spent.
4. What still has no reply is parked: all slots of its node, or the one slot that migrates, or that needs room
   on a full node. From then on calls for their lanes do nothing. Where nothing may be parked, it raises
   StateUnavailable. A full node is waited for once: the next slots that need room are parked at once.

Not thread-safe, as `Cluster`.
"""

from collections import deque
from collections.abc import Iterable

from keylane.adapters.redis.cluster import Node
from keylane.adapters.redis.error_replies import RedisError
from keylane.errors import KeylaneError, StateUnavailable
from keylane.ports import Deadline
from keylane.routing import SLOTS
from keylane_spark.lanes import function_library as library
from keylane_spark.lanes.chunk_transactions import ChunkTransactions
from keylane_spark.lanes.function_library import CallRefused, FunctionLibrary
from keylane_spark.lanes.lane import LaneCall, LaneTarget
from keylane_spark.lanes.layout_store import TOTALS_SLOT
from keylane_spark.lanes.parked_slots import ParkedSlots, is_of_lane, is_of_slot

IN_FLIGHT = 16
"""Chunks without a reply on one connection: enough to hide a round trip, few enough for Redis' buffers."""


class _NotApplied(Exception):
    """A transaction did nothing, or nobody knows: its call follows."""


class CallPipeline:
    """The calls of one writer. `parked`: as of LaneWriter. `written`: nodes that have had calls."""

    def __init__(self, library_: FunctionLibrary, epoch: int, parked: ParkedSlots | None) -> None:
        self._library = library_
        self._cluster = library_.cluster
        self._epoch = epoch
        self._parked = parked
        self._transactions = ChunkTransactions(library_, epoch)
        self._in_flight: dict[Node, deque[LaneCall]] = {}
        self._full: set[Node | None] = set()
        self.written: set[Node] = set()

    def is_parked(self, lane: LaneTarget) -> bool:
        """Whether calls for this lane do nothing."""
        return self._parked is not None and lane.slot in self._parked

    def has_met_strays(self, lane: LaneTarget) -> bool:
        """Whether a chunk of this lane could not go as a transaction, because the lane has strays."""
        return self._transactions.has_met_strays(lane.watermark_key)

    def node_of(self, lane: LaneTarget) -> Node | None:
        """The lane's primary, None where none is known."""
        return self._cluster.known_primary(lane.slot)

    def send_alone(self, call: LaneCall) -> None:
        """Send a call and wait for its reply."""
        self.flush()
        self._recover(None, None, call)

    def exchange(self, calls: Iterable[LaneCall]) -> None:
        """Send calls of different lanes, all of a node at once, and wait for their replies."""
        self.flush()
        of_node: dict[Node, list[LaneCall]] = {}
        left: list[tuple[LaneCall, Exception | None]] = []
        for call in calls:
            node = self.node_of(call.lane)
            if self.is_parked(call.lane):
                continue
            if node is None:
                left.append((call, None))
            else:
                of_node.setdefault(node, []).append(call)
        failed: dict[Node, Exception] = {}
        for node, own in of_node.items():
            try:
                self._cluster.send(node, b"".join([call.packed for call in own]), self._library.attempt())
            except (RedisError, OSError) as error:
                failed[node] = error
        for node, own in of_node.items():
            left += self._replies_left(node, own, failed.get(node))
            self.written.add(node)
        self._repeat_or_park(left)

    def _replies_left(
        self, node: Node, calls: list[LaneCall], error: Exception | None
    ) -> list[tuple[LaneCall, Exception | None]]:
        """Read the replies of a node, unless it has met an error; return the calls that have none."""
        if error is None:
            try:
                replies = self._cluster.receive(node, len(calls), self._library.attempt())
            except (RedisError, OSError) as met:
                error = met
        if error is not None:
            return [(call, error) for call in calls]
        left: list[tuple[LaneCall, Exception | None]] = []
        for call, reply in zip(calls, replies, strict=True):
            try:
                call.settle(library.checked(reply))
            except CallRefused as refused:
                raise self._error_for(refused, call) from refused
            except RedisError as met:
                left.append((call, met))
        return left

    def flush(self) -> None:
        """Wait until every call has its reply, or its lane is parked."""
        while self._in_flight:
            self._receive(next(iter(self._in_flight)), leave=0)

    def abandon(self) -> None:
        """Forget what is in flight."""
        for node in self._in_flight:
            self._drop(node)
        self._in_flight.clear()

    def _drop(self, node: Node) -> None:
        self._cluster.drop(node)
        self._transactions.forget(node)

    def send(self, call: LaneCall) -> None:
        """Send a call; read replies first where too many are in flight."""
        if self.is_parked(call.lane):
            return
        try:
            node = self._cluster.primary(call.lane.slot)
        except StateUnavailable as error:
            self._recover(error, None, call)
            return
        self.written.add(node)
        if call.is_ordered or self._transactions.is_sent(node):
            self._receive(node, leave=0)
        if call.is_ordered and self._transactions.begin(node, call):
            self._in_flight[node] = deque([call])
            return
        calls = self._in_flight.setdefault(node, deque())
        calls.append(call)
        try:
            self._cluster.send(node, call.packed, self._library.attempt())
        except (RedisError, OSError) as error:
            self._recover(error, node)
            return
        if len(calls) > IN_FLIGHT:
            self._receive(node, leave=IN_FLIGHT // 2)

    def _receive(self, node: Node, leave: int) -> None:
        """Read replies of a node until `leave` calls are in flight."""
        if node not in self._in_flight:
            return
        error = self._read_replies(node, leave)
        if error is not None:
            self._recover(error, node)
        elif not self._in_flight[node]:
            del self._in_flight[node]

    def _read_replies(self, node: Node, leave: int) -> Exception | None:
        """As `_receive`, but returns a transient error, after which the first call has no reply."""
        calls = self._in_flight[node]
        try:
            if self._transactions.is_sent(node):
                if not self._transactions.finish(node, calls[0]):
                    return _NotApplied()
                calls.popleft()
            while len(calls) > leave:
                reply = library.checked(self._cluster.receive_next(node, self._library.attempt()))
                calls.popleft().settle(reply)
        except CallRefused as refused:
            self.abandon()
            raise self._error_for(refused, calls[0]) from refused
        except (RedisError, OSError) as error:
            return error
        return None

    def _recover(self, error: Exception | None, node: Node | None, *more: LaneCall) -> None:
        """Send what the failed node has not answered, and `more`, again; wait for the replies.

        The other nodes are read first. So their lanes don't wait, and the chunks of a lane stay in order even
        if the slot map changes.
        """
        others = [other for other in self._in_flight if other != node]
        failed = others if node is None else [*others, node]
        for other in others:
            if self._read_replies(other, 0) is None:
                failed.remove(other)
        calls = [*(call for each in failed for call in self._in_flight[each]), *more]
        for each in failed:
            self._drop(each)
        self._in_flight.clear()
        met = None if isinstance(error, _NotApplied) else error
        self._repeat_or_park([(call, met) for call in calls])

    def _repeat_or_park(self, left: list[tuple[LaneCall, Exception | None]]) -> None:
        """Repeat calls until the budget is spent, each with the error that it met; park what is left."""
        budget = self._library.budget()
        # Once each, so that a lane in trouble delays no other; then what is left, with the whole budget.
        left = self._repeat(left, Deadline.after_ms(0, self._library.clock))
        left = self._repeat(left, budget)
        for call, unavailable in left:
            self._give_up(call.lane, unavailable)

    def _repeat(
        self, calls: list[tuple[LaneCall, Exception | None]], budget: Deadline
    ) -> list[tuple[LaneCall, Exception | None]]:
        """Send calls one by one, each with the error that it met; return those that found no primary."""
        left: list[tuple[LaneCall, Exception | None]] = []
        troubled: dict[Node | int | None, StateUnavailable] = {}
        repaired: Exception | None = None
        for call, error in calls:
            slot, node = call.lane.slot, self.node_of(call.lane)
            if self.is_parked(call.lane):
                continue
            # By slot too: while the slot map changes, the chunks of a lane stay in order.
            if known := troubled.get(slot) or troubled.get(node):
                left.append((call, known))
                continue
            # What one error calls for is done once, however many calls met it.
            cause = None if error is repaired else library.cause_of(error)
            repaired = error
            try:
                waited = Deadline.after_ms(0, self._library.clock) if node in self._full else budget
                reply = self._library.call(slot, call.packed, cause, waited, call.packed_when_full)
            except CallRefused as refused:
                raise self._error_for(refused, call) from refused
            except StateUnavailable as unavailable:
                troubled[slot] = unavailable
                if not is_of_lane(unavailable.__cause__):
                    troubled[self.node_of(call.lane)] = unavailable
                left.append((call, unavailable))
                continue
            self.written.add(self._cluster.primary(slot))
            call.settle(reply)
        return left

    def _give_up(self, lane: LaneTarget, error: Exception | None) -> None:
        """Park the lane's slot and, unless it is the slot that is in trouble, all slots of its node."""
        if error is None or self.is_parked(lane):
            return
        if self._parked is None:
            raise error
        if is_of_slot(error.__cause__):
            self._parked.park([lane.slot], f"slot {lane.slot} is migrating")
            return
        node = self.node_of(lane)
        name = f"{node.host}:{node.port}" if node else "no node"
        if library.is_full(error.__cause__):
            self._full.add(node)
            # The totals of strays are no call of a lane: nothing else keeps them from waiting for the node.
            has_totals = self._cluster.known_primary(TOTALS_SLOT) == node
            slots = {lane.slot, TOTALS_SLOT} if has_totals else {lane.slot}
            self._parked.park(slots, f"{name} is full: {library.cause_of(error)}")
            return
        alike = (slot for slot in range(SLOTS) if self._cluster.known_primary(slot) == node)
        self._parked.park(alike, f"{name} takes no writes: {library.cause_of(error)}")

    def _error_for(self, refused: CallRefused, call: LaneCall) -> KeylaneError:
        return refused.for_lane(str(call.lane), call.lane.watermark_key, self._epoch, call.covered.begin)
