"""The heartbeat: observes the log's end offsets, and updates the time as of which idle lanes are complete.

It runs in its own thread with its own connections. It moves no watermark. It raises the time as of which a
lane is complete once the job has written all records below an observed end offset.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import KeylaneError, Unavailable
from keylane_spark.adapters.claim_clock import LARGE_SKEW_MS
from keylane_spark.adapters.lane import LaneTarget, OffsetRange
from keylane_spark.stream.freshness import topic_complete_as_of_ms
from keylane_spark.stream.restarts import unexpected

if TYPE_CHECKING:
    from collections.abc import Collection

    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.context import JobContext
    from keylane_spark.stream.freshness import ObservedEnds
    from keylane_spark.stream.leaders import Leaders
    from keylane_spark.stream.openings import WriterSpec

_CHECK_TOPICS_S = 2.0


class HeartbeatQuery(Protocol):
    """The query whose lanes are kept fresh; the heartbeat's thread calls it."""

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition."""

    @property
    def strays(self) -> Collection[str]:
        """Topics with strays: each of their lanes is only as complete as all partitions of the topic."""

    @property
    def lacking(self) -> set[TopicPartition]:
        """Partitions whose lanes may lack strays, until all partitions of the topic were read once."""

    def check_topics(self) -> None:
        """Raise TopicChanged when the topics are not as they were."""

    def fail(self, error: KeylaneError) -> None:
        """End the query: the heartbeat has ended with this error."""

    def say(self, text: str) -> None:
        """Print a line to the job's log."""


class Heartbeat:
    """Beats until `stop`, or until an error that does not pass (a fence, a lane that lost records)."""

    def __init__(
        self,
        context: JobContext,
        writer: WriterSpec,
        freshness: ObservedEnds,
        leaders: Leaders,
        query: HeartbeatQuery,
    ) -> None:
        self._leaders = leaders
        self._clock = context.clock
        self._claim_clock = context.claim_clock
        self._interval_s = context.config.job.heartbeat_ms / 1000
        self._writer = writer
        self._freshness = freshness
        self._query = query
        self._next_check_s = self._clock.monotonic_s() + _CHECK_TOPICS_S
        self._cluster = Cluster(writer.redis)
        self._lanes = writer.lanes(self._cluster, self._clock, query.say, durable=False)
        self._slots = {
            LaneTarget.of(writer.layouts[topic], partition, stripe).slot
            for topic, partition in query.positions
            for stripe in range(writer.layouts[topic].stripes)
        }
        self._has_reported_skew = False
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
                self._lanes.abandon()
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
        self._claim_clock.compare(self._cluster, self._slots)
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
        if self._clock.monotonic_s() >= self._next_check_s:
            self._query.check_topics()
            self._next_check_s = self._clock.monotonic_s() + _CHECK_TOPICS_S
        self._compare_clocks()
        before, seen_ms = self._query.positions, self._claim_clock.now_ms()
        ends = self._leaders.end_offsets()
        if self._freshness.observe(seen_ms, ends, before):
            # Most likely the topic was deleted and created again.
            self._query.check_topics()
        positions, strays = self._query.positions, frozenset(self._query.strays)
        lacking = frozenset(self._query.lacking)
        bounded = strays | {topic for topic, _ in lacking}
        of_topic_ms = topic_complete_as_of_ms(self._freshness, positions, bounded)
        all_ms = []
        for (topic, partition), position in positions.items():
            complete_ms = self._freshness.complete_as_of_ms((topic, partition), position)
            if topic in strays or (topic, partition) in lacking:
                complete_ms = min(complete_ms, of_topic_ms[topic])
            all_ms.append(complete_ms)
            layout = self._writer.layouts[topic]
            seen = OffsetRange(position, position, complete_ms, self._freshness.end((topic, partition)))
            for stripe in range(layout.stripes):
                lane = LaneTarget.of(layout, partition, stripe)
                self._lanes.apply(lane, seen, unless_strays_lost=topic in strays)
        self._lanes.flush()
        self._freshness.reached(positions)
        self._query.lacking.difference_update(each for each in lacking if of_topic_ms[each[0]])
        self.complete_as_of_ms = min(all_ms, default=0)
