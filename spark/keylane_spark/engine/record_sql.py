"""`where` and `select` of topics, as two columns that Spark computes beside the rows of a log.

They see the columns that the `where` of a view sees: `key`, `value`, `json`, `timestamp`, `partition` and
`offset`. Of a change event `json` and `value` are the row. Neither column fails: see `never_failing`.

    wanted      boolean: whether `where` holds, null where it fails
    selected    string: the JSON of `select`, "" where that is NULL; null where it fails, and without `select`
                UNREAD_RESULT where the value is JSON that Spark can't read; QUOTED_NUMBERS is before it where
                numbers of the value are strings for Spark: see `rows.transforms`.

What is JSON they are given by `rows.json_values`, as the columns `form`, `row` and `text`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

import numpy as np
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from keylane_spark.config.transforms import Transform
from keylane_spark.engine.session import REFUSALS
from keylane_spark.engine.try_eval import never_failing
from keylane_spark.engine.value_errors import why_not_computed

AS_IT_IS, OTHER, QUOTED, NO_JSON, UNREAD = np.arange(5, dtype=np.int8)
"""Where Spark finds the JSON of a value: it is the value, or the `row` of an event; it is `text`, which has
the same numbers without exponents, or some of them as strings; there is none; it is nested too deeply."""

UNREAD_RESULT, QUOTED_NUMBERS = "\0", "\1"
"""See above. No JSON begins so."""
NULL_RESULT = ""
"""`selected` where `select` is NULL: no JSON is empty."""

_MOST_MS = 9_223_372_036_854_775
"""Spark's times are microseconds in 64 bits: a later `timestamp` is null, as that of a record without one."""
_RAW = "raw_"
_WITH_NULLS = {"ignoreNullFields": "false"}
_UNNAMED = re.compile(r"col\d+")


def why_invalid(spark: SparkSession, transform: Transform) -> str:
    """Return why Spark can't compute a topic's SQL on single records, "" if it can."""
    if reason := why_no_condition(spark, transform.where):
        return f"where: {reason}"
    if reason := _why_not(spark, _select, transform.select):
        return f"select: {reason}"
    return ""


def why_no_condition(spark: SparkSession, where: str | None) -> str:
    """Return why Spark can't compute a condition on single records, "" if it can or there is none."""
    return _why_not(spark, _compute, where)


@functools.cache
def _why_not(spark: SparkSession, use: Callable[[DataFrame, str], str], sql: str | None) -> str:
    try:
        return use(_no_records(spark), sql) if sql else ""
    except REFUSALS as error:
        if reason := why_not_computed(error):
            return reason
        raise


def _no_records(spark: SparkSession) -> DataFrame:
    """A table without rows, though Spark does not know that: what is computed of it is compiled.

    A task compiles paths, patterns and formats that do not depend on a record before it sees any, and fails.
    """
    number = f.when(f.col("id") > 0, f.col("id"))  # may be null, as all columns of a record
    rows = spark.range(0, 1, 1, 1).where("id < 0").select(number.alias("id"))
    return rows.withColumn("text", f.col("id").cast("string")).select(
        f.col("text").cast("binary").alias("key"),
        f.col("text").alias("value"),
        f.try_parse_json("text").alias("json"),
        f.timestamp_millis("id").alias("timestamp"),
        f.col("id").cast("int").alias("partition"),
        f.col("id").alias("offset"),
    )


def _compute(rows: DataFrame, condition: str | Column) -> str:
    # In a condition Spark refuses what does not depend on one record: aggregates, window functions, explode.
    rows.where(condition)
    column = f.expr(f"({condition}\n)") if isinstance(condition, str) else condition
    rows.select(never_failing(column)).collect()
    return ""


def _select(rows: DataFrame, select: str) -> str:
    column = _selected(select)
    kind, of_more = (
        each.select(column.alias("selected")).schema[0].dataType
        for each in (rows, rows.withColumn("more", f.lit(0)))
    )
    if kind != of_more:  # the job has columns of its own beside those of a record
        return "* is no field: name the columns"
    if not isinstance(kind, t.StructType | t.MapType | t.VariantType):
        return f"it gives {kind.simpleString()}, not an object: name its fields, as in {select} as name"
    unnamed = (
        [name for name in kind.names if _UNNAMED.fullmatch(name)] if isinstance(kind, t.StructType) else []
    )
    if unnamed:
        return "each field needs a name, as in upper(value) as name"
    return _compute(rows, f.to_json(column).isNotNull())


def _selected(select: str) -> Column:
    """The value that `select` gives: one expression is the value, named ones are the fields of an object."""
    return f.expr(f"({select}\n)" if _is_one_expression(select) else f"struct({select}\n)")


@functools.cache
def _is_one_expression(select: str) -> bool:
    """Whether it has no names: Spark's parser alone can tell, and a column is parsed when it is used."""
    try:
        SparkSession.active().range(0).select(f.expr(f"({select}\n)"))
    except ParseException:
        return False
    except AnalysisException:
        return True
    return True


def with_results(rows: DataFrame, transforms: Mapping[str, Transform]) -> DataFrame:
    """Return the rows with `wanted` and `selected`, both null for topics that have no SQL.

    `rows` have at least: topic, partition, offset, ms (the timestamp), key, value, form, row and text. The
    last three are not in the result.
    """
    names = [name for name in rows.columns if name not in {"form", "row", "text"}]
    raw = [f.col(name).alias(f"{_RAW}{name}") for name in names]
    form = f.col("form")
    # What is nested too deeply no function may take apart: it would end the JVM.
    value = f.when(form != int(UNREAD), f.coalesce("row", f.try_validate_utf8("value")))
    text = f.when(form == int(AS_IT_IS), value).when(form != int(NO_JSON), f.col("text"))
    seen = rows.select(
        *raw,
        "key",
        "partition",
        "offset",
        timestamp().alias("timestamp"),
        value.alias("value"),
        f.try_parse_json(text).alias("json"),
        form,
    )
    by_topic = {topic: _wanted(each) for topic, each in transforms.items()}
    seen = seen.withColumn("wanted", _of_topic(by_topic))
    selects = {topic: each.select for topic, each in transforms.items() if each.select is not None}
    selected = _of_topic({topic: _json(select) for topic, select in selects.items()})
    selected = f.when(form == int(QUOTED), f.concat(f.lit(QUOTED_NUMBERS), selected)).otherwise(selected)
    is_unread = (form != int(NO_JSON)) & f.col("json").isNull()
    seen = seen.withColumn(
        "selected", f.when(is_unread, f.lit(UNREAD_RESULT)).when(f.col("wanted"), selected)
    )
    return seen.select(
        *(f.col(f"{_RAW}{name}").alias(name) for name in names),
        "wanted",
        "selected",
    )


def timestamp() -> Column:
    """The time of a record with the column `ms`; null for one that has none, or none that Spark can hold."""
    return f.when(f.col("ms").between(1, _MOST_MS), f.timestamp_millis("ms"))


def _of_topic(columns: Mapping[str, Column]) -> Column:
    cases = ((f.col(f"{_RAW}topic") == topic, column) for topic, column in columns.items())
    empty = f.lit(None)
    return functools.reduce(lambda others, case: f.when(*case).otherwise(others), cases, empty)


def _wanted(transform: Transform) -> Column:
    if transform.where is None:
        return f.lit(True)
    return never_failing(f.coalesce(f.expr(f"({transform.where}\n)"), f.lit(False)))


def _json(select: str) -> Column:
    return never_failing(f.coalesce(f.to_json(_selected(select), _WITH_NULLS), f.lit(NULL_RESULT)))
