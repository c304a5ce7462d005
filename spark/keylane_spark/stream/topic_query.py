"""One streaming query over the topics, from the opening of the lanes to its end.

The steps of a batch; each may be repeated at any time, for lanes skip what they have:

1. The batch's end offsets are planned: by the job (`stream.plans`), or by Spark, which logs them.
2. The rows go into their lanes, chunk by chunk; each chunk moves its lane's watermark.
3. The watermark of every stripe moves to the batch's end, with the time as of which it is complete. Where a
   leader went away meanwhile, it moves to the last record that came.
4. Spark commits the batch. Nothing depends on that: the next query begins at the watermarks.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame

from keylane.errors import Fenced
from keylane.model.kafka import TopicPartition
from keylane.model.records import TRACEPARENT
from keylane_spark.context import JobContext
from keylane_spark.engine import kafka_source, session
from keylane_spark.engine.polling import PollingDelay
from keylane_spark.engine.session import REFUSALS
from keylane_spark.engine.value_errors import is_about_a_value
from keylane_spark.lanes.cluster import Cluster
from keylane_spark.lanes.index_sizes import IndexSizes
from keylane_spark.lanes.lane import lost_strays
from keylane_spark.lanes.layout_store import TOTALS_SLOT
from keylane_spark.rows.chunks import Chunk
from keylane_spark.rows.headers import HeaderValues
from keylane_spark.stream.batch_query import STOP_S, batch_ends
from keylane_spark.stream.batch_reports import BatchReports
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.stream.driver_share import DriverShare, PlannedBatch
from keylane_spark.stream.heartbeat import Heartbeat
from keylane_spark.stream.leaders import Leaders, Observe
from keylane_spark.stream.log_ranges import DirectReader
from keylane_spark.stream.openings import Opening
from keylane_spark.stream.partition_chunks import PartitionResult
from keylane_spark.stream.plans import BatchPlanner, PlanLimits
from keylane_spark.stream.reading_query import ReadingQuery
from keylane_spark.stream.registry_watch import RegistryWatch
from keylane_spark.stream.spark_reader import SparkReader, leave_none
from keylane_spark.stream.sql_rows import SqlRows, check_sql
from keylane_spark.telemetry.metrics import JobMetrics
from keylane_spark.telemetry.strays import StrayTotals
from keylane_spark.telemetry.tally import Tally

_PARTITIONS_PER_MS = 2
"""For so many partitions an idle query looks for new records one millisecond later."""
_ASK_SPARK_S = 0.5
"""How often the JVM is asked whether the query still runs: ten times a second are a fifth of what an idle
driver computes."""
MOST_TRACES = 32
"""How many traces of its records a batch's span is linked to."""

Compare = Callable[[Mapping[TopicPartition, int], Observe], Mapping[TopicPartition, int]]


@dataclass(frozen=True, slots=True)
class OnChange:
    """What a query does about changes in Kafka.

    `check_topics`: called where anything of the topics has changed; raises TopicChanged to end the query.
    `follow`: compares lanes that hold records below these offsets with the logs of new leaders, as of
    `leaders.Follow`; without it the query ends at a change of a leader.
    """

    check_topics: Callable[[], None] = lambda: None
    follow: Compare | None = None


NO_CHANGE = OnChange()


class TopicQuery(ReadingQuery):
    """The query over all topics, with its heartbeat.

    `building`: it fills a generation that nobody reads yet.
    """

    def __init__(
        self,
        context: JobContext,
        opening: Opening,
        totals: StrayTotals,
        metrics: JobMetrics,
        *,
        building: bool = False,
        on_change: OnChange = NO_CHANGE,
    ) -> None:
        opening = check_sql(context.spark, opening)
        name = "keylane-building" if building else "keylane-query"
        super().__init__(name, "the query", context.checkpoint, opening)
        self._context = context
        self._opening = opening
        self._building = building
        self._cluster = Cluster(context.redis)
        self._index_sizes = IndexSizes(context.redis, opening.writer.layouts, context.clock)
        self._lanes = self._writer.lanes(self._cluster, context.clock, self.say, self.parked)
        self._compressors = self._writer.compressors(context.clock, self.say)
        self._reports = BatchReports(self.say, context.clock, opening.writer.layouts, is_building=building)
        self._share = DriverShare(context.config.job.small_batch_records)
        self._totals = totals
        self._metrics = metrics
        self._check_topics = on_change.check_topics
        counts = Counter(topic for topic, _ in (*opening.positions, *opening.unread))
        self._planned: Mapping[TopicPartition, int] = {}
        self._lost_strays = list(lost_strays(opening.starts))
        follow = partial(self._follow_leaders, on_change.follow) if on_change.follow else None
        self._leaders = Leaders(context, counts, opening.leader_epochs, follow)
        self._reader = self._choose_reader()
        self._heartbeat = Heartbeat(context, self._writer, self._freshness, self._leaders, self)
        self._seen_topics: object = None
        self._polling: PollingDelay | None = None
        self._ask_spark_at_s = 0.0
        self._planner: BatchPlanner | None = None
        self._registry = RegistryWatch(opening.writer.framed.judge, context.clock)
        self._stop_faulty()

    def start(self) -> None:
        """Start the query. Raises what the first heartbeat meets."""
        session.use_pool(self._context.spark, self._name)
        self._note_read_again()
        if self._context.config.job.reader == "spark":
            self._start_spark_source()
        else:
            self._start_ticking()
        self._heartbeat.start()

    def _start_ticking(self) -> None:
        context, job = self._context, self._context.config.job
        most = job.max_batch_records or session.batch_records(context.spark)
        limits = PlanLimits(most, self._idle_ms / 1000, committed=job.isolation == "read_committed")
        self._planner = BatchPlanner(self._leaders, limits, context.clock)
        self.start_reading(session.ticks(context.spark))

    @property
    def _idle_ms(self) -> int:
        """How long an idle query waits between two looks for new records."""
        return max(self._context.config.job.idle_poll_ms, len(self._positions) // _PARTITIONS_PER_MS)

    def _start_spark_source(self) -> None:
        context, job = self._context, self._context.config.job
        layouts = self._writer.layouts
        columns = [*(["topic"] if len(layouts) > 1 else []), *(["headers"] if self._reads_headers else [])]
        rows = kafka_source.stream_of(
            context.spark,
            context.broker.connection,
            self._positions,
            job,
            columns=columns,
            only_these=bool(self.unread),
        )
        query = self.start_reading(rows)
        self._polling = PollingDelay(query, self._idle_ms, context.clock, context.say)

    def check(self) -> None:
        """Raise what broke the query, if anything has; TopicChanged where what held it back is over."""
        self.raise_failure()
        if (now_s := self._context.clock.monotonic_s()) >= self._ask_spark_at_s:
            self._ask_spark_at_s = now_s + _ASK_SPARK_S
            super().check()
        if self._polling is not None:
            self._polling.relax()
        self._registry.check(list(self.held_back.values()))

    def check_topics(self) -> None:
        """Raise TopicChanged when the topics are not as they were."""
        seen = self._leaders.topics()
        if seen != self._seen_topics:
            self._check_topics()
            self._seen_topics = seen

    @property
    def _reads_headers(self) -> bool:
        """Whether the headers are read: to be stored, or for the traces in them."""
        return self._writer.stores_headers or self._context.spans is not None

    def stop(self, within_s: float = STOP_S) -> bool:
        """Stop after the batch in progress; returns whether that batch ended in time."""
        held = super().stop(within_s)
        self._heartbeat.stop()
        self._leaders.close()
        self._reader.close()
        self._cluster.close()
        self._compressors.close()
        self._index_sizes.close()
        return held

    @property
    def complete_as_of_ms(self) -> int:
        """The time as of which all lanes have been marked complete; 0: not all of them yet."""
        return self._heartbeat.complete_as_of_ms

    def report_gauges(self) -> None:
        """Set the gauges of all topics."""
        complete_ms = self.complete_as_of_ms
        claim_clock = self._context.claim_clock
        largest = claim_clock.largest_skew()
        left_out, missed = self.left_out, self._opening.missed_deletions
        for topic in self._writer.layouts:
            self._metrics.gauge(
                "topic",
                topic,
                lag=self._freshness.lag(self._positions, topic),
                age_ms=claim_clock.now_ms() - complete_ms if complete_ms else None,
                incomplete_partitions=sum(name == topic for name, _ in self._opening.incomplete),
                parked_partitions=sum(name == topic for name, _ in left_out),
                missed_deletions=sum(name == topic for name, _ in missed),
                stopped_partitions=sum(name == topic for name, _ in self.stopped),
                clock_skew_ms=largest[1] if largest else None,
            )
        for (topic, index), entries in self._index_sizes.measure().items():
            self._metrics.gauge("index", topic, index, entries=entries)

    def say(self, text: str) -> None:
        """Print a line for people."""
        self._context.say(f"building: {text}" if self._building else text)

    def abandon(self) -> None:
        """Forget what a failed batch had in flight."""
        self._lanes.abandon()

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Write one batch, in the steps of the module's docstring."""
        ends = self._plan(batch_id)
        if ends is None:
            return
        began_s, began_ms = self._context.clock.monotonic_s(), self._context.clock.now_ms()
        planned = PlannedBatch(rows, self.ranges_to(ends))
        self._planned = {each: covered.end for each, covered in planned.ranges.items()}
        self._wait_for_leaders()
        self.note_work(partial(planned.named, self._writer.transforms))
        batch, traces = self._write_rows(planned)
        tallies = batch.tallies
        self._share.note(tallies)
        self.strays |= {topic for (topic, _), tally in tallies.items() if tally.strays}
        # Tasks move watermarks to their last rows; only here it is known that all rows are written.
        batch.finish(planned.moved)
        self.reach(batch.covered, batch.results)
        self._note_read_again()
        if self._planner is not None:
            self._planner.note_batch(planned.moved, batch.left)
        self._totals.add(self._writer.layouts, tallies, later=TOTALS_SLOT in self.parked)
        self._metrics.count_batch(tallies)
        took_s, lag = self._context.clock.monotonic_s() - began_s, self._freshness.lag(self._positions)
        self._reports.report(batch_id, batch, took_s, lag)
        if traces is not None and self._context.spans is not None:
            self._context.spans.report(began_ms, self._context.clock.now_ms(), tallies, traces.found)

    def _note_read_again(self) -> None:
        """Note in lanes that had lost strays that they have again what the log still has of these.

        Readers wait for that, and the next opening would read the partition again: its last strays may have
        been removed from the log since.
        """
        left = []
        for lost in self._lost_strays:
            if self._positions.get((lost.lane.topic, lost.source_partition), 0) < lost.end:
                left.append(lost)
            else:
                self._lanes.put_strays(lost.lane, Chunk.empty(lost.end), lost.source_partition)
        if len(left) < len(self._lost_strays):
            self._lanes.flush()
        self._lost_strays = left

    def _plan(self, batch_id: int) -> Mapping[TopicPartition, int] | None:
        """The batch's end offsets, as soon as there is one; None where the query ends."""
        if self._planner is not None:
            return self._planner.wait(lambda: self._positions, lambda: self.no_further, self.is_ending)
        if self._polling is not None:
            self._polling.note_batch()
        return batch_ends(self._checkpoint, batch_id)

    def _wait_for_leaders(self) -> None:
        """Return once no row of the batch can come from a leader that the lanes are not compared with.

        A comparison that began before the batch was planned does not know how far its lanes will be.
        """
        if self._planner is not None:
            self._leaders.settle(self._planned)  # each range is read from a leader of a named epoch
        else:
            self._leaders.wait(self._planned, self.is_ending)

    def _write_rows(self, planned: PlannedBatch) -> tuple[BatchWriter, HeaderValues | None]:
        """Read and write the rows."""
        writer = self._writer
        steps = writer.framed, writer.transforms, self._compressors
        batch = BatchWriter(self._lanes, writer.layouts, planned.ranges, *steps)
        traces = HeaderValues(TRACEPARENT, MOST_TRACES) if self._context.spans is not None else None
        if not self._write_here(planned, batch, traces):
            self._write_in_tasks(planned, batch)
        return batch, traces

    def _follow_leaders(
        self, compare: Compare, partitions: Collection[TopicPartition], observe: Observe
    ) -> Mapping[TopicPartition, int]:
        """See `leaders.Follow`. Lanes may hold what was read before, or is read by the batch in progress."""
        positions, planned, before = self.positions, self._planned, self._opening.held
        held = {
            each: max(offsets.get(each, 0) for offsets in (positions, planned, before)) for each in partitions
        }
        followed = compare(held, observe)
        self.say(f"{len(followed)} partitions have new leaders: their logs have all that the lanes hold")
        return followed

    def _choose_reader(self) -> DirectReader | SparkReader:
        if self._context.config.job.reader == "spark":
            return SparkReader(self._context, self._writer, self._share, self._direct_reader)
        return self._direct_reader()

    def _direct_reader(self) -> DirectReader:
        from keylane_spark.stream.log_ranges import DirectReader  # noqa: PLC0415 (brings kafka-python)

        return DirectReader.of(
            self._context, self._opening, self._leaders.epochs, reads_headers=self._reads_headers
        )

    def _write_here(self, planned: PlannedBatch, batch: BatchWriter, traces: HeaderValues | None) -> bool:
        """Read and write a small batch in this process; False where tasks should."""
        is_small = self._share.is_small(planned.size)
        found = self._reader.read_here(planned, batch.leave) if is_small else None
        if found is None:
            return False
        if self._writer.sql:
            found = SqlRows(self._context.spark, self._writer.sql).evaluated(found)
        with contextlib.closing(found):
            for source, rows in found:
                if traces is not None:
                    traces.add(rows.headers)
                batch.write(source, rows)
        return True

    def _write_in_tasks(self, planned: PlannedBatch, batch: BatchWriter) -> None:
        try:
            rows = self._reader.write_in_tasks(planned, self.parked.reasons)
        except REFUSALS as error:
            if not (self._writer.sql and is_about_a_value(error)):
                raise
            self._write_after_failure(planned, batch)
            return
        for topic, partition, newer_epoch, held_back, stopped_at, why, parked, left, reached, *counts in rows:
            if newer_epoch:
                raise Fenced(f"{topic}/{partition}", self._writer.epoch, newer_epoch)
            result = PartitionResult(Tally(*counts), reached, held_back, stopped_at, why)
            batch.note_written((topic, partition), reached, result)
            if left:
                batch.leave((topic, partition), left)
            for reason, slots in json.loads(parked).items():
                self.parked.park(slots, reason)

    def _write_after_failure(self, planned: PlannedBatch, batch: BatchWriter) -> None:
        """As a task's next attempt, here: where the rows on which Spark fails are found."""
        leave = batch.leave if self._planner is not None else leave_none
        with contextlib.closing(self._direct_reader()) as direct:
            found = direct.read_here(planned, leave)
            for source, rows in SqlRows(self._context.spark, self._writer.sql).evaluated(found):
                batch.write(source, rows)

    def _stop_faulty(self) -> None:
        """Stop the partitions of topics whose transform can't run at all."""
        faults = {topic: each.fault for topic, each in self._writer.transforms.items() if each.fault}
        self._reports.report_faults(faults)
        self.stopped |= {source: at for source, at in self._positions.items() if source[0] in faults}
