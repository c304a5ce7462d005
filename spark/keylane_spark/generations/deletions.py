"""Which lanes may hold deleted keys, because compaction removed their tombstones before they were read.

A compacted topic keeps a tombstone for `delete.retention.ms`. Whoever reads it within that time sees it. A
lane that was last complete before that may have values that the log no longer mentions, and nothing says
which: the topic is read again, from its start, into a new generation.

A lane that was never complete began to be read when its generation did.

A tombstone takes only its own partition's records with it. What lies in another partition stays in a
compacted log, and only a generation that serves knows that it was deleted. The one that is built beside it
gets its deletions (see `serving.carried_deletions`), unless what it lacks may not be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from keylane.model.kafka import TopicPartition
from keylane.model.records import Layout
from keylane_spark.lanes.lane import LaneStart, LaneTarget

SHARE = 0.9
"""What part of the time is for being away. The rest is for reading on: a tombstone may go meanwhile, too."""
LEAST_WHILE_RUNNING_MS = 60_000
"""A run that opens its lanes again is away for as long as that takes: shorter times count as this one."""
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class DeletionCheck:
    """Looks for lanes that may have missed deletions.

    `tombstones_last_ms`: how long a topic keeps tombstones; inf: it removes none; None: not known. `oldest`:
    the oldest offsets of the log. `is_start`: the lanes are opened by a run that has opened none before.
    """

    tombstones_last_ms: Callable[[str], float | None]
    oldest: Mapping[TopicPartition, int]
    now_ms: int
    is_start: bool

    def missed(
        self, starts: Mapping[LaneTarget, LaneStart], read_since_ms: Mapping[str, int]
    ) -> dict[LaneTarget, str]:
        """The lanes that may, by themselves, hold deleted keys, and a sentence about each.

        `starts`: the lanes as they were opened; `read_since_ms`: when their topics began to be read, 0 where
        that is not known. Raises what `tombstones_last_ms` does.
        """
        read_ms = {
            lane: start.complete_as_of_ms or read_since_ms.get(lane.topic, 0)
            for lane, start in starts.items()
            if self._counts(lane, start)
        }
        last_ms = {topic: self.tombstones_last_ms(topic) for topic in {lane.topic for lane in read_ms}}
        found = {}
        for lane, since_ms in read_ms.items():
            kept_ms = last_ms[lane.topic]
            if kept_ms is not None and self.now_ms - since_ms > self._bound_ms(kept_ms):
                found[lane] = self._sentence(starts[lane], since_ms, kept_ms)
        return found

    def _counts(self, lane: LaneTarget, start: LaneStart) -> bool:
        """Whether the lane has read anything, so long ago that its topic's settings matter."""
        if not start.complete_as_of_ms:
            # What a run has begun to read it reads on, whatever makes it open its lanes again.
            return self.is_start and start.next_offset > self.oldest[lane.topic, lane.partition]
        return self.now_ms - start.complete_as_of_ms > self._bound_ms(0)

    def _bound_ms(self, kept_ms: float) -> float:
        return max(kept_ms * SHARE, 0 if self.is_start else LEAST_WHILE_RUNNING_MS)

    def _sentence(self, start: LaneStart, since_ms: int, kept_ms: float) -> str:
        since = "was never complete"
        if start.complete_as_of_ms:
            since = f"was last complete {_shown(self.now_ms - since_ms)} ago"
        return f"it {since}, and compaction removes tombstones after {_shown(kept_ms)} (delete.retention.ms)"


def why_not_carried(served: Layout, built: Layout) -> str:
    """Why what one generation has deleted can't be deleted in another; empty where it can.

    A marker, or a key's absence, must mean that the newest record was a tombstone.
    """
    if served.options.insert_once:
        # Where another value was kept, a tombstone may have been older than the ones that were dropped.
        return "it keeps first values (insert_once)"
    served_ms, built_ms = served.options.ttl_ms, built.options.ttl_ms
    if served_ms is not None and (built_ms is None or built_ms > served_ms):
        return "its records expire earlier (ttl)"
    if served.options.transform != built.options.transform:
        return "it leaves out other records (where, transform)"
    return ""


def _shown(ms: float) -> str:
    return f"{ms / _HOUR_MS:,.1f} hours" if ms >= _HOUR_MS else f"{ms / 1000:,.1f} s"
