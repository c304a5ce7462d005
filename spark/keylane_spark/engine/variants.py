"""JSON texts of records as variants, which Spark's functions take apart by recursion.

A value that is nested deeply enough would end the JVM with a StackOverflowError, again after each start. So
the depth is bounded before the first function that looks at a value.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

MOST_LEVELS = 200
"""Of arrays and objects within each other. Spark's stack ends at some 800 of them."""

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
"""Possessive, so that Java's matcher needs no stack for a long string."""


def parsed_json(text: Column) -> Column:
    """The text as a variant; null where Spark can not parse it, or it has more than MOST_LEVELS levels."""
    is_short = f.octet_length(text) < 2 * MOST_LEVELS
    without = f.replace(f.replace(text, f.lit("{"), f.lit("")), f.lit("["), f.lit(""))
    has_few = f.octet_length(text) - f.octet_length(without) <= MOST_LEVELS
    return f.when(is_short | has_few | (_levels(text) <= MOST_LEVELS), f.try_parse_json(text))


def _levels(text: Column) -> Column:
    """How deep a JSON text is nested. It looks at each bracket: for texts that have many."""
    brackets = f.regexp_replace(f.regexp_replace(text, f"(?s){_STRING}", ""), r"[^\[\]{}]", "")
    begin = f.struct(f.lit(0).alias("now"), f.lit(0).alias("most"))

    def count(so_far: Column, bracket: Column) -> Column:
        now = so_far["now"] + f.when(bracket.isin("{", "["), 1).otherwise(-1)
        return f.struct(now.alias("now"), f.greatest(so_far["most"], now).alias("most"))

    return f.aggregate(f.split(brackets, "(?!^)"), begin, count, lambda found: found["most"])
