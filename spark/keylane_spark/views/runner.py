"""Views beside the topics: a thread and a query for each, which come back by themselves."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import KeylaneError, LaneBehind, TopicChanged, Unavailable, UnknownTopic
from keylane.state.windows import state_name
from keylane_spark.adapters.view_lanes import ViewLanes
from keylane_spark.views.open_view import open_view
from keylane_spark.views.view_query import ViewQuery

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane_spark.adapters.topic_record import TopicRecord
    from keylane_spark.context import Parts
    from keylane_spark.generations.ownership import Ownership
    from keylane_spark.telemetry.metrics import Meter
    from keylane_spark.views.open_view import ViewOpening

_LOOK_S = 2.0
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0


class Views:
    """All views of the config. `swept` is called when one has a generation that is to be removed.

    What doesn't pass (a fence, corrupt state, SQL that is none) ends the whole job: `failed` is called.
    """

    def __init__(
        self,
        parts: Parts,
        ownership: Ownership,
        stop: threading.Event,
        meter: Meter,
        *,
        swept: Callable[[str], None],
        failed: Callable[[KeylaneError], None],
    ) -> None:
        self._parts = parts
        self._ownership = ownership
        self._stop = stop
        self._meter = meter
        self._swept = swept
        self._failed = failed
        self._threads = [
            threading.Thread(target=self._run, args=(name,), name=f"view-{name}", daemon=True)
            for name in parts.config.views
        ]

    def start(self) -> None:
        """Begin, each view in its own thread."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until all have ended, after `stop` is set."""
        for thread in self._threads:
            thread.join(timeout=60)

    def _run(self, name: str) -> None:
        pause_s = _FIRST_PAUSE_S
        has_begun = False
        while not self._stop.is_set():
            began_s = self._parts.clock.monotonic_s()
            try:
                opening = open_view(self._parts, self._ownership, name, has_begun=has_begun)
                has_begun = True
                self._serve(opening)
            except TopicChanged as error:
                self._parts.say(f"view {name!r} opens its lanes anew: {error}")
            except (Unavailable, LaneBehind, UnknownTopic) as error:
                if self._parts.clock.monotonic_s() - began_s > _LAST_PAUSE_S:
                    pause_s = _FIRST_PAUSE_S
                wait_s = 0.0 if isinstance(error, LaneBehind) else pause_s
                self._meter.view_restart(name)
                self._parts.say(f"view {name!r} begins anew in {wait_s:.0f} s: {error}")
                self._stop.wait(wait_s)
                self._parts.broker.renew()
                pause_s = min(pause_s * 2, _LAST_PAUSE_S)
            except KeylaneError as error:
                self._failed(error)
                return

    def _serve(self, opening: ViewOpening) -> None:
        parts, name = self._parts, opening.name
        self._swept(state_name(name))
        for partition in opening.incomplete:
            parts.say(
                f"INCOMPLETE: partition {partition} of topic {opening.view.topic!r}: Kafka no longer has "
                f"records that view {name!r} never saw"
            )
        query = ViewQuery(parts, opening, self._meter)
        try:
            query.start()
            parts.say(f"view {name!r} is ready: epoch {opening.epoch}, {len(opening.lanes.lanes)} lanes")
            look_s = parts.clock.monotonic_s() + _LOOK_S
            replaces = opening.replaced is not None
            while not self._stop.wait(parts.config.job.heartbeat_ms / 1000):
                query.check()
                query.beat()
                query.gauge()
                if replaces and query.whole_as_of_ms:
                    self._switch(opening)
                    replaces = False
                if parts.clock.monotonic_s() >= look_s:
                    self._look(opening)
                    look_s = parts.clock.monotonic_s() + _LOOK_S
        finally:
            query.stop()

    def _look(self, opening: ViewOpening) -> None:
        topic = opening.view.topic
        shape = self._parts.broker.describe([topic]).get(topic)
        if shape is None:
            raise TopicChanged(f"topic {topic!r} is gone")
        if shape != opening.shape:
            raise TopicChanged(f"topic {topic!r} has changed: {shape}")

    def _switch(self, opening: ViewOpening) -> None:
        """Name the new generation to readers, after the old one's marks: nobody is answered by that then."""
        old = opening.replaced
        if old is None:
            return
        # A batch may be under way on the query's own connections.
        cluster = Cluster(self._parts.redis)
        try:
            ViewLanes(old, cluster, self._parts.clock, opening.epoch, notify=self._parts.say).supersede()
        finally:
            cluster.close()
        self._ownership.update(
            state_name(opening.name), functools.partial(_switched, old=old.generation), opening.layout
        )
        self._parts.say(f"view {opening.name!r}: switched to generation {opening.layout.generation}")
        self._swept(state_name(opening.name))


def _switched(record: TopicRecord, old: int) -> TopicRecord:
    return record.switched(old)
