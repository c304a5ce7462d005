"""The heartbeat: observes the log's end offsets, and updates the time as of which idle lanes are complete.

It runs in its own thread with its own connections. It moves no watermark. It raises the time as of which a
lane is complete once the job has written all records below an observed end offset.

It waits for no node: a lane that it can't reach is tried again with the next beat, and the others are beaten
meanwhile. A slot that it has not reached for `redis_patience_s` is parked. Nor does it wait for a leader: the
lanes of a partition whose leader does not answer are as complete as they were, and those of the others are
complete as of now.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from keylane.errors import KeylaneError, LogUnavailable, Unavailable
from keylane.model.kafka import TopicPartition
from keylane_spark.context import JobContext
from keylane_spark.lanes.claim_clock import LARGE_SKEW_MS
from keylane_spark.lanes.cluster import Cluster
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.lanes.parked_slots import ParkedSlots
from keylane_spark.stream.away_leaders import AwayLeaders
from keylane_spark.stream.freshness import ObservedEnds, topic_complete_as_of_ms
from keylane_spark.stream.leaders import ELECTION_S, Leaders
from keylane_spark.stream.openings import WriterSpec
from keylane_spark.stream.reading_query import ReadingQuery
from keylane_spark.stream.restarts import unexpected


class Heartbeat:
    """Beats until `stop`, or until an error that does not pass (a fence, a lane that lost records)."""

    def __init__(
        self,
        context: JobContext,
        writer: WriterSpec,
        freshness: ObservedEnds,
        leaders: Leaders,
        query: ReadingQuery,
    ) -> None:
        self._leaders = leaders
        self._clock = context.clock
        self._claim_clock = context.claim_clock
        self._interval_s = context.config.job.heartbeat_ms / 1000
        self._writer = writer
        self._freshness = freshness
        self._query = query
        self._cluster = Cluster(writer.redis)
        self._missed = ParkedSlots()
        self._missed_since_s: dict[int, float] = {}
        self._retry_budget_s = context.config.job.redis_patience_s
        self._lanes = {
            (topic, partition): LaneTarget.of_partition(writer.layouts[topic], partition)
            for topic, partition in query.positions
        }
        self._slots = {lane.slot for lanes in self._lanes.values() for lane in lanes}
        self._has_reported_skew = False
        self._away = AwayLeaders(context.clock, query.say)
        self._fallen_since_s: dict[TopicPartition, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self.complete_as_of_ms = 0
        """The time as of which all lanes have been marked complete; 0: not all of them yet."""

    def start(self) -> None:
        """Beat once, so that idle topics are known to be complete from now on, then start the thread.

        Raises what the first beat meets: Unavailable, Fenced, LaneBehind, CorruptState.
        """
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the beat in progress."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        self._cluster.close()

    def _run(self) -> None:
        reported = ""
        while not self._stop.wait(self._interval_s):
            try:
                self._beat()
                reported = ""
            except Unavailable as error:
                if str(error) != reported:
                    reported = str(error)
                    self._query.say(f"heartbeat: {reported}")
            except KeylaneError as error:
                self._query.fail(error)
                return
            except Exception as error:  # noqa: BLE001 (the query must not go on without its heartbeat)
                self._query.fail(unexpected(error))
                return

    def _compare_clocks(self) -> None:
        parked = self._query.parked
        self._claim_clock.compare(self._cluster, [slot for slot in self._slots if slot not in parked])
        largest = self._claim_clock.largest_skew()
        is_large = largest is not None and abs(largest[1]) > LARGE_SKEW_MS
        if largest and is_large and not self._has_reported_skew:
            node, skew_ms = largest
            self._query.say(
                f"this machine's clock is {abs(skew_ms):,} ms {'ahead of' if skew_ms > 0 else 'behind'} that "
                f"of Redis node {node.host}:{node.port}: ages are only as true as the clocks"
            )
        self._has_reported_skew = is_large

    def _beat(self) -> None:
        self._compare_clocks()
        before, seen_ms = self._query.positions, self._claim_clock.now_ms()
        # A lane that is complete as of now says also that its topic has no further partitions: a read waits
        # for no position in them.
        self._query.check_topics()
        answered = self._leaders.answered_ends()
        self._away.note(answered.away)
        fallen = self._freshness.observe(seen_ms, answered.offsets, before)
        if fallen:
            # Most likely the topic was deleted and created again.
            self._query.check_topics()
        self._note_fallen(fallen)
        positions, began_s = self._query.positions, self._clock.monotonic_s()
        all_ms = self._beat_lanes(positions)
        self._park_missed(began_s)
        self._freshness.reached(positions)
        self._note_complete(all_ms)

    def _note_fallen(self, fallen: Collection[TopicPartition]) -> None:
        """End the query where a log stays below what lanes have read: opening them finds out what it lost."""
        now_s = self._clock.monotonic_s()
        self._fallen_since_s = {each: self._fallen_since_s.get(each, now_s) for each in fallen}
        for (topic, partition), since_s in self._fallen_since_s.items():
            if now_s - since_s > ELECTION_S:
                why = f"partition {partition} of {topic!r} ends before what was read of it"
                self._query.fail(LogUnavailable(why, 2))

    def _beat_lanes(self, positions: dict[TopicPartition, int]) -> list[int]:
        """Mark the lanes that can be reached; return the time as of which each partition is complete."""
        strays, stuck = frozenset(self._query.strays), self._query.stuck
        lacking, doubted = frozenset(self._query.lacking), self._query.doubted
        bounded = strays | {topic for topic, _ in lacking}
        of_topic_ms = topic_complete_as_of_ms(self._freshness, positions, bounded)
        of_topic_ms |= {topic: 0 for topic, _ in self._query.unread if topic in bounded}
        self._missed = self._query.parked.copy()
        lanes = self._writer.heartbeat_lanes(self._cluster, self._clock, self._missed)
        all_ms, beats = [], []
        complete = self._freshness.complete_as_of(positions)
        for (topic, partition), position in positions.items():
            complete_ms, log_end = complete[topic, partition]
            if topic in strays or (topic, partition) in lacking:
                complete_ms = min(complete_ms, of_topic_ms[topic])
            all_ms.append(complete_ms)
            if (topic, partition) in stuck:
                continue
            is_doubted = topic in strays or (topic, partition) in doubted
            seen = OffsetRange(position, position, complete_ms, log_end)
            beats += [(lane, seen, is_doubted) for lane in self._lanes[topic, partition]]
        try:
            lanes.beat(beats)
        except BaseException:
            lanes.abandon()
            raise
        self._query.lacking.difference_update(each for each in lacking if of_topic_ms[each[0]])
        return all_ms

    def _park_missed(self, began_s: float) -> None:
        """Park the slots that no beat has reached for too long; `began_s`: when this beat began."""
        parked = self._query.parked
        missed = {slot: why for slot, why in self._missed.reasons.items() if slot not in parked}
        self._missed_since_s = {slot: self._missed_since_s.get(slot, began_s) for slot in missed}
        latest_s = self._clock.monotonic_s() - self._retry_budget_s
        overdue = [slot for slot, since_s in self._missed_since_s.items() if since_s <= latest_s]
        for why in {missed[slot] for slot in overdue}:
            parked.park([slot for slot in overdue if missed[slot] == why], why)

    def _note_complete(self, all_ms: list[int]) -> None:
        """Lanes that were not reached are as complete as they were."""
        parked = self._query.parked
        if self._missed:
            parked.complete_as_of_ms = parked.complete_as_of_ms or self.complete_as_of_ms
            all_ms = [each for each in all_ms if each] + [parked.complete_as_of_ms]
        elif not parked:
            parked.complete_as_of_ms = 0
        self.complete_as_of_ms = min(all_ms, default=0)
