"""The query that serves and, beside it, the one that builds the next generation; the switch between them.

The switch, when the next generation is whole but for the last seconds:

1. The serving query stops, after its batch: its lanes stand at M.
2. The building query goes on until it has reached M everywhere and is whole, then it stops too. If that
   takes too long all begins anew as it was, and the switch is tried again.
3. The old lanes are marked superseded, all of them: a reader that sees the mark asks for the layout.
4. The layout record names the next generation, and the topic's record puts the old one on its list of those
   to be removed: one call. From here on every reader goes by the new one.
5. All lanes are opened anew, and one query serves.

No read goes back: until 4 nobody has seen the next generation, and it holds all that the old one has ever
shown; after 4 nobody is answered by the old one, for its mark was there before. A crash after any step
leaves a state that the next start opens: `open` takes the marks of lanes that serve away again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import Fenced, TopicChanged
from keylane_spark.stream.openings import lanes_of
from keylane_spark.stream.topic_query import Query

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable

    from keylane_spark.adapters.topic_record import TopicRecord
    from keylane_spark.context import Parts
    from keylane_spark.generations.ownership import Ownership
    from keylane_spark.stream.openings import Openings
    from keylane_spark.telemetry.metrics import Meter
    from keylane_spark.telemetry.stray_totals import StrayTotals

_POLL_S = 0.1
_NEAR_MS = 5_000
"""A generation that was whole this long ago is near enough to the end for the switch."""
_SWITCH_S = 30.0
"""How long the serving lanes may stand still for a switch."""


class Serving:
    """From one opening of the lanes to the next."""

    def __init__(
        self, parts: Parts, ownership: Ownership, openings: Openings, totals: StrayTotals, meter: Meter
    ) -> None:
        self._parts = parts
        self._ownership = ownership
        self._openings = openings
        self._meter = meter
        self._serving = Query(parts, openings.serving, totals, meter, look=self._look)
        self._building = (
            Query(parts, openings.building, totals, meter, building=True) if openings.building else None
        )

    def until_stopped(self, stop: threading.Event) -> None:
        """Run until `stop` or a switch, after which all lanes are to be opened anew.

        Raises what breaks a query: TopicChanged, Unavailable, LaneBehind, Fenced, CorruptState.
        """
        queries = [self._serving, *([self._building] if self._building else [])]
        try:
            for query in queries:
                query.start()
            self._tell()
            while not stop.wait(_POLL_S):
                for query in queries:
                    query.check()
                if self._meter.is_due:
                    self._serving.gauge()
                    self._meter.flush()
                if self._building and self._is_near(self._building):
                    self._switch(self._building, stop)
                    return
        finally:
            for query in queries:
                query.stop()
            for query in queries:
                # A fence is told even where something else was met first: it is the reason of most of that.
                if isinstance(query.failure, Fenced):
                    raise query.failure

    def _tell(self) -> None:
        opening = self._openings.serving
        self._parts.say(
            f"ready: epoch {opening.writer.epoch}, {len(opening.writer.layouts)} topics, "
            f"{len(opening.positions)} partitions"
        )

    def _look(self) -> None:
        """See whether the topics are as they were when the lanes were opened."""
        shapes = self._parts.broker.describe(self._parts.config.topics)
        before = self._openings.shapes
        for topic in shapes.keys() | before.keys():
            if topic not in shapes:
                raise TopicChanged(f"topic {topic!r} is gone")
            if topic not in before:
                raise TopicChanged(f"topic {topic!r} is back")
            if shapes[topic].topic_id != before[topic].topic_id:
                raise TopicChanged(f"topic {topic!r} was deleted and created anew")
            if shapes[topic] != before[topic]:
                raise TopicChanged(
                    f"topic {topic!r} has {shapes[topic].partition_count} partitions now, "
                    f"{before[topic].partition_count} before"
                )

    def _is_near(self, building: Query) -> bool:
        whole_ms = building.whole_as_of_ms
        return whole_ms > 0 and self._parts.clock.now_ms() - whole_ms < _NEAR_MS

    def _switch(self, building: Query, stop: threading.Event) -> None:
        clock, say = self._parts.clock, self._parts.say
        layouts = self._openings.building.writer.layouts if self._openings.building else {}
        names = ", ".join(f"{topic!r} to generation {each.generation}" for topic, each in layouts.items())
        say(f"switching topic {names}")
        began_s = clock.monotonic_s()
        if not self._serving.stop():
            raise TopicChanged("the batch under way did not end: the switch is tried again")
        self._serving.raise_failure()
        reached = {place: end for place, end in self._serving.positions.items() if place[0] in layouts}
        while not self._covers(building, reached):
            building.check()
            if clock.monotonic_s() - began_s > _SWITCH_S:
                raise TopicChanged("the next generation does not catch up: the switch is tried again")
            if stop.wait(_POLL_S / 5):
                return
        if not building.stop():
            raise TopicChanged("the batch under way did not end: the switch is tried again")
        building.raise_failure()
        self._supersede(layouts)
        for topic, layout in layouts.items():
            old = self._openings.serving.writer.layouts[topic].generation

            def switched(record: TopicRecord, old: int = old) -> TopicRecord:
                return record.switched(old)

            self._ownership.update(topic, switched, layout)
        say(f"switched topic {names}, in {(clock.monotonic_s() - began_s) * 1000:.0f} ms")

    def _covers(self, building: Query, reached: dict[tuple[str, int], int]) -> bool:
        positions = building.positions
        return building.whole_as_of_ms > 0 and all(
            positions.get(place, 0) >= end for place, end in reached.items()
        )

    def _supersede(self, topics: Iterable[str]) -> None:
        """Mark the old lanes of these topics, all of them."""
        writer = self._openings.serving.writer
        cluster = Cluster(writer.redis)
        try:
            lanes = writer.lanes(cluster, self._parts.clock, self._parts.say)
            for topic in topics:
                lanes.supersede(lanes_of(writer.layouts[topic]))
        finally:
            cluster.close()
