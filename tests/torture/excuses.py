"""Which reads may fail: those of a shard that lost its data, or of which no node that may answer was up.

So may those of a new generation while only a replica answers that was cut off before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.torture.sources import NoAnswer
from tests.torture.stack import KEYLANE_SLOT, slot_of

from keylane.errors import LaneBuilding, StateUnavailable, UnknownTopic, UnknownView
from keylane.state.lanes import lane_of_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.torture.faults.world import Trouble
    from tests.torture.reading import Seen
    from tests.torture.stack import TortureStack

    from keylane.model.records import Layout

_FOUND_S = 1.0
"""After a failover, a reader finds the new primary within this time."""


@dataclass(frozen=True, slots=True)
class Excuses:
    """The troubles of a schedule, for reads that failed."""

    troubles: list[Trouble]
    stack: TortureStack
    layouts: Mapping[str, Layout]

    @classmethod
    def of(cls, troubles: list[Trouble], stack: TortureStack) -> Excuses:
        return cls(troubles, stack, stack.layouts())

    def explain(self, now: Seen) -> bool:
        """Whether one of the troubles explains the read's error, or it has no answer that could be wrong."""
        is_moving = now.kind == "find" and isinstance(now.error, StateUnavailable)
        return (
            isinstance(now.error, NoAnswer)
            or any(self._explains(trouble, now) for trouble in self.troubles)
            # While a slot moves finds wait for it.
            or (is_moving and any(move.overlaps(now.began_s, now.ended_s) for move in self.stack.moves))
        )

    def _explains(self, trouble: Trouble, now: Seen) -> bool:
        if now.ended_s < trouble.began_s:
            return False
        of_layouts = self.stack.shard_of(KEYLANE_SLOT)
        of_key = self.stack.shard_of(slot_of(self.layouts[now.topic], now.key))
        is_of_lane = now.is_wide or trouble.shard == of_key
        if isinstance(now.error, StateUnavailable):
            concerned = is_of_lane or trouble.shard == of_layouts
            if trouble.unreachable and concerned and now.began_s <= trouble.ended_s:
                return True
            # Only the primary answers these, and it may be away for longer than the read waits.
            return self._waits_for_stray(now) and is_of_lane and now.ended_s <= trouble.ended_s + _FOUND_S
        if isinstance(now.error, UnknownTopic | UnknownView):
            # Each part of the cluster has a copy of the layouts.
            return self._all_lost(now)
        if not isinstance(now.error, LaneBuilding) or not is_of_lane:
            return False
        return trouble.lost_data or self._lacks_generation(trouble, now, now.error)

    def _lacks_generation(self, trouble: Trouble, now: Seen, error: LaneBuilding) -> bool:
        """Whether a replica answered that was cut off before the topic's generation was begun."""
        is_cut_off = trouble.kind == "stale-replica" and now.began_s <= trouble.ended_s
        has_switched = len(self.stack.stripes.get(now.topic, ())) > 1
        return is_cut_off and has_switched and error.next_offset is None

    def _waits_for_stray(self, now: Seen) -> bool:
        layout = self.layouts[now.topic]
        own = lane_of_key(layout, now.key).partition
        return now.waited_for is not None and now.waited_for.partition != own

    def _all_lost(self, now: Seen) -> bool:
        lost = {each.shard for each in self.troubles if each.lost_data and each.began_s <= now.ended_s}
        return len(lost) == self.stack.cluster.shards
