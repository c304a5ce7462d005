"""What the command line asks of the job without running it: what it makes of settings and of records.

Spark is started, and imported, for SQL alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from keylane.adapters.kafka.options import Connection
from keylane.errors import BadConfig
from keylane.model.kafka import LogRecord, TopicPartition
from keylane.model.records import Options
from keylane_spark.config.topics import TopicConfig
from keylane_spark.config.transforms import Transform
from keylane_spark.generations.plan import difference, is_alike, wanted_layout
from keylane_spark.lanes.cluster import RedisSettings
from keylane_spark.lanes.lane_progress import LaneProgress
from keylane_spark.log.kafka_admin import JobKafka
from keylane_spark.rows import fields
from keylane_spark.rows.change_events import apply_events
from keylane_spark.rows.record_function import read_code
from keylane_spark.rows.records import Rows, RowsOfPartitions
from keylane_spark.rows.transforms import TopicTransform, transform_rows
from keylane_spark.schemas.event_schemas import judge_none


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """What an edited topic changes. `rebuilt`: why it is built again, "" if it is not.

    `in_place`: whether the layout that is stored changes.
    """

    rebuilt: str
    in_place: bool


def layout_change(before: TopicConfig, after: TopicConfig) -> LayoutChange:
    """Return what an edited topic changes."""
    # Kafka says how many partitions there are; the number does not matter for the comparison.
    old, new = wanted_layout("", 1, before), wanted_layout("", 1, after)
    return LayoutChange("" if is_alike(old, new) else difference(old, new), old != new)


def function_fault(name: str) -> str:
    """Return why a transform's function can't be used, "" if it can: its module is imported."""
    try:
        read_code(name)
    except BadConfig as error:
        return str(error)
    return ""


def field_entries(values: Sequence[bytes | None], options: Options) -> list[bytes]:
    """Return what the indexes of a topic's fields have of values, as `rows.fields.field_entries`."""
    found, _ = fields.field_entries(pa.array(values, pa.binary()), options)
    entries: list[bytes] = found.to_pylist()
    return entries


@dataclass(frozen=True, slots=True)
class TransformedValue:
    """What a transform makes of a record's value; None: the record is deleted. `why`: it failed."""

    partition: int
    offset: int
    key: bytes
    before: bytes
    after: bytes | None
    why: str | None = None


class TransformPreview:
    """What a topic's transform makes of records that have keys and values."""

    def __init__(self, topic: str, definition: Transform) -> None:
        """Raise BadConfig if the transform's function can't be used."""
        code = read_code(definition.function) if definition.function else None
        self._topic = topic
        self._transform = TopicTransform(definition, "skip", code)

    def values(self, records: Mapping[int, Sequence[LogRecord]]) -> Iterator[TransformedValue]:
        """Yield what becomes of records, which are given by partition. Raises BadConfig for invalid SQL."""
        parts = [((self._topic, partition), _rows(given)) for partition, given in records.items()]
        for (_, partition), rows in self._with_sql(parts):
            for number in range(len(rows)):
                yield self._value(rows.part(number, number + 1), partition)

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

    def _value(self, row: Rows, partition: int) -> TransformedValue:
        key, before, offset = row.keys[0].as_py(), row.values[0].as_py(), int(row.offsets[0])
        invalid = row.offsets[:0]
        if self._transform.definition.envelope != "none":
            row, invalid = apply_events(row, judge_none)
        found = transform_rows(row, invalid, partition, self._transform)
        if len(found.failed_offsets):
            return TransformedValue(partition, offset, key, before, None, found.why)
        return TransformedValue(partition, offset, key, before, found.rows.values[0].as_py())


def _rows(given: Sequence[LogRecord]) -> Rows:
    return Rows(
        np.array([each.offset for each in given], np.int64),
        np.array([each.timestamp_ms or 0 for each in given], np.int64),
        pa.array([each.key for each in given], pa.binary()),
        pa.array([each.value for each in given], pa.binary()),
    )


class TopicProgress:
    """How far the lanes of a topic are behind its log, seen from outside the job."""

    def __init__(self, redis: RedisSettings, kafka: Connection, topic: str) -> None:
        """Connect; raise UnknownTopic if the topic has no layout."""
        self._lanes = LaneProgress(redis, topic)
        self._kafka = JobKafka(kafka)

    def end_offsets(self) -> dict[int, int]:
        """Return the end offset of each partition in Kafka."""
        layout = self._lanes.layout
        found = self._kafka.end_offsets({layout.topic: layout.partition_count})
        return {partition: end for (_, partition), end in found.items()}

    def next_offsets(self) -> dict[int, int]:
        """Return the next offset of each partition in the state: that of its slowest stripe."""
        return self._lanes.next_offsets()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lanes.close()
