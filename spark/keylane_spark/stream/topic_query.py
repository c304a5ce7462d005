"""One streaming query over the topics, from the opening of the lanes to its end.

The steps of a batch; each may be repeated at any time, for lanes skip what they have:

1. Spark writes the batch's end offsets into its offset log.
2. The rows go into their lanes, chunk by chunk; each chunk moves its lane's watermark.
3. The watermark of every stripe moves to the batch's end, with the time as of which it is complete.
4. Spark commits the batch. Nothing depends on that: the next query begins at the watermarks.

Where a shard takes no writes, its lanes are parked: Spark reads on, and their rows are skipped until all
lanes are opened again. The position of a partition stays where it is from the batch on that

- could not be written into any of its lanes, or
- has a stray for a parked lane: the partition is held back.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import Fenced, TopicChanged
from keylane_spark.adapters.lane import LaneTarget, OffsetRange
from keylane_spark.adapters.layout_store import TOTALS_SLOT
from keylane_spark.engine import session
from keylane_spark.engine.polling import PollingDelay
from keylane_spark.stream.batch_query import STOP_S, BatchQuery
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.stream.driver_share import DriverShare
from keylane_spark.stream.freshness import ObservedEnds
from keylane_spark.stream.heartbeat import Heartbeat
from keylane_spark.stream.leaders import Leaders
from keylane_spark.stream.offset_log import batch_ends
from keylane_spark.stream.tasks import TALLY_SCHEMA, PartitionWriter
from keylane_spark.stream.traced_rows import TracedRows
from keylane_spark.telemetry.partitioner_audit import PartitionerAudit
from keylane_spark.telemetry.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.context import JobContext
    from keylane_spark.stream.batch_writer import RowWriter
    from keylane_spark.stream.log_ranges import RangePlan
    from keylane_spark.stream.openings import Opening
    from keylane_spark.telemetry.metrics import JobMetrics
    from keylane_spark.telemetry.stray_totals import StrayTotals

_BUILDING_BATCH_RECORDS = 200_000


class TopicQuery(BatchQuery):
    """The query over all topics, with its heartbeat.

    `building`: it fills a generation that nobody reads yet, in smaller batches, so that the query that serves
    stays fresh meanwhile. `check_topics` is called by the heartbeat at each beat.
    """

    def __init__(
        self,
        context: JobContext,
        opening: Opening,
        totals: StrayTotals,
        metrics: JobMetrics,
        *,
        building: bool = False,
        check_topics: Callable[[], None] = lambda: None,
    ) -> None:
        name = "keylane-building" if building else "keylane-query"
        super().__init__(name, "the query", context.checkpoint)
        self._context = context
        self._opening = opening
        self._writer = opening.writer
        self._building = building
        self._positions: dict[TopicPartition, int] = dict(opening.positions)
        self._freshness = ObservedEnds()
        self._cluster = Cluster(context.redis)
        self.parked = opening.parked
        self.unread = opening.unread
        self._held_back: set[TopicPartition] = set()
        self._lanes = self._writer.lanes(self._cluster, context.clock, self.say, self.parked)
        self._reported_null_keys: set[str] = set()
        self._audit = PartitionerAudit(opening.writer.layouts)
        self._share = DriverShare(context.config.job.small_batch_records)
        self._direct = self._plan_direct_reads() if context.config.job.reader == "direct" else None
        self._totals = totals
        self._metrics = metrics
        self.check_topics = check_topics
        self.strays = set(opening.strays)
        self.lacking = set(opening.lacking)
        counts = Counter(topic for topic, _ in (*opening.positions, *opening.unread))
        self._leaders = Leaders(context, counts, opening.leader_epochs)
        self._heartbeat = Heartbeat(context, self._writer, self._freshness, self._leaders, self)
        self._polling: PollingDelay | None = None

    def start(self) -> None:
        """Start the query. Raises what the first heartbeat meets."""
        context, job = self._context, self._context.config.job
        if self._building:
            smaller = min(job.max_batch_records, _BUILDING_BATCH_RECORDS)
            job = job.model_copy(update={"max_batch_records": smaller})
        layouts = self._writer.layouts
        columns = [*(["topic"] if len(layouts) > 1 else []), *(["headers"] if self._reads_headers else [])]
        rows = session.source(
            context.spark,
            context.broker.connection,
            self._positions,
            job,
            columns=columns,
            only_these=bool(self.unread),
        )
        query = self.start_reading(rows)
        self._polling = PollingDelay(query, job.idle_poll_ms, context.clock)
        self._heartbeat.start()

    def check(self) -> None:
        """Raise what broke the query, if anything has."""
        super().check()
        if self._polling is not None:
            self._polling.relax()

    @property
    def _headers(self) -> bool:
        return any(layout.options.headers for layout in self._writer.layouts.values())

    @property
    def _reads_headers(self) -> bool:
        """Whether the headers are read: to be stored, or for the traces in them."""
        return self._headers or self._context.spans is not None

    def stop(self, within_s: float = STOP_S) -> bool:
        """Stop after the batch in progress; returns whether that batch ended in time."""
        held = super().stop(within_s)
        self._heartbeat.stop()
        if self._direct is not None:
            self._direct.close()
        self._cluster.close()
        return held

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition; everything below it is in the lanes."""
        return self._positions.copy()

    @property
    def stuck(self) -> set[TopicPartition]:
        """Partitions that go no further: those held back, and those whose lanes are all parked."""
        if not self.parked:
            return set()
        return self._held_back | {source for source in self._positions if self._count_parked(source, all)}

    def _count_parked(self, source: TopicPartition, which: Callable[[Iterable[bool]], bool]) -> bool:
        """Whether `which` (all, any) of the partition's lanes are parked."""
        topic, partition = source
        lanes = LaneTarget.of_partition(self._writer.layouts[topic], partition)
        return which(lane.slot in self.parked for lane in lanes)

    @property
    def left_out(self) -> set[TopicPartition]:
        """Partitions of which any lane is parked, and those held back: their lanes are behind."""
        if not self.parked:
            return set()
        parked = {source for source in self._positions if self._count_parked(source, any)}
        return parked | self._held_back | self.unread

    @property
    def complete_as_of_ms(self) -> int:
        """The time as of which all lanes have been marked complete; 0: not all of them yet."""
        return self._heartbeat.complete_as_of_ms

    def report_gauges(self) -> None:
        """Set the gauges of all topics."""
        complete_ms = self.complete_as_of_ms
        claim_clock = self._context.claim_clock
        largest = claim_clock.largest_skew()
        left_out = self.left_out
        for topic in self._writer.layouts:
            self._metrics.gauge(
                topic,
                lag=self._freshness.lag(self._positions, topic),
                age_ms=claim_clock.now_ms() - complete_ms if complete_ms else None,
                incomplete=sum(name == topic for name, _ in self._opening.incomplete),
                skew_ms=largest[1] if largest else None,
                parked=sum(name == topic for name, _ in left_out),
            )

    def say(self, text: str) -> None:
        """Print a line for people."""
        self._context.say(f"building: {text}" if self._building else text)

    def abandon(self) -> None:
        """Forget what a failed batch had in flight."""
        self._lanes.abandon()

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Write one batch, in the steps of the module's docstring."""
        began_s, began_ms = self._context.clock.monotonic_s(), self._context.clock.now_ms()
        if self._polling is not None:
            self._polling.note_batch()
        ranges = self._ranges_of(batch_id)
        self._leaders.wait({each: covered.end for each, covered in ranges.items()}, self.is_ending)
        moved = {partition for partition, covered in ranges.items() if covered.end > covered.begin}
        batch = BatchWriter(self._lanes, self._writer.layouts, ranges)
        traced = self._traced(batch)
        if not self._write_here(rows, traced or batch, batch.ranges, sorted(moved)):
            if traced is not None and not self._headers:
                rows = rows.drop("headers")  # they were for the traces of small batches
            self._write_in_tasks(rows, batch, sorted(moved))
        self._share.note(batch.tallies)
        self.strays |= {topic for (topic, _), tally in batch.tallies.items() if tally.strays}
        # Tasks move watermarks to their last rows; only here it is known that all rows are written.
        batch.finish(sorted(moved))
        self._hold_back(batch.held_back)
        stuck = self.stuck
        for partition, covered in ranges.items():
            if partition not in stuck:
                self._positions[partition] = covered.end
        self._freshness.reached(self._positions)
        self._totals.add(self._writer.layouts, batch.tallies, later=TOTALS_SLOT in self.parked)
        self._metrics.count_batch(batch.tallies)
        self._report(batch_id, batch.tallies, self._context.clock.monotonic_s() - began_s)
        if traced is not None and self._context.spans is not None:
            self._context.spans.report(began_ms, self._context.clock.now_ms(), batch.tallies, traced.traces)

    def _traced(self, batch: BatchWriter) -> TracedRows | None:
        """What finds the traces of the rows on their way to the writer; None if no spans are exported."""
        return TracedRows(batch, keeps_headers=self._headers) if self._context.spans is not None else None

    def _ranges_of(self, batch_id: int) -> dict[TopicPartition, OffsetRange]:
        """What the batch covers of each partition. Raises TopicChanged for partitions that are new."""
        ends = batch_ends(self._checkpoint, batch_id)
        new = sorted(ends.keys() - self._positions.keys())
        if new:
            raise TopicChanged(f"there are new partitions: {new}")
        ranges, stuck = {}, self.stuck
        for partition, begin in self._positions.items():
            if partition in stuck:
                continue
            # Lanes of a topic with strays are marked by the heartbeat, once all partitions are written.
            is_alone = partition[0] not in self.strays and partition not in self.lacking
            complete_ms = self._freshness.complete_as_of_ms(partition, ends[partition]) if is_alone else 0
            log_end = self._freshness.end(partition)
            ranges[partition] = OffsetRange(begin, ends[partition], complete_ms, log_end)
        return ranges

    def _plan_direct_reads(self) -> RangePlan:
        from keylane_spark.stream.log_ranges import RangePlan  # noqa: PLC0415 (brings kafka-python)

        return RangePlan.of(self._context, self._opening, self._headers)

    def _write_here(
        self,
        rows: DataFrame,
        writer: RowWriter,
        ranges: Mapping[TopicPartition, OffsetRange],
        moved: Sequence[TopicPartition],
    ) -> bool:
        """Read and write a small batch in this process; False where tasks should."""
        count = sum(ranges[partition].end - ranges[partition].begin for partition in moved)
        if self._direct is not None:
            if not self._share.is_small(count):
                return False
            self._direct.write_here(writer, ranges, moved, with_headers=self._reads_headers)
            return True
        # A task costs more than its rows here: no more tasks than run at once.
        table = self._share.take(rows, count, self._context.spark.sparkContext.defaultParallelism)
        if table is not None:
            writer.write(table)
        return table is not None

    def _write_in_tasks(self, rows: DataFrame, batch: BatchWriter, moved: Sequence[TopicPartition]) -> None:
        parked_before = self.parked.reasons
        if self._direct is not None:
            spark, writer = rows.sparkSession, self._writer
            found = self._direct.write_in_tasks(spark, writer, batch.ranges, moved, parked_before)
        else:
            write = PartitionWriter(self._writer, batch.ranges, parked_before)
            found = rows.mapInArrow(write, TALLY_SCHEMA).collect()
        for topic, partition, newer_epoch, held_back, parked, reached, *counts in found:
            if newer_epoch:
                raise Fenced(f"{topic}/{partition}", self._writer.epoch, newer_epoch)
            batch.tallies[topic, partition] = Tally(*counts)
            batch.note_reached((topic, partition), reached)
            for why, slots in json.loads(parked).items():
                self.parked.park(slots, why)
            if held_back:
                batch.held_back[topic, partition] = held_back

    def _hold_back(self, partitions: Mapping[TopicPartition, str]) -> None:
        """Skip these partitions from now on."""
        for (topic, partition), lane in partitions.items():
            self.say(
                f"holds partition {partition} of topic {topic!r} back: it has a stray for lane {lane}, "
                f"which is parked"
            )
        self._held_back |= partitions.keys()

    def _report(self, batch_id: int, tallies: dict[TopicPartition, Tally], took_s: float) -> None:
        for (topic, _), tally in tallies.items():
            if tally.null_keys and topic not in self._reported_null_keys:
                self._reported_null_keys.add(topic)
                self.say(
                    f"topic {topic!r} has records without a key: they can't be looked up, and are skipped"
                )
        records = sum(tally.records for tally in tallies.values())
        skipped = sum(tally.null_keys for tally in tallies.values())
        strays = sum(tally.strays for tally in tallies.values())
        left = sum(tally.left_in_kafka for tally in tallies.values())
        for sentence in self._audit.add(tallies):
            self.say(sentence)
        self.say(
            f"batch {batch_id}: {records:,} records, {records / max(took_s, 1e-3):,.0f}/s, "
            f"{took_s * 1000:.0f} ms, lag {self._freshness.lag(self._positions):,}"
            + (f", {skipped:,} without a key skipped" if skipped else "")
            + (f", {strays:,} strays" if strays else "")
            + (f", {left:,} values left in Kafka" if left else "")
        )
