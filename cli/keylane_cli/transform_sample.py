"""Runs a topic's transform over its first records, with the code with which the job runs it."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from keylane.errors import BadConfig, UnknownTopic
from keylane.model.records import Position
from keylane_cli.survey.cluster import reach
from keylane_local.env_file import KAFKA
from keylane_local.errors import BadInput
from keylane_spark.adapters.event_schemas import judge_none
from keylane_spark.columns.change_events import apply_events
from keylane_spark.columns.record_function import read_code
from keylane_spark.columns.records import Rows
from keylane_spark.columns.transforms import TopicTransform, transform_rows
from keylane_spark.config.topics import load
from keylane_spark.engine import session
from keylane_spark.engine.record_sql import why_invalid
from keylane_spark.stream.sql_rows import SqlRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from keylane.model.kafka import LogRecord
    from keylane_spark.config.transforms import Transform


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


def transform_sample(
    config: Path, topic: str, environment: Mapping[str, str], count: int
) -> Iterator[TransformedRecord]:
    """Yield what the transform makes of the topic's first `count` records with keys and values.

    Raises BadInput, PartUnreachable, KeylaneError.
    """
    sys.path.append(str(config.resolve().parent))
    table = load(config).topics.get(topic)
    if table is None:
        raise BadInput(f"{config} has no topic {topic!r}")
    definition = table.definition
    if definition is None:
        raise BadInput(f"topic {topic!r} has no where, select or transform in {config}")
    if not environment.get(KAFKA):
        raise BadInput("name Kafka's brokers with --kafka")
    code = read_code(definition.function) if definition.function else None
    parts = _sample(topic, environment, count)
    transform = TopicTransform(definition, "skip", code)
    for (_, partition), rows in _with_sql(parts, topic, definition):
        yield from _transformed(rows, partition, transform)


def _sample(topic: str, environment: Mapping[str, str], count: int) -> list[tuple[int, Rows]]:
    """Return records with keys and values, as many of each partition as there are."""
    with reach(environment) as survey:
        if topic not in survey.topics:
            raise UnknownTopic(topic, "Kafka has no topic of this name")
        described = survey.find_topic(topic)
        found = survey.first_records(described, len(described.partitions))
        taken = itertools.islice((each for each in found if each[1].key and each[1].value is not None), count)
        by_partition = itertools.groupby(taken, key=lambda each: each[0])
        return [(number, _rows(record for _, record in records)) for number, records in by_partition]


def _rows(records: Iterable[LogRecord]) -> Rows:
    given = list(records)
    return Rows(
        np.array([each.offset for each in given], np.int64),
        np.array([each.timestamp_ms or 0 for each in given], np.int64),
        pa.array([each.key for each in given], pa.binary()),
        pa.array([each.value for each in given], pa.binary()),
    )


def _with_sql(
    parts: list[tuple[int, Rows]], topic: str, definition: Transform
) -> Iterator[tuple[tuple[str, int], Rows]]:
    sources = (((topic, partition), rows) for partition, rows in parts)
    if not definition.is_sql:
        yield from sources
        return
    spark = session.start(None, {"spark.ui.enabled": False})
    try:
        if reason := why_invalid(spark, definition):
            raise BadConfig(f"topic {topic!r}: {reason}")
        yield from SqlRows(spark, {topic: definition}).evaluated(sources)
    finally:
        session.stop(spark)


def _transformed(rows: Rows, partition: int, transform: TopicTransform) -> Iterator[TransformedRecord]:
    for number in range(len(rows)):
        row = rows.part(number, number + 1)
        before, offset = row.values[0].as_py(), int(row.offsets[0])
        shown = str(Position(partition, offset)), _text(row.keys[0].as_py())
        invalid = row.offsets[:0]
        if transform.definition.envelope != "none":
            row, invalid = apply_events(row, judge_none)
        found = transform_rows(row, invalid, partition, transform)
        if len(found.failed_offsets):
            yield TransformedRecord(*shown, "failed", _text(before), None, found.why)
            continue
        after = found.rows.values[0].as_py()
        result: Literal["set", "same", "deleted"] = "same" if after == before else "set"
        yield TransformedRecord(
            *shown,
            "deleted" if after is None else result,
            _text(before),
            None if after is None else _text(after),
        )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
