"""One streaming query of a view, from one opening of its lanes to its end."""

from collections.abc import Callable, Collection
from dataclasses import asdict

from pyspark.sql import DataFrame

from keylane.errors import TopicChanged, WriterError
from keylane.model.kafka import TopicPartition
from keylane_spark.context import JobContext
from keylane_spark.engine import kafka_source
from keylane_spark.engine.record_sql import why_no_condition
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.stream.batch_query import STOP_S, BatchQuery, batch_ends
from keylane_spark.stream.freshness import ObservedEnds, topic_complete_as_of_ms
from keylane_spark.stream.leaders import Leaders
from keylane_spark.views.closings import Offsets, Stretch
from keylane_spark.views.open_view import ViewOpening
from keylane_spark.views.sources import GapCheck, RowSource
from keylane_spark.views.values import LogRows, SparkRows
from keylane_spark.views.view_writer import FoldCounts

EVERY = "1 second"
"""How often new records are read: a batch costs a shuffle, however small it is."""
BATCH_RECORDS = 50_000
"""Small batches, so that a view that catches up does not slow the topics' queries."""
_SLOTS_SHARE = 4
"""A view uses one in four of Spark's task slots."""


class ViewQuery(BatchQuery):
    """The query of one view; the thread that starts and stops it also beats."""

    def __init__(self, context: JobContext, opening: ViewOpening) -> None:
        name = opening.name
        super().__init__(f"keylane-view-{name}", f"the query of view {name!r}", context.checkpoint)
        self._context = context
        self._opening = opening
        self._topic = opening.view.topic
        max_records = max(1, BATCH_RECORDS // opening.view.windows_per_event)
        self._job = context.config.job.model_copy(update={"max_batch_records": max_records})
        self._positions: Offsets = opening.writer.furthest
        self._leaders = Leaders(context, {self._topic: len(self._positions)}, opening.leader_epochs)
        self._freshness = ObservedEnds()
        self._is_compacted: bool | None = False
        self._gaps: set[int] = set()
        self.complete_as_of_ms = 0
        """The time as of which all lanes have been marked complete; 0: not yet."""

    def start(self) -> None:
        """Bring all lanes to the offsets of the furthest one, then start the query."""
        context, writer = self._context, self._opening.writer
        if reason := why_no_condition(context.spark, self._opening.view.where):
            raise WriterError(f"view {self._opening.name!r}: {reason}")
        self._is_compacted = context.broker.is_compacted(self._topic)
        if self._is_compacted is None and not self._opening.view.has_rows:
            self.say(
                f"Kafka refuses to say whether topic {self._topic!r} is compacted: if it is, "
                "records that were removed are not counted, and lanes are not marked incomplete"
            )
        writer.share_closings()
        for offsets, lanes in writer.behind.items():
            self.say(f"{len(lanes)} of the lanes are behind the others: they catch up first")
            source = self._source(lanes, self._read_log)
            self._report(writer.fold(source, offsets, self._positions, lanes), 0)
        positions = self._by_partition(self._positions)
        rows = kafka_source.stream_of(context.spark, context.broker.connection, positions, self._job)
        writer.report_stop("")
        self._compare_clocks()
        self.start_reading(rows, EVERY)

    def _compare_clocks(self) -> None:
        """Compare the driver's clock with Redis'; no batch may be in progress."""
        slots = {lane.slot for lane in self._opening.lanes.lanes}
        self._context.claim_clock.compare(self._opening.cluster, slots)

    def beat(self) -> None:
        """Mark the lanes as complete as of now, or as of the latest time that the topic's ends prove.

        Raises TopicChanged, Fenced, LaneBehind, LogUnavailable, StateUnavailable.
        """
        before, seen_ms = self._by_partition(self._positions), self._context.claim_clock.now_ms()
        ends = self._leaders.end_offsets()
        self._freshness.observe(seen_ms, ends, before)
        if not self._batch_lock.acquire(blocking=False):
            return
        try:
            if not self._is_over:
                self._mark_complete(self._caught_up(ends, self._positions))
                self._compare_clocks()
        finally:
            self._batch_lock.release()

    def _mark_complete(self, caught_up: set[int]) -> None:
        """A window has records of any partition, so it is only as complete as the least complete one."""
        positions = self._by_partition(self._positions)
        complete_ms = topic_complete_as_of_ms(self._freshness, positions, [self._topic])[self._topic]
        self._freshness.reached(positions)
        if complete_ms > self.complete_as_of_ms:
            self._opening.writer.mark_complete(complete_ms, caught_up)
            self.complete_as_of_ms = complete_ms

    def report_gauges(self) -> None:
        """Set the view's gauges."""
        complete_ms = self.complete_as_of_ms
        self._context.metrics.gauge(
            "view",
            self._opening.name,
            lag=self._freshness.lag(self._by_partition(self._positions)),
            age_ms=self._context.claim_clock.now_ms() - complete_ms if complete_ms else None,
            incomplete_partitions=len(self._gaps.union(self._opening.incomplete)),
            stopped=0,
        )

    def stop(self, within_s: float = STOP_S) -> bool:
        """Stop after the batch in progress; returns whether that batch ended in time."""
        held = super().stop(within_s)
        self._leaders.close()
        self._opening.cluster.close()
        self._opening.lanes.close()
        return held

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Fold one batch into the view's lanes."""
        clock = self._context.clock
        began_s = clock.monotonic_s()
        ends = batch_ends(self._checkpoint, batch_id)
        if len(ends) != len(self._positions):
            raise TopicChanged(f"topic {self._topic!r} has {len(ends)} partitions now")
        end = tuple(ends[self._topic, partition] for partition in range(len(ends)))
        caught_up = self._caught_up(self._leaders.wait(ends, self.is_ending), end)
        self.note_work()
        count = sum(end) - sum(self._positions)
        begin, writer = self._positions, self._opening.writer

        def rows_of(stretch: Stretch) -> LogRows:
            # A part of the batch is read without the others.
            if (stretch.begin, stretch.end) == (begin, end):
                return SparkRows(self._in_few_tasks(rows))
            return self._read_log(stretch)

        counts = writer.fold(self._source(self._opening.lanes.lanes, rows_of), begin, end)
        writer.close_windows(caught_up)
        self._positions = end
        self._report(counts, count, f" in {(clock.monotonic_s() - began_s) * 1000:.0f} ms")

    def _source(self, lanes: Collection[LaneTarget], rows_of: Callable[[Stretch], LogRows]) -> RowSource:
        """`rows_of`: reads a stretch by Spark's source, unless the job reads itself."""
        view, gaps, registry = self._opening.view, self._gap_check(lanes), self._context.registry
        if self._job.reader == "direct":
            return RowSource(view, gaps, self._read_ranges, registry=registry)
        return RowSource(view, gaps, rows_of, self._read_ranges, registry)

    def _gap_check(self, lanes: Collection[LaneTarget]) -> GapCheck | None:
        # Of a table compaction removes what later changes have replaced.
        if not self._is_compacted or self._opening.view.has_rows:
            return None
        return GapCheck(self._opening.lanes, lanes, self._gaps, self.say)

    def _read_log(self, stretch: Stretch) -> SparkRows:
        context = self._context
        begins, ends = self._by_partition(stretch.begin), self._by_partition(stretch.end)
        self._leaders.wait(ends, self.is_ending)
        rows = kafka_source.read_range(context.spark, context.broker.connection, begins, ends, self._job)
        return SparkRows(self._in_few_tasks(rows))

    def _read_ranges(self, stretch: Stretch) -> LogRows:
        # These bring kafka-python.
        from keylane_spark.log.fetches import PlannedRange  # noqa: PLC0415
        from keylane_spark.stream.log_ranges import LogStretch  # noqa: PLC0415

        context, epochs, topic_id = self._context, self._leaders.epochs, self._opening.shape.topic_id
        planned = [
            PlannedRange(self._topic, number, begin, end, epochs.get((self._topic, number)), topic_id)
            for number, (begin, end) in enumerate(zip(stretch.begin, stretch.end, strict=True))
            if begin < end
        ]
        committed = self._job.isolation == "read_committed"
        connection = context.broker.connection
        return LogStretch.of(
            context.spark, connection, planned, committed=committed, most_tasks=self._task_count
        )

    @property
    def _task_count(self) -> int:
        """Fewer tasks than there are task slots."""
        return max(1, self._context.spark.sparkContext.defaultParallelism // _SLOTS_SHARE)

    def _in_few_tasks(self, rows: DataFrame) -> DataFrame:
        return rows.coalesce(self._task_count)

    def _caught_up(self, ends: dict[TopicPartition, int], positions: Offsets) -> set[int]:
        return {p for p, position in enumerate(positions) if position >= ends[self._topic, p]}

    def _by_partition(self, offsets: Offsets) -> dict[TopicPartition, int]:
        return {(self._topic, partition): offset for partition, offset in enumerate(offsets)}

    def _report(self, counts: FoldCounts, records: int, took: str = "") -> None:
        self._context.metrics.count("view", self._opening.name, batches=1, records=records, **asdict(counts))
        self.say(
            f"{records:,} records, {counts.windows:,} windows{took}"
            + (f", {counts.late:,} late" if counts.late else "")
            + (f", {counts.invalid:,} without key or time skipped" if counts.invalid else "")
            + (f", {counts.failed:,} on which the view's expressions failed skipped" if counts.failed else "")
        )

    def say(self, text: str) -> None:
        """Print a line for people."""
        self._context.say(f"view {self._opening.name!r}: {text}")
