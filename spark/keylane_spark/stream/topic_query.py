"""One streaming query, from one opening of the lanes to its end.

Order of a batch (each step may be repeated at any time, the lanes skip what they have):

1. Spark writes the batch's end offsets into its offset log.
2. The rows go into their lanes, chunk by chunk; each chunk moves its lane's watermark.
3. Every stripe's watermark moves to the batch's end, with the time as of which it is known complete.
4. Spark commits the batch. Nothing depends on it: the next query begins at the watermarks.
"""

from __future__ import annotations

import shutil
import threading
import traceback
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from keylane.adapters.redis.cluster import Cluster
from keylane.errors import Fenced, KeylaneError, TopicChanged, Unavailable
from keylane_spark.engine import session
from keylane_spark.stream.batch_writer import BatchWriter, Span
from keylane_spark.stream.driver_share import DriverShare
from keylane_spark.stream.freshness import Freshness
from keylane_spark.stream.heartbeat import Heartbeat
from keylane_spark.stream.offset_log import batch_ends
from keylane_spark.stream.tasks import TALLY_SCHEMA, partition_writer
from keylane_spark.telemetry.partitioner_audit import Audit
from keylane_spark.telemetry.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.context import Parts
    from keylane_spark.stream.openings import Opening
    from keylane_spark.telemetry.metrics import Meter
    from keylane_spark.telemetry.stray_totals import StrayTotals

_BATCH_PATIENCE_S = 20.0


_BUILDING_BATCH_RECORDS = 200_000


class Query:
    """Runs in Spark's thread (`_write_batch`), the heartbeat's, and the one that starts and stops it.

    `building`: it fills a generation that nobody reads yet, in smaller batches, so that the one that serves
    stays fresh beside it.
    """

    def __init__(
        self,
        parts: Parts,
        opening: Opening,
        totals: StrayTotals,
        meter: Meter,
        *,
        building: bool = False,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._parts = parts
        self._opening = opening
        self._writer = opening.writer
        self._name = "keylane-building" if building else "keylane-query"
        self._building = building
        self._positions: dict[TopicPartition, int] = dict(opening.positions)
        self._strays = set(opening.strays)
        self._checkpoint = parts.checkpoint.absolute() / self._name
        self._freshness = Freshness()
        self._cluster = Cluster(parts.redis)
        self._lanes = self._writer.lanes(self._cluster, parts.clock, self._say)
        self._batch_lock = threading.Lock()
        self._is_over = False
        self._failure: KeylaneError | None = None
        self._told_null_keys: set[str] = set()
        self._audit = Audit(opening.writer.layouts)
        self._share = DriverShare(parts.config.job.small_batch_records)
        self._totals = totals
        self._meter = meter
        self._query: StreamingQuery | None = None
        self._heartbeat = Heartbeat(
            writer=self._writer,
            broker=parts.broker,
            clock=parts.clock,
            freshness=self._freshness,
            positions=self._positions.copy,
            strays=self._strays,
            look=look,
            interval_s=parts.config.job.heartbeat_ms / 1000,
            failed=self._fail,
            notify=self._say,
        )

    def start(self) -> None:
        """Begin. Raises what the first heartbeat meets."""
        parts, job = self._parts, self._parts.config.job
        if self._building:
            smaller = min(job.max_batch_records, _BUILDING_BATCH_RECORDS)
            job = job.model_copy(update={"max_batch_records": smaller})
        # The offset log of this very query is all that is read of it, see batch_ends. The folder is ours
        # by its name: the one that the environment names may hold other things.
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        headers = any(layout.options.headers for layout in self._writer.layouts.values())
        self._query = (
            session.source(parts.spark, parts.broker.connection, self._positions, job, headers=headers)
            .writeStream.foreachBatch(self._write_batch)
            .option("checkpointLocation", self._checkpoint.as_uri())
            .queryName(self._name)
            .start()
        )
        self._heartbeat.start()

    def stop(self) -> bool:
        """Stop, after the batch under way; whether that came to its end."""
        # Stopping a query interrupts its thread: between batches that is no harm at all.
        held = self._batch_lock.acquire(timeout=_BATCH_PATIENCE_S)
        self._is_over = True
        if held:
            # Not kept while the query stops: that waits for a batch that has just begun, which finds it over.
            self._batch_lock.release()
        if self._query is not None:
            try:
                self._query.stop()
            except Py4JError as error:
                # It did not end in time: what it still writes is of an old epoch, or what the lanes have.
                self._say(f"the query did not stop: {type(error).__name__}")
        self._heartbeat.stop()
        self._cluster.close()
        return held

    def check(self) -> None:
        """Raise what broke the query, if anything has."""
        self.raise_failure()
        if self._query is not None and not self._query.isActive:
            broken = self._query.exception()
            reason = str(broken).strip().partition("\n")[0] if broken else "it ended by itself"
            raise Unavailable(f"the query broke: {reason}")

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition; all below it is in the lanes."""
        return self._positions.copy()

    @property
    def failure(self) -> KeylaneError | None:
        """What has gone wrong in a batch or a heartbeat, if anything."""
        return self._failure

    def raise_failure(self) -> None:
        """Raise what has gone wrong in a batch or a heartbeat, if anything; of use after `stop` too."""
        if self._failure is not None:
            raise self._failure

    @property
    def whole_as_of_ms(self) -> int:
        """As of when all lanes have been told that they are complete; 0: not all of them yet."""
        return self._heartbeat.told_as_of_ms

    def gauge(self) -> None:
        """Tell the meter how things stand."""
        for topic in self._writer.layouts:
            self._meter.gauge(
                topic,
                lag=self._freshness.lag(self._positions, topic),
                age_ms=self._parts.clock.now_ms() - self.whole_as_of_ms if self.whole_as_of_ms else None,
                incomplete=sum(name == topic for name, _ in self._opening.incomplete),
            )

    def _say(self, text: str) -> None:
        self._parts.say(f"building: {text}" if self._building else text)

    def _fail(self, error: KeylaneError) -> None:
        self._failure = self._failure or error

    def _write_batch(self, rows: DataFrame, batch_id: int) -> None:
        with self._batch_lock:
            if self._is_over:
                return
            try:
                self._write(rows, batch_id)
            except KeylaneError as error:
                self._lanes.abandon()
                self._fail(error)
                raise
            except Exception:
                self._lanes.abandon()
                self._say(f"batch {batch_id} failed\n{traceback.format_exc()}")
                raise

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        began_s = self._parts.clock.monotonic_s()
        ends = batch_ends(self._checkpoint, batch_id)
        new = sorted(ends.keys() - self._positions.keys())
        if new:
            raise TopicChanged(f"there are new partitions: {new}")
        spans = {}
        for place, begin in self._positions.items():
            # Of a topic with strays the heartbeat tells: once all is written, and nothing was lost.
            complete_ms = self._freshness.complete_as_of_ms(place, ends[place])
            complete_ms = 0 if place[0] in self._strays else complete_ms
            spans[place] = Span(begin, ends[place], complete_ms, self._freshness.end(place))
        moved = {place for place, span in spans.items() if span.end > span.begin}
        batch = BatchWriter(self._lanes, self._writer.layouts, spans)
        count = sum(spans[place].end - spans[place].begin for place in moved)
        # A task costs more than its rows here: no more of them than run at once.
        table = self._share.take(rows, count, self._parts.spark.sparkContext.defaultParallelism)
        if table is not None:
            batch.write(table)
        else:
            self._write_in_tasks(rows, batch)
            moved -= batch.tallies.keys()
        self._share.note(batch.tallies)
        self._strays |= {topic for (topic, _), tally in batch.tallies.items() if tally.strays}
        # A task finishes its own partition; the others, without a row maybe, are finished here.
        batch.finish(sorted(moved))
        for place, span in spans.items():
            self._positions[place] = span.end
        self._freshness.reached(self._positions)
        self._totals.add(self._writer.layouts, batch.tallies)
        self._meter.batch(batch.tallies)
        self._report(batch_id, batch.tallies, self._parts.clock.monotonic_s() - began_s)

    def _write_in_tasks(self, rows: DataFrame, batch: BatchWriter) -> None:
        write = partition_writer(self._writer, batch.spans)
        for topic, partition, newer_epoch, *counts in rows.mapInArrow(write, TALLY_SCHEMA).collect():
            if newer_epoch:
                raise Fenced(f"{topic}/{partition}", self._writer.epoch, newer_epoch)
            batch.tallies[topic, partition] = Tally(*counts)

    def _report(self, batch_id: int, tallies: dict[TopicPartition, Tally], took_s: float) -> None:
        for (topic, _), tally in tallies.items():
            if tally.null_keys and topic not in self._told_null_keys:
                self._told_null_keys.add(topic)
                self._say(f"topic {topic!r} has records without a key: they have no home, and are skipped")
        records = sum(tally.records for tally in tallies.values())
        skipped = sum(tally.null_keys for tally in tallies.values())
        strays = sum(tally.strays for tally in tallies.values())
        left = sum(tally.left_in_kafka for tally in tallies.values())
        for sentence in self._audit.add(tallies):
            self._say(sentence)
        self._say(
            f"batch {batch_id}: {records:,} records, {records / max(took_s, 1e-3):,.0f}/s, "
            f"{took_s * 1000:.0f} ms, lag {self._freshness.lag(self._positions):,}"
            + (f", {skipped:,} without a key skipped" if skipped else "")
            + (f", {strays:,} strays" if strays else "")
            + (f", {left:,} values left in Kafka" if left else "")
        )
