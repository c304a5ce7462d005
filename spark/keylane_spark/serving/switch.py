"""Runs the query that serves and, beside it, the one that builds the next generation; switches between them.

Once the next generation is complete but for the last seconds, it gets the deletions that the log no longer
shows (see `serving.carried_deletions`), while both queries go on. The steps of a switch then:

1. The serving query stops after its batch, however long that takes: its lanes are served meanwhile, and a
   batch that was broken off would have to begin again. Its lanes have reached the offsets M.
2. The building query continues until it has reached M everywhere and is complete; then it stops too. If that
   takes too long, the lanes are opened again as before, and the switch is tried again later.
3. All old lanes are flagged as superseded: a reader that sees the flag re-reads the layout.
4. One call changes the layout record to the next generation, and puts the old one on the topic record's list
   for removal. From here on every reader uses the new generation.
5. All lanes are opened again, and one query serves.

No read goes back in time. Before step 4 no reader uses the next generation, which holds everything that the
old one ever returned. After it no reader uses the old one, because its lanes are marked. A crash after any
step leaves a state that the next start can open: `open` clears the flags of lanes that serve.

While a lane is parked, there is no switch: it could not be marked, or the next generation lacks its records.
That is looked at last when both queries have stopped, for any batch may park a lane.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable

from keylane.errors import Fenced, KeylaneError, StateUnavailable, TopicChanged
from keylane_spark.context import JobContext
from keylane_spark.generations.ownership import Ownership
from keylane_spark.lanes.cluster import Cluster
from keylane_spark.lanes.lane import lanes_of
from keylane_spark.serving.carried_deletions import carry_deletions
from keylane_spark.serving.elections import Elections
from keylane_spark.serving.parking import ParkingWatch
from keylane_spark.stream.batch_query import FAILED_STOP_S, STOP_S
from keylane_spark.stream.openings import Openings
from keylane_spark.stream.topic_query import OnChange, TopicQuery
from keylane_spark.telemetry.metrics import JobMetrics
from keylane_spark.telemetry.strays import StrayTotals

_POLL_S = 0.1
_NEAR_MS = 5_000
"""A generation that is less complete than the serving one by at most this is close enough for a switch."""
_SWITCH_S = 30.0
"""How long the serving lanes may stop for a switch."""


class Serving:
    """Serves from one opening of the lanes to the next."""

    def __init__(
        self,
        context: JobContext,
        ownership: Ownership,
        openings: Openings,
        totals: StrayTotals,
        metrics: JobMetrics,
    ) -> None:
        self._context = context
        self._ownership = ownership
        self._openings = openings
        self._metrics = metrics
        self._parking = ParkingWatch(context, openings)
        self._has_carried = False
        self._delayed = ""
        # What Spark's consumers have fetched ahead is of the former leader; and where two queries read the
        # same partitions, a lineage must fit what both of them have.
        can_follow = openings.building is None and context.config.job.reader == "direct"
        elections = Elections(context, ownership, openings.serving)
        self._serving = TopicQuery(
            context,
            openings.serving,
            totals,
            metrics,
            on_change=OnChange(self._check_topics, elections.follow if can_follow else None),
        )
        self._building = (
            TopicQuery(context, openings.building, totals, metrics, building=True)
            if openings.building
            else None
        )

    def until_stopped(self, stop: threading.Event) -> None:
        """Run until `stop` or a switch, after which all lanes must be opened again.

        Raises what breaks a query: TopicChanged, Unavailable, LaneBehind, Fenced, CorruptState.
        """
        queries = [self._serving, *([self._building] if self._building else [])]
        within_s = STOP_S
        try:
            self._run(queries, stop)
        except KeylaneError:
            within_s = FAILED_STOP_S
            raise
        finally:
            for query in queries:
                query.stop(within_s)
            for query in queries:
                # A fence is raised even if another error came first: it is the cause of most of them.
                if isinstance(query.failure, Fenced):
                    raise query.failure

    def _run(self, queries: list[TopicQuery], stop: threading.Event) -> None:
        for query in queries:
            query.start()
        self._say_ready()
        while not stop.wait(_POLL_S):
            self._look(queries)
            if self._building and self._is_near(self._building):
                self._has_carried = self._has_carried or self._carry(self._building, stop)
                # It may have taken minutes.
                if self._has_carried and self._is_near(self._building):
                    self._switch(self._building, stop)
                    return

    def _look(self, queries: list[TopicQuery]) -> None:
        """Raise what has broken, and report the metrics."""
        for query in queries:
            query.check()
        self._parking.check()
        if self._metrics.is_due:
            self._serving.report_gauges()
            self._metrics.flush()

    def _carry(self, building: TopicQuery, stop: threading.Event) -> bool:
        """Carry the deletions to the next generation; returns whether that is done."""
        if self._openings.building is None:
            return True
        mixed = self._serving.strays | building.strays
        steps = carry_deletions(self._context, self._openings.serving, self._openings.building, mixed)
        try:
            with contextlib.closing(steps):
                for _ in steps:
                    self._look([self._serving, building])
                    if stop.is_set():
                        return False
        except StateUnavailable as error:
            if str(error) != self._delayed:
                self._delayed = str(error)
                self._context.say(f"the switch is delayed, deletions can't be carried yet: {error}")
            return False
        return True

    def _say_ready(self) -> None:
        opening = self._openings.serving
        self._context.say(
            f"ready: epoch {opening.writer.epoch}, {len(opening.writer.layouts)} topics, "
            f"{len(opening.positions)} partitions"
        )

    def _check_topics(self) -> None:
        """Raise TopicChanged if a topic has changed since the lanes were opened."""
        shapes = self._context.broker.describe(self._context.config.topics)
        before = self._openings.shapes
        for topic in shapes.keys() | before.keys():
            if topic not in shapes:
                raise TopicChanged(f"topic {topic!r} was deleted")
            if topic not in before:
                raise TopicChanged(f"topic {topic!r} is back")
            if shapes[topic].topic_id != before[topic].topic_id:
                raise TopicChanged(f"topic {topic!r} was deleted and created again")
            if shapes[topic] != before[topic]:
                raise TopicChanged(
                    f"topic {topic!r} has {shapes[topic].partition_count} partitions now, "
                    f"{before[topic].partition_count} before: it is joined with topics of as many alone"
                )

    def _is_near(self, building: TopicQuery) -> bool:
        """Whether it is nearly as complete as the serving one, which an open transaction holds up too."""
        complete_ms = building.complete_as_of_ms
        if self._openings.serving.parked:
            return False
        now_ms = self._context.claim_clock.now_ms()
        needed_ms = min(now_ms, self._serving.complete_as_of_ms or now_ms)
        return complete_ms > 0 and needed_ms - complete_ms < _NEAR_MS

    def _switch(self, building: TopicQuery, stop: threading.Event) -> None:
        clock, say = self._context.clock, self._context.say
        layouts = self._openings.building.writer.layouts if self._openings.building else {}
        names = ", ".join(f"{topic!r} to generation {each.generation}" for topic, each in layouts.items())
        say(f"switching topic {names}")
        while not self._serving.finish(_POLL_S):
            self._look([self._serving, building])
            if stop.is_set():
                return
        began_s = clock.monotonic_s()
        self._serving.stop()
        self._serving.raise_failure()
        self._check_parked()
        reached = {source: end for source, end in self._serving.positions.items() if source[0] in layouts}
        while not self._covers(building, reached):
            building.check()
            self._check_parked()
            if clock.monotonic_s() - began_s > _SWITCH_S:
                raise TopicChanged("the next generation does not catch up: the switch is tried again")
            if stop.wait(_POLL_S / 5):
                return
        if not building.stop():
            raise TopicChanged("the batch in progress did not end: the switch is tried again")
        building.raise_failure()
        # Its last batch may have parked lanes, and reached all positions without them.
        self._check_parked()
        self._supersede(layouts)
        for topic, layout in layouts.items():
            old = self._openings.serving.writer.layouts[topic].generation
            self._ownership.switch(topic, old, layout)
        say(f"switched topic {names}, in {(clock.monotonic_s() - began_s) * 1000:.0f} ms")

    def _check_parked(self) -> None:
        """Raise TopicChanged if a lane of either generation is parked: both share the parked slots."""
        if self._openings.serving.parked:
            raise TopicChanged("lanes have been parked: the switch is tried again")

    def _covers(self, building: TopicQuery, reached: dict[tuple[str, int], int]) -> bool:
        positions = building.positions
        return building.complete_as_of_ms > 0 and all(
            positions.get(source, 0) >= end for source, end in reached.items()
        )

    def _supersede(self, topics: Iterable[str]) -> None:
        """Mark all old lanes of these topics as superseded."""
        writer = self._openings.serving.writer
        with contextlib.closing(Cluster(writer.redis)) as cluster:
            lanes = writer.lanes(cluster, self._context.clock, self._context.say)
            for topic in topics:
                lanes.supersede(lanes_of(writer.layouts[topic]))
