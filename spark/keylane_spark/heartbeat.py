"""The heartbeat: sees the broker's end offsets, and tells idle lanes that they are complete.

A thread of its own, with connections of its own. What a batch is about to write it leaves alone: a lane
is told only of ends that the job has written past.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from keylane.adapters.redis_cluster import Cluster
from keylane.adapters.redis_lanes import Lane
from keylane.errors import KeylaneError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.adapters.kafka_broker import Broker
    from keylane.ports import Clock
    from keylane_spark.freshness import Freshness, Place
    from keylane_spark.opening import Writer


class Heartbeat:
    """Beats until `stop`; `failed` is called with what ends it (a fence, a lane that went back)."""

    def __init__(
        self,
        *,
        writer: Writer,
        broker: Broker,
        clock: Clock,
        freshness: Freshness,
        positions: Callable[[], dict[Place, int]],
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
        self._counts = {topic: layout.partition_count for topic, layout in writer.layouts.items()}
        self._cluster = Cluster(writer.redis)
        self._lanes = writer.lanes(self._cluster, clock, notify)
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
        at_ms = self._clock.now_ms()
        self._freshness.observe(at_ms, self._broker.end_offsets(self._counts))
        for (topic, partition), position in self._positions().items():
            complete_ms = self._freshness.complete_as_of_ms((topic, partition), position)
            if complete_ms:
                layout = self._writer.layouts[topic]
                for stripe in range(layout.stripes):
                    lane = Lane.of(layout, partition, stripe)
                    self._lanes.apply(lane, position, position, complete_as_of_ms=complete_ms)
        self._lanes.flush()
