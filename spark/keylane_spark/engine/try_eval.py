"""Expressions that do not fail: Spark's `TryEval`, which its own `try_` functions are made of.

Under ANSI rules, which Spark 4 has by default, a cast or an operator of SQL that fails on one record fails
the batch, again and again. SQL has no way to say "null where this fails" of a complete expression, nor has
PySpark: `TryEval` is taken from Spark's JVM, here alone. A version of Spark that renames it, or the bridge
between columns and expressions, fails with a TypeError at the start of a view.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.classic.column import Column as ClassicColumn


def try_eval(column: Column) -> Column:
    """Return the column with null for rows on which it raises an error."""
    session: Any = SparkSession.active()
    sql = session._jvm.org.apache.spark.sql  # noqa: SLF001 (see above)
    expression = sql.classic.ExpressionUtils.expression(column._jc)  # noqa: SLF001
    return ClassicColumn(sql.classic.ExpressionUtils.column(sql.catalyst.expressions.TryEval(expression)))


def never_failing(column: Column) -> Column:
    """As `try_eval`, of an expression over rows with an `offset`, which may have parts twice.

    Such a part Spark would compute once, ahead of `try_eval`, and fail. Spark does not look for them in a
    branch of CASE; it can't know that this one is always taken.
    """
    return try_eval(f.when(f.col("offset") >= 0, column))
