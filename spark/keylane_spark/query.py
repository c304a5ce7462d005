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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.adapters.redis_cluster import Cluster
from keylane.errors import Fenced, KeylaneError, Unavailable
from keylane_spark import session
from keylane_spark.audit import Audit
from keylane_spark.batch import BatchWriter, Span, Tally
from keylane_spark.driver_share import DriverShare
from keylane_spark.freshness import Freshness
from keylane_spark.heartbeat import Heartbeat
from keylane_spark.offset_log import batch_ends
from keylane_spark.tasks import TALLY_SCHEMA, partition_writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from keylane.adapters.kafka_broker import Broker
    from keylane.adapters.redis_cluster import RedisSettings
    from keylane.ports import Clock
    from keylane_spark.config import Config
    from keylane_spark.freshness import Place
    from keylane_spark.opening import Opening

_POLL_S = 0.1
_BATCH_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the job works with. `say` gets a line for people per event and batch."""

    config: Config
    spark: SparkSession
    broker: Broker
    bootstrap: str
    redis: RedisSettings
    checkpoint: Path
    clock: Clock
    say: Callable[[str], None]


class Query:
    """Runs in Spark's thread (`_write_batch`), the heartbeat's, and the one that waits for its end."""

    def __init__(self, parts: Parts, opening: Opening) -> None:
        self._parts = parts
        self._writer = opening.writer
        self._positions: dict[Place, int] = dict(opening.positions)
        self._checkpoint = parts.checkpoint.absolute() / "keylane-query"
        self._freshness = Freshness()
        self._cluster = Cluster(parts.redis)
        self._lanes = self._writer.lanes(self._cluster, parts.clock, parts.say)
        self._batch_lock = threading.Lock()
        self._failure: KeylaneError | None = None
        self._told_null_keys: set[str] = set()
        self._audit = Audit(opening.writer.layouts)
        self._share = DriverShare(parts.config.job.small_batch_records)

    def until_stopped(self, stop: threading.Event) -> None:
        """Run until `stop`, which lets a batch under way finish. Raises what broke the query."""
        parts, job = self._parts, self._parts.config.job
        # The offset log of this very query is all that is read of it, see batch_ends. The folder is ours
        # by its name: the one that the environment names may hold other things.
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        headers = any(layout.options.headers for layout in self._writer.layouts.values())
        query = (
            session.source(parts.spark, parts.bootstrap, self._positions, job, headers=headers)
            .writeStream.foreachBatch(self._write_batch)
            .option("checkpointLocation", self._checkpoint.as_uri())
            .queryName("keylane")
            .start()
        )
        heartbeat = Heartbeat(
            writer=self._writer,
            broker=parts.broker,
            clock=parts.clock,
            freshness=self._freshness,
            positions=self._positions.copy,
            interval_s=job.heartbeat_ms / 1000,
            failed=self._fail,
            notify=parts.say,
        )
        try:
            heartbeat.start()
            parts.say(
                f"ready: epoch {self._writer.epoch}, {len(self._writer.layouts)} topics, "
                f"{len(self._positions)} partitions"
            )
            while not stop.is_set() and query.isActive and self._failure is None:
                stop.wait(_POLL_S)
        finally:
            # Stopping a query interrupts its thread: between batches that is no harm at all.
            held = self._batch_lock.acquire(timeout=_BATCH_PATIENCE_S)
            query.stop()
            if held:
                self._batch_lock.release()
            heartbeat.stop()
            self._cluster.close()
        broken = query.exception()
        if self._failure is not None:
            raise self._failure
        if broken is not None and not stop.is_set():
            raise Unavailable(f"the query broke: {str(broken).strip().partition(chr(10))[0]}")

    def _fail(self, error: KeylaneError) -> None:
        self._failure = self._failure or error

    def _write_batch(self, rows: DataFrame, batch_id: int) -> None:
        with self._batch_lock:
            try:
                self._write(rows, batch_id)
            except KeylaneError as error:
                self._lanes.abandon()
                self._fail(error)
                raise
            except Exception:
                self._lanes.abandon()
                self._parts.say(f"batch {batch_id} failed\n{traceback.format_exc()}")
                raise

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        began_s = self._parts.clock.monotonic_s()
        ends = batch_ends(self._checkpoint, batch_id)
        new = sorted(ends.keys() - self._positions.keys())
        if new:
            raise Unavailable(f"there are new partitions: {new}")
        spans = {
            place: Span(begin, ends[place], self._freshness.complete_as_of_ms(place, ends[place]))
            for place, begin in self._positions.items()
        }
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
        # A task finishes its own partition; the others, without a row maybe, are finished here.
        batch.finish(sorted(moved))
        for place, span in spans.items():
            self._positions[place] = span.end
        self._report(batch_id, batch.tallies, self._parts.clock.monotonic_s() - began_s)

    def _write_in_tasks(self, rows: DataFrame, batch: BatchWriter) -> None:
        write = partition_writer(self._writer, batch.spans)
        for topic, partition, newer_epoch, *counts in rows.mapInArrow(write, TALLY_SCHEMA).collect():
            if newer_epoch:
                raise Fenced(f"{topic}/{partition}", self._writer.epoch, newer_epoch)
            batch.tallies[topic, partition] = Tally(*counts)

    def _report(self, batch_id: int, tallies: dict[Place, Tally], took_s: float) -> None:
        for (topic, _), tally in tallies.items():
            if tally.null_keys and topic not in self._told_null_keys:
                self._told_null_keys.add(topic)
                self._parts.say(
                    f"topic {topic!r} has records without a key: they have no home, and are skipped"
                )
        records = sum(tally.records for tally in tallies.values())
        skipped = sum(tally.null_keys for tally in tallies.values())
        strays = sum(tally.strays for tally in tallies.values())
        left = sum(tally.left_in_kafka for tally in tallies.values())
        for sentence in self._audit.add(tallies):
            self._parts.say(sentence)
        self._parts.say(
            f"batch {batch_id}: {records:,} records, {records / max(took_s, 1e-3):,.0f}/s, "
            f"{took_s * 1000:.0f} ms, lag {self._freshness.lag(self._positions):,}"
            + (f", {skipped:,} without a key skipped" if skipped else "")
            + (f", {strays:,} strays" if strays else "")
            + (f", {left:,} values left in Kafka" if left else "")
        )
