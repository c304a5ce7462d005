"""Changes of rows -> what each says of its row, by Spark: one row for each record.

A row is that of a table, of which records are change events, or a key's latest record itself.

    SET          the row is there: the window that it belongs to, and the fields that columns count
    GONE         it was deleted, or `where` does not want it
    INVALID      not an event, a value that nobody can decode, or a row without the view's key
    FAILED       `where` fails on the row

What an event is says `keylane.formats.change_events`.
"""

from collections.abc import Mapping

import numpy as np
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from keylane.adapters.registry.login import RegistrySettings
from keylane.model.keys import KEY_LIMIT_BYTES
from keylane.state.windows import Definition
from keylane_spark.engine.record_sql import timestamp
from keylane_spark.views.fields import number_of, text_of, wanted
from keylane_spark.views.values import GONE, INVALID, SET, LogRows, read_keys, read_values

__all__ = ["FAILED", "GONE", "INVALID", "SET", "failed_changes", "row_changes"]

FAILED = np.int8(3)


def row_changes(given: LogRows, view: Definition, registry: RegistrySettings | None = None) -> DataFrame:
    """Rows of the log -> partition, offset, ms, key, kind, group and c0, c1, ... of each record.

    `key`: null where a record has none. `c<number>`: of a column with a field, the number, or for `count`
    whether there is a value. The task may fail with RegistryUnavailable.
    """
    rows, fields = read_values(given, view, registry)
    rows = rows.withColumn("wanted", wanted(view.where))
    group = f.col("key") if view.key is None else text_of(fields[view.key].json).cast("binary")
    kind = (
        f.when(f.col("change") != int(SET), f.col("change"))
        .when(f.col("wanted").isNull(), f.lit(int(FAILED)))
        .when(~f.col("wanted"), f.lit(int(GONE)))
        .when(f.coalesce(f.length(group).between(1, KEY_LIMIT_BYTES), f.lit(False)), f.lit(int(SET)))
        .otherwise(f.lit(int(INVALID)))
    )
    return _changes(rows, view, kind, group, {path: field.json for path, field in fields.items()})


def failed_changes(given: LogRows, view: Definition) -> DataFrame:
    """As `row_changes`, for records on which Spark fails: nothing but their keys is looked at."""
    nothing = f.parse_json(f.lit("null"))
    fields = {column.path: nothing for column in view.columns}
    rows = read_keys(given).withColumn("timestamp", timestamp())
    return _changes(rows, view, f.lit(int(FAILED)), f.lit(None).cast("binary"), fields)


def _changes(
    rows: DataFrame, view: Definition, kind: Expression, group: Expression, fields: Mapping[str, Expression]
) -> DataFrame:
    found = {
        f"c{i}": text_of(fields[column.path]).isNotNull()
        if column.kind == "count"
        else number_of(fields[column.path])
        for i, column in enumerate(view.columns)
        if column.path
    }
    return rows.select(
        "partition",
        "offset",
        f.greatest(f.col("ms"), f.lit(0)).alias("ms"),  # as lanes store it: more than Spark's times, too
        "key",
        kind.cast("tinyint").alias("kind"),
        group.alias("group"),
        *(field.alias(name) for name, field in found.items()),
    )
