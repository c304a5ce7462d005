"""What a query says of its batches: a line for each, and once for each topic what is unusual."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from keylane.model.kafka import TopicPartition
from keylane.model.keys import LARGEST_KEY
from keylane.model.records import Layout, Position
from keylane.ports import Clock
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.stream.partition_chunks import PartitionResult
from keylane_spark.stream.restarts import RecentLines
from keylane_spark.telemetry.strays import PartitionerAudit
from keylane_spark.telemetry.tally import Tally


class BatchReports:
    """The lines of one query. `is_building`: they say how long the lag may still last."""

    def __init__(
        self, say: Callable[[str], None], clock: Clock, layouts: Mapping[str, Layout], *, is_building: bool
    ) -> None:
        self._say = say
        self._clock = clock
        self._is_building = is_building
        self._audit = PartitionerAudit(layouts)
        self._reported_null_keys: set[str] = set()
        self._reported_invalid: set[str] = set()
        self._reported_failed: set[str] = set()
        self._lag_at_first: tuple[float, int] | None = None
        self._left = RecentLines()

    def report_faults(self, faults: Mapping[str, str]) -> None:
        """Say of each of these topics why its transform can't run at all."""
        for topic, reason in faults.items():
            self._say(
                f"topic {topic!r} STOPS: {reason}. Its state stays as it is until keylane.toml is corrected "
                f"and the job starts again"
            )

    def report(self, batch_id: int, batch: BatchWriter, took_s: float, lag: int) -> None:
        """Say what a batch that is written had. `lag`: how many records there are after it."""
        tallies = batch.tallies
        self._report_unusual(tallies)
        for sentence in self._audit.add(tallies):
            self._say(sentence)
        self._report_left(batch.left)
        self._report_batch(batch_id, batch, took_s, lag)
        self._report_failed(batch.results)

    def _report_unusual(self, tallies: Mapping[TopicPartition, Tally]) -> None:
        for (topic, partition), tally in tallies.items():
            if tally.null_keys and topic not in self._reported_null_keys:
                self._reported_null_keys.add(topic)
                self._say(
                    f"topic {topic!r} has records without a key, or with one of more than {LARGEST_KEY:,} "
                    f"bytes: they can't be looked up, and are skipped"
                )
            if tally.invalid_events and topic not in self._reported_invalid:
                self._reported_invalid.add(topic)
                self._say(
                    f"topic {topic!r} has values that are not change events, the first at "
                    f"{Position(partition, tally.first_invalid)}: they are stored, and reads of them are "
                    f"answered why"
                )

    def _report_left(self, left: Mapping[TopicPartition, str]) -> None:
        """Say why ranges were not read to their ends, once a minute for each topic."""
        for why in left.values():
            text = f"{why}; it is tried again, and all others go on"
            if self._left.is_new(text, self._clock.monotonic_s()):
                self._say(text)

    def _report_batch(self, batch_id: int, batch: BatchWriter, took_s: float, lag: int) -> None:
        tallies = batch.tallies.values()
        records = _total(tallies, "records")
        if batch.left and not records:
            return  # it comes again and again, until the range can be read
        unusual = {
            "without a key skipped": _total(tallies, "null_keys"),
            "strays": _total(tallies, "strays"),
            "values left in Kafka": _total(tallies, "left_in_kafka"),
            "values that are not change events": _total(tallies, "invalid_events"),
            "left out": _total(tallies, "left_out"),
            "partitions left for later": len(batch.left),
            "on which the transform fails": _total(tallies, "failed"),
            "values of fields that no index can have": _total(tallies, "invalid_fields"),
        }
        self._say(
            f"batch {batch_id}: {records:,} records, {records / max(took_s, 1e-3):,.0f}/s, "
            f"{took_s * 1000:.0f} ms, lag {lag:,}"
            + (self._time_left(lag) if self._is_building else "")
            + "".join(f", {count:,} {what}" for what, count in unusual.items() if count)
        )

    def _report_failed(self, results: Mapping[TopicPartition, PartitionResult]) -> None:
        failed = {source: each for source, each in results.items() if each.failure}
        for (topic, partition), each in failed.items():
            if each.is_stopped:
                self._say(
                    f"partition {partition} of topic {topic!r} STOPS at offset {each.stopped_at}, on which "
                    f"its transform fails: {each.failure}"
                )
        for (topic, partition), each in failed.items():
            if topic not in self._reported_failed and not each.is_stopped:
                self._reported_failed.add(topic)
                self._say(
                    f"topic {topic!r}: its transform fails on {Position(partition, each.tally.first_failed)} "
                    f"and goes on (on_error): {each.failure}"
                )

    def _time_left(self, lag: int) -> str:
        """How long a lag that shrinks as it did so far still lasts, in words; "" while that is not known."""
        now_s = self._clock.monotonic_s()
        began_s, first = self._lag_at_first = self._lag_at_first or (now_s, lag)
        return f", {(now_s - began_s) * lag / (first - lag):,.0f} s left" if lag < first else ""


def _total(tallies: Iterable[Tally], count: str) -> int:
    return sum(getattr(tally, count) for tally in tallies)
