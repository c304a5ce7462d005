"""Change events of a table -> what each says of its row, by Spark: one row for each event.

    SET          the row is there: the window that it belongs to, and the fields that columns count
    GONE         it was deleted, or `where` does not want it
    INVALID      not an event, or a row without the view's key
    FAILED       `where` fails on the row

What an event is says `keylane.formats.change_events`.
"""

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from keylane.formats.change_events import DELETE, SETS
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.state.windows import Definition
from keylane_spark.views.fields import number_of, text_of, wanted
from keylane_spark.views.values import parsed

SET, GONE, INVALID, FAILED = range(4)


def row_changes(rows: DataFrame, view: Definition) -> DataFrame:
    """Rows of the Kafka source -> partition, offset, ms, key, kind, group and c0, c1, ... of each record.

    `key`: null where a record has none. `c<number>`: of a column with a field, the number, or for `count`
    whether there is a value. Raises pyspark's AnalysisException where `where` is not valid SQL.
    """
    rows = parsed(rows)
    is_tombstone = f.col("value").isNull() & ~f.col("undecodable")
    payload = _member(f.col("json"), "payload")
    is_wrapped = _text(f.col("json"), "op").isNull() & _text(f.col("json"), "__deleted").isNull()
    event = f.when(is_wrapped & _is_there(payload), payload).otherwise(f.col("json"))
    rows = rows.withColumn("tombstone", is_tombstone).withColumn("event", event)
    after, deleted, op = (
        _member(f.col("event"), "after"),
        _text(f.col("event"), "__deleted"),
        _text(f.col("event"), "op"),
    )
    row = f.when(deleted == "false", f.col("event")).when(
        deleted.isNull() & op.isin(*SETS) & f.schema_of_variant(after).startswith("OBJECT"), after
    )
    is_gone = f.col("tombstone") | f.coalesce(
        (deleted == "true") | (deleted.isNull() & (op == DELETE)), f.lit(False)
    )
    rows = rows.withColumn("gone", is_gone).withColumn("json", row)
    rows = rows.withColumn("value", f.to_json("json"))
    rows = rows.withColumn("wanted", wanted(view.where))
    group = f.col("key") if view.key is None else text_of(view.key).cast("binary")
    kind = (
        f.when(f.col("gone"), f.lit(GONE))
        .when(f.col("json").isNull(), f.lit(INVALID))
        .when(f.col("wanted").isNull(), f.lit(FAILED))
        .when(~f.col("wanted"), f.lit(GONE))
        .when(f.coalesce(f.length(group).between(1, KEY_LIMIT_BYTES), f.lit(False)), f.lit(SET))
        .otherwise(f.lit(INVALID))
    )
    return _changes(rows, view, kind, group)


def failed_changes(rows: DataFrame, view: Definition) -> DataFrame:
    """As `row_changes`, for records on which Spark fails: nothing but their keys is looked at."""
    rows = rows.select("partition", "offset", "timestamp", "key", f.parse_json(f.lit("null")).alias("json"))
    return _changes(rows, view, f.lit(FAILED), f.lit(None).cast("binary"))


def _changes(rows: DataFrame, view: Definition, kind: Expression, group: Expression) -> DataFrame:
    fields = {
        f"c{i}": text_of(column.path).isNotNull() if column.kind == "count" else number_of(column.path)
        for i, column in enumerate(view.columns)
        if column.path
    }
    return rows.select(
        "partition",
        "offset",
        f.unix_millis("timestamp").alias("ms"),
        f.when(f.length("key").between(1, KEY_LIMIT_BYTES), f.col("key")).alias("key"),
        kind.cast("tinyint").alias("kind"),
        group.alias("group"),
        *(field.alias(name) for name, field in fields.items()),
    )


def _member(value: Expression, name: str) -> Expression:
    return f.try_variant_get(value, f'$["{name}"]', "variant")


def _text(value: Expression, name: str) -> Expression:
    return f.try_variant_get(value, f'$["{name}"]', "string")


def _is_there(value: Expression) -> Expression:
    return value.isNotNull() & ~f.is_variant_null(value)
