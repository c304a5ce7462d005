"""What an opening does about lanes that may hold deleted keys: see `generations.deletions`.

1. The lanes are marked, before anything raises the time as of which they are complete. In a topic with strays
   all lanes are: a tombstone may have been a stray.
2. A generation that is being built, and may hold deleted keys itself, is given up.
3. The topics are planned again (StateStale): a generation is built beside the one that serves.

The marks are on record: an opening that finds them, and no generation that is being built, plans one. So
nothing is lost if the job ends in between. While slots are parked nothing is planned, for a new generation
needs all shards; when they take writes again, all lanes are opened.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from keylane.model.kafka import TopicPartition
from keylane_spark.context import JobContext
from keylane_spark.generations.deletions import DeletionCheck, why_not_carried
from keylane_spark.generations.epochs import BegunState, StateStale
from keylane_spark.generations.ownership import Ownership
from keylane_spark.lanes.cluster import Cluster
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.stream.openings import Opening

_MARKED = "its lanes may hold deleted keys"


@dataclass(slots=True)
class MissedDeletions:
    """The topics of one opening, over all of its attempts. `reasons`: why topics are built again."""

    context: JobContext
    ownership: Ownership
    cluster: Cluster
    reasons: dict[str, str] = field(default_factory=dict)
    _since_ms: int = field(init=False)
    _refused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._since_ms = self.context.clock.now_ms()

    def check(
        self,
        serving: Opening,
        building: Opening | None,
        begun: Mapping[str, BegunState],
        oldest: Mapping[TopicPartition, int],
    ) -> Opening:
        """Return what serves, with the lanes that are marked now.

        Raises StateStale, Fenced, LogUnavailable, StateUnavailable.
        """
        check = DeletionCheck(
            self._tombstones_last_ms, oldest, self.context.clock.now_ms(), not self.ownership.has_begun
        )
        missed = check.missed(serving.starts, _read_since_ms(serving, begun))
        serving = self._marked(serving, missed)
        marked = {topic for topic, _ in serving.missed_deletions}
        self.reasons = dict.fromkeys(marked, _MARKED) | {lane.topic: why for lane, why in missed.items()}
        given_up = set()
        if building:
            late = check.missed(building.starts, _read_since_ms(building, begun))
            given_up = {lane.topic for lane in late}
        if serving.parked:
            return serving
        for topic in given_up:
            self.ownership.drop_building(topic)
        if given_up or any(not begun[topic].plan.building for topic in marked):
            raise StateStale
        return serving

    def warn_of_rebuilds(
        self, serving: Opening, building: Opening, begun: Mapping[str, BegunState], mixed: Collection[str]
    ) -> None:
        """Say which generations, begun by this opening, may bring deleted keys back.

        Those are built that do not get the deletions of the one that serves, or beside one that lacks some.
        `mixed`: topics with keys that have records in several partitions.
        """
        missed = {topic for topic, _ in serving.missed_deletions}
        for topic, read_ms in _read_since_ms(building, begun).items():
            why = why_not_carried(serving.writer.layouts[topic], building.writer.layouts[topic])
            if topic in missed:
                why = "it has missed some itself"
            if read_ms < self._since_ms or topic not in mixed or not why:
                continue
            kept_ms = self._tombstones_last_ms(topic)
            if kept_ms is not None and kept_ms < math.inf:
                self.context.say(
                    f"topic {topic!r} is compacted, and its keys have records in several partitions: the new "
                    f"generation may bring deleted keys back, where compaction left an older record. The "
                    f"deletions of the one that serves do not rule it out: {why}"
                )

    def _marked(self, opening: Opening, missed: Collection[LaneTarget]) -> Opening:
        """Mark lanes, and all lanes of those topics that have strays."""
        mixed = {lane.topic for lane in missed} & opening.strays
        lanes = {
            lane: replace(start, incomplete=True, missed_deletions=True)
            for lane, start in opening.starts.items()
            if not start.missed_deletions and (lane in missed or lane.topic in mixed)
        }
        writer = opening.writer.lanes(self.cluster, self.context.clock, self.context.say, opening.parked)
        writer.mark_missed_deletions(lanes)
        incomplete = {*opening.incomplete, *((lane.topic, lane.partition) for lane in lanes)}
        return replace(opening, starts={**opening.starts, **lanes}, incomplete=sorted(incomplete))

    def _tombstones_last_ms(self, topic: str) -> float | None:
        found = self.context.broker.tombstones_last_ms(topic)
        if found is None and topic not in self._refused:
            self._refused.add(topic)
            self.context.say(
                f"topic {topic!r}: Kafka does not let the job read its settings (DescribeConfigs): it can't "
                f"tell whether compaction has removed tombstones that the state has not read"
            )
        return found


def _read_since_ms(opening: Opening, begun: Mapping[str, BegunState]) -> dict[str, int]:
    layouts = opening.writer.layouts
    return {topic: begun[topic].read_since_ms[layout.generation] for topic, layout in layouts.items()}
