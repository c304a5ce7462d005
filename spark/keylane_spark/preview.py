"""What the command line asks of the job without running it: what it makes of settings and of records.

Spark is started, and imported, for SQL alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keylane.errors import BadConfig
from keylane.model.kafka import LogRecord, TopicPartition
from keylane.model.records import Position
from keylane_spark.config.topics import Config
from keylane_spark.config.transforms import Transform
from keylane_spark.generations.plan import difference, is_alike, wanted_layout
from keylane_spark.lanes.lane_progress import LaneProgress
from keylane_spark.log.kafka_admin import JobKafka
from keylane_spark.rows.change_events import apply_events
from keylane_spark.rows.compression import ColumnCompressor, Samples, train
from keylane_spark.rows.fields import field_entries
from keylane_spark.rows.record_function import read_code
from keylane_spark.rows.records import Records, Rows, RowsOfPartitions
from keylane_spark.rows.transforms import TopicTransform, transform_rows
from keylane_spark.schemas.event_schemas import judge_none

__all__ = [
    "JobKafka",
    "LaneProgress",
    "TransformPreview",
    "TransformedRecord",
    "compressed_share",
    "difference",
    "field_entries",
    "is_alike",
    "read_code",
    "sql_faults",
    "wanted_layout",
]


def sql_faults(config: Config) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the fields of a file whose SQL Spark can't compute, with its reasons.

    Spark is started where there is SQL. Raises WriterError where it does not start.
    """
    topics = {
        name: found for name, each in config.topics.items() if (found := each.definition) and found.is_sql
    }
    views = [name for name, view in config.views.items() if view.where]
    if not topics and not views:
        return
    from keylane_spark.engine import session  # noqa: PLC0415 (brings Spark)
    from keylane_spark.engine.record_sql import why_invalid, why_no_condition  # noqa: PLC0415

    spark = session.start(None, {"spark.ui.enabled": False})
    try:
        for name, definition in topics.items():
            option, _, reason = why_invalid(spark, definition).partition(": ")
            if reason:
                yield ("topics", name, option), reason
        for name in views:
            if reason := why_no_condition(spark, config.views[name].where):
                yield ("views", name, "where"), reason
    finally:
        session.stop(spark)


def compressed_share(values: Sequence[bytes]) -> float | None:
    """Return what part of their bytes compression leaves of values like these; None of too few to say.

    It is measured on every second one, with a dictionary of the others.
    """
    samples = Samples()
    samples.add(pa.array(values[::2], pa.binary()))
    dictionary = train(samples)
    if dictionary is None:
        return None
    others = pa.array(values[1::2], pa.binary())
    nothing = np.zeros(len(others), np.int64)
    records, _ = ColumnCompressor(dictionary).compress(Records(others, others, nothing, nothing))
    before, after = (pc.sum(pc.binary_length(each)).as_py() for each in (others, records.values))
    return float(after / before)


@dataclass(frozen=True, slots=True)
class TransformedRecord:
    """A record before and after. `result`: its value is `set`, the `same`, or `deleted`; or it `failed`.

    Bytes that are not UTF-8 are shown with replacements. `why`: of a failure.
    """

    position: str
    key: str
    result: Literal["set", "same", "deleted", "failed"]
    before: str
    after: str | None = None
    why: str = ""


class TransformPreview:
    """What a topic's transform makes of records that have keys and values."""

    def __init__(self, topic: str, definition: Transform) -> None:
        """Raise BadConfig if the transform's function can't be used."""
        code = read_code(definition.function) if definition.function else None
        self._topic = topic
        self._transform = TopicTransform(definition, "skip", code, has_onlooker=True)

    def of(self, records: Mapping[int, Sequence[LogRecord]]) -> Iterator[TransformedRecord]:
        """Yield what becomes of records, which are given by partition. Raises BadConfig for invalid SQL."""
        parts = [((self._topic, partition), _rows(given)) for partition, given in records.items()]
        for (_, partition), rows in self._with_sql(parts):
            for number in range(len(rows)):
                yield self._transformed(rows.part(number, number + 1), partition)

    def _with_sql(self, parts: Sequence[tuple[TopicPartition, Rows]]) -> RowsOfPartitions:
        definition = self._transform.definition
        if not definition.is_sql:
            yield from parts
            return
        from keylane_spark.engine import session  # noqa: PLC0415 (brings Spark)
        from keylane_spark.engine.record_sql import why_invalid  # noqa: PLC0415
        from keylane_spark.stream.sql_rows import SqlRows  # noqa: PLC0415

        spark = session.start(None, {"spark.ui.enabled": False})
        try:
            if reason := why_invalid(spark, definition):
                raise BadConfig(f"topic {self._topic!r}: {reason}")
            given = (part for part in parts)
            yield from SqlRows(spark, {self._topic: definition}).evaluated(given)
        finally:
            session.stop(spark)

    def _transformed(self, row: Rows, partition: int) -> TransformedRecord:
        before, offset = row.values[0].as_py(), int(row.offsets[0])
        shown = str(Position(partition, offset)), _text(row.keys[0].as_py())
        invalid = row.offsets[:0]
        if self._transform.definition.envelope != "none":
            applied = apply_events(row, judge_none)
            row, invalid = applied.rows, applied.invalid_offsets
        found = transform_rows(row, invalid, partition, self._transform)
        if len(found.failed_offsets):
            return TransformedRecord(*shown, "failed", _text(before), None, found.why)
        after = found.rows.values[0].as_py()
        if after is None:
            return TransformedRecord(*shown, "deleted", _text(before))
        return TransformedRecord(*shown, "same" if after == before else "set", _text(before), _text(after))


def _rows(given: Sequence[LogRecord]) -> Rows:
    return Rows(
        np.array([each.offset for each in given], np.int64),
        np.array([each.timestamp_ms or 0 for each in given], np.int64),
        pa.array([each.key for each in given], pa.binary()),
        pa.array([each.value for each in given], pa.binary()),
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
