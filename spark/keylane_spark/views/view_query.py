"""One streaming query of a view, from one opening of its lanes to its end."""

from __future__ import annotations

import shutil
import threading
import traceback
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException

from keylane.errors import KeylaneError, TopicChanged, Unavailable, WriterError
from keylane_spark.engine import session
from keylane_spark.stream.freshness import Freshness, topic_complete_as_of_ms
from keylane_spark.stream.offset_log import batch_ends
from keylane_spark.views.partials import partials

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.context import Parts
    from keylane_spark.telemetry.metrics import Meter
    from keylane_spark.views.open_view import ViewOpening
    from keylane_spark.views.view_writer import Offsets, Told

EVERY = "1 second"
"""How often new records are looked for: a batch costs a shuffle, however few they are."""
BATCH_RECORDS = 50_000
"""A view that catches up leaves the topics' queries their turn: they are waited for, views rarely are."""
_SHARE = 4
"""One of so many of Spark's task slots is a view's."""
_BATCH_PATIENCE_S = 20.0


class ViewQuery:
    """Runs in Spark's thread (`_write_batch`) and in the one that starts, beats and stops it."""

    def __init__(self, parts: Parts, opening: ViewOpening, meter: Meter) -> None:
        self._parts = parts
        self._meter = meter
        self._opening = opening
        self._topic = opening.view.topic
        most = max(1, BATCH_RECORDS // opening.view.windows_per_event)
        self._job = parts.config.job.model_copy(update={"max_batch_records": most})
        self._checkpoint = parts.checkpoint.absolute() / f"keylane-view-{opening.name}"
        self._positions: Offsets = opening.furthest
        self._freshness = Freshness()
        self._lock = threading.Lock()
        self._is_over = False
        self._failure: KeylaneError | None = None
        self._told_invalid = False
        self._query: StreamingQuery | None = None
        self.whole_as_of_ms = 0
        """As of when the lanes were told that they are complete; 0: not yet."""

    def start(self) -> None:
        """Bring all lanes to where the furthest one stands, and begin. Raises what that meets."""
        parts, writer = self._parts, self._opening.writer
        for offsets, lanes in self._opening.behind.items():
            self._say(f"{len(lanes)} of the lanes are behind the others: they come first")
            begins, ends = self._places(offsets), self._places(self._positions)
            rows = session.extent(parts.spark, parts.broker.connection, begins, ends, self._job)
            self._tell(writer.fold(self._few(rows), offsets, self._positions, lanes=lanes), 0)
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        rows = session.source(parts.spark, parts.broker.connection, self._places(self._positions), self._job)
        try:
            partials(rows, self._opening.view)
        except AnalysisException as error:
            reason = str(error).strip().partition("\n")[0]
            raise WriterError(f"view {self._opening.name!r}: Spark can't compute it: {reason}") from error
        self._query = (
            rows.writeStream.foreachBatch(self._write_batch)
            .option("checkpointLocation", self._checkpoint.as_uri())
            .queryName(f"keylane-view-{self._opening.name}")
            .trigger(processingTime=EVERY)
            .start()
        )

    def beat(self) -> None:
        """Tell the lanes as of when they are complete, by what was seen of the topic's ends.

        Raises Fenced, LaneBehind, LogUnavailable, StateUnavailable.
        """
        seen_ms = self._parts.clock.now_ms()
        ends = self._ends()
        self._freshness.observe(seen_ms, ends)
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._is_over:
                self._tell_whole(self._caught_up(ends, self._positions))
        finally:
            self._lock.release()

    def _tell_whole(self, caught_up: set[int]) -> None:
        """A window has records of any partition: it is as complete as the least of them."""
        places = self._places(self._positions)
        whole_ms = topic_complete_as_of_ms(self._freshness, places, [self._topic])[self._topic]
        self._freshness.reached(places)
        if whole_ms > self.whole_as_of_ms:
            self._opening.writer.rest(whole_ms, caught_up)
            self.whole_as_of_ms = whole_ms

    def gauge(self) -> None:
        """Tell the meter how the view stands."""
        whole_ms = self.whole_as_of_ms
        self._meter.gauge(
            self._opening.name,
            lag=self._freshness.lag(self._places(self._positions)),
            age_ms=self._parts.clock.now_ms() - whole_ms if whole_ms else None,
            incomplete=len(self._opening.incomplete),
            kind="view",
        )

    def check(self) -> None:
        """Raise what broke the query, if anything has."""
        if self._failure is not None:
            raise self._failure
        if self._query is not None and not self._query.isActive:
            broken = self._query.exception()
            reason = str(broken).strip().partition("\n")[0] if broken else "it ended by itself"
            raise Unavailable(f"the query of view {self._opening.name!r} broke: {reason}")

    def stop(self) -> None:
        """Stop, after the batch under way."""
        held = self._lock.acquire(timeout=_BATCH_PATIENCE_S)
        self._is_over = True
        if held:
            self._lock.release()
        if self._query is not None:
            try:
                self._query.stop()
            except Py4JError as error:
                self._say(f"the query did not stop: {type(error).__name__}")
        self._opening.cluster.close()

    def _write_batch(self, rows: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._is_over:
                return
            try:
                self._write(rows, batch_id)
            except KeylaneError as error:
                self._failure = self._failure or error
                raise
            except Exception:
                self._say(f"batch {batch_id} failed\n{traceback.format_exc()}")
                raise

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        clock = self._parts.clock
        began_s = clock.monotonic_s()
        ends = batch_ends(self._checkpoint, batch_id)
        if len(ends) != len(self._positions):
            raise TopicChanged(f"topic {self._topic!r} has {len(ends)} partitions now")
        end = tuple(ends[self._topic, partition] for partition in range(len(ends)))
        caught_up = self._caught_up(self._ends(), end)
        count = sum(end) - sum(self._positions)
        told = self._opening.writer.fold(self._few(rows), self._positions, end, caught_up=caught_up)
        self._positions = end
        self._tell(told, count, f" in {(clock.monotonic_s() - began_s) * 1000:.0f} ms")

    def _few(self, rows: DataFrame) -> DataFrame:
        """The rows in fewer tasks than there are slots."""
        return rows.coalesce(max(1, self._parts.spark.sparkContext.defaultParallelism // _SHARE))

    def _ends(self) -> dict[TopicPartition, int]:
        return self._parts.broker.end_offsets({self._topic: len(self._positions)})

    def _caught_up(self, ends: dict[TopicPartition, int], positions: Offsets) -> set[int]:
        return {p for p, position in enumerate(positions) if position >= ends[self._topic, p]}

    def _places(self, offsets: Offsets) -> dict[TopicPartition, int]:
        return {(self._topic, partition): offset for partition, offset in enumerate(offsets)}

    def _tell(self, told: Told, count: int, took: str = "") -> None:
        self._meter.view_batch(
            self._opening.name, records=count, windows=told.windows, late=told.late, invalid=told.invalid
        )
        self._say(
            f"{count:,} records, {told.windows:,} windows{took}"
            + (f", {told.late:,} late" if told.late else "")
            + (f", {told.invalid:,} without key or time skipped" if told.invalid else "")
        )

    def _say(self, text: str) -> None:
        self._parts.say(f"view {self._opening.name!r}: {text}")
