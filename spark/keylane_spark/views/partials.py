"""A batch's records -> partial windows, by Spark: one row for each partition, key and window.

Key, time and fields come as texts of JSON (`views.values`), each parsed into a variant. Numbers are decimals
with 9 places, so sums are exact in any order. Records without key or time are counted in a row without a key,
and so are those on which `where` fails: one record must not fail its batch, which would come again and again.
Windows are computed here rather than by Spark's `window`, which drops records without a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as f

from keylane.adapters.registry.login import RegistrySettings
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.state.aggregates import decimal_text
from keylane.state.windows import Column, Definition
from keylane_spark.views.fields import ORDER, number_of, text_of, time_of, wanted
from keylane_spark.views.values import LogRows, ViewField, read_values


@dataclass(frozen=True, slots=True)
class PartialWindow:
    """What a batch's records of one partition add to a window.

    `key`: None for the records without key or time, and for those on which `where` `failed`. `newest_ms`:
    their newest event time; `last_offset`: their last one. `states`: one for each column, see
    `keylane.state.aggregates`.
    """

    partition: int
    key: bytes | None
    start_ms: int
    end_ms: int | None
    records: int
    newest_ms: int | None
    states: list[Any]
    failed: bool = False
    last_offset: int = 0


def partials(
    given: LogRows, view: Definition, watermark_ms: int = 0, registry: RegistrySettings | None = None
) -> DataFrame:
    """Rows of the log -> one row for each partial window; `parse_partials` reads them.

    No session has both records that are late by this event time and others: how rows are divided into batches
    makes no difference. The task may fail with RegistryUnavailable.
    """
    rows, fields = read_values(given, view, registry)
    rows = rows.withColumn("wanted", wanted(view.where))
    rows = rows.where("wanted is null or wanted")
    failed = f.col("wanted").isNull()
    key = f.col("key") if view.key is None else text_of(fields[view.key].json).cast("binary")
    time = f.col("timestamp") if view.time is None else time_of(fields[view.time].json)
    if view.time is None and view.window == "none":
        time = f.coalesce(time, f.timestamp_millis(f.lit(0)))  # no window depends on it
    is_valid = f.length(key).between(1, KEY_LIMIT_BYTES) & time.isNotNull() & ~failed & ~f.col("undecodable")
    # Invalid records form one more group in the same pass: under the empty key, at time 0.
    rows = rows.select(
        "partition",
        "offset",
        *(each for field in fields.values() for each in field.columns),
        failed.alias("failed"),
        f.when(f.coalesce(is_valid, f.lit(False)), key).otherwise(f.lit(b"")).alias("k"),
        f.when(f.coalesce(is_valid, f.lit(False)), time).otherwise(f.timestamp_millis(f.lit(0))).alias("t"),
    )
    grouped, start, end = _windowed(rows, view, watermark_ms)
    aggregated = grouped.agg(
        f.count("*").alias("records"),
        f.max("t").alias("newest"),
        f.max("offset").alias("last"),
        *(_state(column, fields).alias(f"c{i}") for i, column in enumerate(view.columns)),
    )
    return aggregated.select(
        "partition",
        "k",
        "failed",
        "last",
        start.alias("start"),
        end.alias("end"),
        "records",
        f.unix_millis("newest").alias("newest"),
        *(
            # Flat columns: a nullable struct with a field that can't be null has no Arrow form.
            f.col(f"c{i}.{name}" if name else f"c{i}").alias(f"c{i}{name}")
            for i, column in enumerate(view.columns)
            for name in _FIELDS.get(column.kind, ("",))
        ),
    )


def parse_partials(table: pa.Table, view: Definition) -> list[PartialWindow]:
    """Parse the rows of `partials`."""
    readers = [_READ[column.kind] for column in view.columns]
    return [
        PartialWindow(
            row["partition"],
            row["k"] or None,
            row["start"],
            row["end"],
            row["records"],
            row["newest"] if row["k"] else None,
            [read(row, f"c{i}") for i, read in enumerate(readers)],
            row["failed"],
            row["last"],
        )
        for row in table.to_pylist()
    ]


def _windowed(
    rows: DataFrame, view: Definition, watermark_ms: int
) -> tuple[GroupedData, Expression, Expression]:
    """Group the rows by partition, key and window; returns the groups, and their start and end in ms."""
    if view.size_ms is None:
        return rows.groupBy("partition", "k", "failed"), f.lit(0), f.lit(None).cast("bigint")
    if view.is_session:
        # Spark joins records that are exactly one gap apart. Here a window's end is never part of it: a final
        # session can't grow, and how rows are divided into batches makes no difference.
        window = f.session_window("t", f"{view.size_ms * 1000 - 1} microseconds").alias("w")
        start, end = f.unix_millis(f.col("w.start")), f.unix_millis(f.col("w.end")) + 1
        is_late = f.unix_millis("t") + view.size_ms <= f.lit(watermark_ms)
        in_ms = rows.withColumn("t", f.timestamp_millis(f.unix_millis("t"))).withColumn("late", is_late)
        return in_ms.groupBy("partition", "k", "failed", "late", window), start, end
    every_ms = view.every_ms or view.size_ms
    at = f.unix_millis("t")
    last = at - f.pmod(at, f.lit(every_ms))
    count = -(-view.size_ms // every_ms)
    if count > 1:
        starts = f.transform(f.sequence(f.lit(0), f.lit(count - 1)), lambda i: last - i * every_ms)
        own = f.filter(starts, lambda start: start > at - f.lit(view.size_ms))
        last = f.explode(f.when(f.length("k") > 0, own).otherwise(f.array(f.lit(0).cast("bigint"))))
    start = f.col("s")
    return rows.withColumn("s", last).groupBy("partition", "k", "failed", "s"), start, start + view.size_ms


def _state(column: Column, fields: Mapping[str, ViewField]) -> Expression:
    if column.kind == "count":
        return f.count(text_of(fields[column.path].json)) if column.path else f.count("*")
    field = fields[column.path]
    if column.kind == "latest":
        by = number_of(fields[column.by].json, ORDER) if column.by else f.unix_millis("t").cast(ORDER)
        written = field.columns[-1]
        is_there = text_of(field.json).isNotNull() & written.isNotNull() & by.isNotNull()
        newest = f.struct(by.alias("by"), "partition", "offset", written.alias("value"))
        return f.max(f.when(is_there, newest))
    number = number_of(field.json)
    if column.kind == "avg":
        return f.struct(f.sum(number).alias("total"), f.count(number).alias("count"))
    return {"sum": f.sum, "min": f.min, "max": f.max}[column.kind](number)


def _count(row: dict[str, Any], name: str) -> int:
    return int(row[name])


def _decimal(row: dict[str, Any], name: str) -> str | None:
    return None if row[name] is None else decimal_text(row[name])


def _average(row: dict[str, Any], name: str) -> list[Any]:
    return [_decimal(row, f"{name}total"), row[f"{name}count"]]


def _latest(row: dict[str, Any], name: str) -> list[Any] | None:
    by = _decimal(row, f"{name}by")
    if by is None:
        return None
    return [by, *(row[f"{name}{part}"] for part in ("partition", "offset", "value"))]


_FIELDS = {"avg": ("total", "count"), "latest": ("by", "partition", "offset", "value")}
_READ: dict[str, Any] = {
    "count": _count,
    "sum": _decimal,
    "min": _decimal,
    "max": _decimal,
    "avg": _average,
    "latest": _latest,
}
