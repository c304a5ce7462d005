"""`where` and `select` of topics, as two columns that Spark computes beside the rows of a log.

They see the columns that the `where` of a view sees: `key`, `value`, `json`, `timestamp`, `partition` and
`offset`. Of a change event `json` and `value` are the row. Neither column fails: see `never_failing`.

    wanted      boolean: whether `where` holds, null where it fails
    selected    string: the JSON of `select`, "" where that is NULL; null where it fails, and without `select`
                Where Spark has no `json` of the value, UNREAD is before it: see `rows.transforms`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from keylane_spark.config.transforms import Transform
from keylane_spark.engine.try_eval import never_failing
from keylane_spark.engine.variants import parsed_json

UNREAD = "\0"
"""Begins `selected` where Spark can't read the value as JSON. No JSON begins so."""
UNREAD_NULL = "\0\0"
"""UNREAD of a `selected` that is null."""
NULL_RESULT = ""
"""`selected` where `select` is NULL: no JSON is empty."""

_COLUMNS = "key binary, value string, json variant, timestamp timestamp, partition int, offset bigint"
_MOST_MS = 9_223_372_036_854_775
"""Spark's times are microseconds in 64 bits. The `timestamp` of a record with any other is null."""
_RAW = "raw_"
_WITH_NULLS = {"ignoreNullFields": "false"}
_UNNAMED = re.compile(r"col\d+")


def why_invalid(spark: SparkSession, transform: Transform) -> str:
    """Return why Spark can't compute a topic's SQL on single records, "" if it can."""
    rows = spark.createDataFrame([], _COLUMNS)
    for option, text in (("where", transform.where), ("select", transform.select)):
        try:
            if text is None:
                continue
            if option == "where":
                rows.where(text)
            elif reason := _why_no_object(rows, text):
                return reason
        except AnalysisException as error:
            reason = str(error).strip().partition("\n")[0]
            return f"{option}: Spark can't compute it: {reason}"
    return ""


def _why_no_object(rows: DataFrame, select: str) -> str:
    column = _selected(select)
    kind = rows.select(column.alias("selected")).schema[0].dataType
    if not isinstance(kind, t.StructType | t.MapType | t.VariantType):
        return (
            f"select: it gives {kind.simpleString()}, not an object: name its fields, as in {select} as name"
        )
    unnamed = (
        [name for name in kind.names if _UNNAMED.fullmatch(name)] if isinstance(kind, t.StructType) else []
    )
    if unnamed:
        return "select: each field needs a name, as in upper(value) as name"
    # In a condition Spark refuses what does not depend on one record: aggregates, window functions, explode.
    rows.where(f.to_json(column).isNotNull())
    return ""


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

    `rows` have at least: topic, partition, offset, ms (the timestamp), key, value.
    """
    names = rows.columns
    raw = [f.col(name).alias(f"{_RAW}{name}") for name in names]
    text = f.col("value").cast("string")
    seen = rows.select(
        *raw,
        "key",
        "partition",
        "offset",
        f.when(f.col("ms").between(-_MOST_MS, _MOST_MS), f.timestamp_millis("ms")).alias("timestamp"),
        text.alias("value"),
        parsed_json(text).alias("json"),
    )
    seen = seen.withColumn("unread", f.col("value").isNotNull() & f.col("json").isNull())
    events = [topic for topic, each in transforms.items() if each.envelope != "none"]
    if events:
        seen = _with_rows_of_events(seen, f.col(f"{_RAW}topic").isin(events))
    by_topic = {topic: _wanted(each) for topic, each in transforms.items()}
    seen = seen.withColumn("wanted", _of_topic(by_topic))
    selects = {topic: each.select for topic, each in transforms.items() if each.select is not None}
    selected = _of_topic({topic: _json(select) for topic, select in selects.items()})
    selected = f.when(f.col("wanted"), selected)
    marked = f.coalesce(f.concat(f.lit(UNREAD), selected), f.lit(UNREAD_NULL))
    seen = seen.withColumn("selected", f.when(f.col("unread"), marked).otherwise(selected))
    return seen.select(
        *(f.col(f"{_RAW}{name}").alias(name) for name in names),
        "wanted",
        "selected",
    )


def _with_rows_of_events(rows: DataFrame, is_event: Column) -> DataFrame:
    """Rows of databases in place of the events; see `keylane.formats.change_events`."""
    json = f.col("json")
    is_bare = _has(json, "op") | _has(json, "__deleted")
    event = f.when(is_bare, json).otherwise(_member(json, "payload"))
    rows = rows.withColumn("event", event)
    event = f.col("event")
    row = f.when(_has(event, "__deleted"), event).otherwise(_member(event, "after"))
    rows = rows.withColumn("json", f.when(is_event, row).otherwise(json)).drop("event")
    return rows.withColumn("value", f.when(is_event, f.to_json("json")).otherwise(f.col("value")))


def _member(json: Column, name: str) -> Column:
    return f.try_variant_get(json, f"$.{name}", "variant")


def _has(json: Column, name: str) -> Column:
    return f.coalesce(f.schema_of_variant(_member(json, name)), f.lit("VOID")) != "VOID"


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
