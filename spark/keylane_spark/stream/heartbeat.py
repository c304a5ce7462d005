"""The heartbeat: sees the broker's end offsets, tells idle lanes that they are complete, looks at the topics.

A thread of its own, with connections of its own. What a batch is about to write it leaves alone: a lane
is told only of ends that the job has written past.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import KeylaneError, Unavailable
from keylane_spark.adapters.lane_writer import LaneTarget
from keylane_spark.stream.freshness import topic_complete_as_of_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from keylane.model.topic_partition import TopicPartition
    from keylane.ports import Clock
    from keylane_spark.adapters.kafka_admin import Broker
    from keylane_spark.stream.freshness import Freshness
    from keylane_spark.stream.openings import Writer

_LOOK_S = 2.0


class Heartbeat:
    """Beats until `stop`; `failed` is called with what ends it (a fence, a lane that went back).

    `strays`: topics whose lanes are only as complete as all of the topic's partitions. `look` is called every
    two seconds: it raises TopicChanged when the topics aren't as they were.
    """

    def __init__(
        self,
        *,
        writer: Writer,
        broker: Broker,
        clock: Clock,
        freshness: Freshness,
        positions: Callable[[], dict[TopicPartition, int]],
        strays: Collection[str],
        look: Callable[[], None],
        interval_s: float,
        failed: Callable[[KeylaneError], None],
        notify: Callable[[str], None],
    ) -> None:
        self._writer = writer
        self._broker = broker
        self._clock = clock
        self._freshness = freshness
        self._positions = positions
        self._interval_s = interval_s
        self._failed = failed
        self._notify = notify
        self._strays = strays
        self._look = look
        self._next_look_s = clock.monotonic_s() + _LOOK_S
        self._counts = Counter(topic for topic, _ in positions())
        self._cluster = Cluster(writer.redis)
        self._lanes = writer.lanes(self._cluster, clock, notify, durable=False)
        self.told_as_of_ms = 0
        """As of when all lanes have been told that they are complete; 0: not all of them yet."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Beat once, so that an idle topic is known complete from now on, then in a thread of its own.

        Raises what the first beat meets: Unavailable, Fenced, LaneBehind, CorruptState.
        """
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the beat under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        self._cluster.close()

    def _run(self) -> None:
        away = ""
        while not self._stop.wait(self._interval_s):
            try:
                self._beat()
                away = ""
            except Unavailable as error:
                self._lanes.abandon()
                if str(error) != away:
                    away = str(error)
                    self._notify(f"heartbeat: {away}")
            except KeylaneError as error:
                self._failed(error)
                return

    def _beat(self) -> None:
        if self._clock.monotonic_s() >= self._next_look_s:
            self._look()
            self._next_look_s = self._clock.monotonic_s() + _LOOK_S
        at_ms = self._clock.now_ms()
        ends = self._broker.end_offsets(self._counts)
        self._freshness.observe(at_ms, ends)
        positions = self._positions()
        strays = frozenset(self._strays)
        whole_ms = topic_complete_as_of_ms(self._freshness, positions, strays)
        told_ms = []
        for (topic, partition), position in positions.items():
            complete_ms = self._freshness.complete_as_of_ms((topic, partition), position)
            complete_ms = min(complete_ms, whole_ms.get(topic, complete_ms))
            told_ms.append(complete_ms)
            layout = self._writer.layouts[topic]
            for stripe in range(layout.stripes):
                lane = LaneTarget.of(layout, partition, stripe)
                end = ends[topic, partition]
                self._lanes.apply(
                    lane,
                    position,
                    position,
                    complete_as_of_ms=complete_ms,
                    log_end=end,
                    has_strays=topic in strays,
                )
        self._lanes.flush()
        self._freshness.reached(positions)
        self.told_as_of_ms = min(told_ms, default=0)
