"""Fields of a JSON value as expressions of Spark, over variants: see `views.values`.

numbers         JSON numbers, and strings that contain one, with an exponent of up to four digits
times           ISO 8601 in the years 1 to 9999, a date alone and a year included ("20130704", "2013"), or
                milliseconds since 1970: a JSON number, or a string of nine digits or more
"""

from decimal import Decimal

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f

from keylane_spark.engine.try_eval import never_failing

NUMBER = "decimal(38,9)"
_LIMIT = Decimal(10**23)
"""Numbers are below this: sums of a million of them fit into Spark's widest decimal."""
ORDER = "decimal(38,18)"
"""What `latest` is ordered by: 20 digits before the point, and 18 behind it."""
_NUMBER_TEXT = r"^\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?0*[0-9]{1,4})?\s*$"
"""Java rounds 1e-10000000 for a minute, and takes digits of all scripts."""
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999."""
_DIGITS_OF_MS = 9
"""A string of fewer digits is a date."""
_BASIC = ("yyyyMMdd", "yyyyMMdd'T'HHmmssX", "yyyyMMdd'T'HHmmss")
"""ISO 8601 without hyphens and colons, which a cast does not take."""
_FULL_MINUTE = r"^\s*(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2})(Z|[+-]\d{2}:?\d{2})\s*$"
"""Java leaves out the seconds of a full minute; with a zone behind it, a cast does not take that."""


def wanted(where: str | None) -> Expression:
    """Whether the condition holds; null where it fails.

    A value that can't be decoded is wanted: it is to be counted.
    """
    if not where:
        return f.lit(True)
    holds = never_failing(f.coalesce(f.expr(where), f.lit(False)))
    return f.when(f.col("undecodable"), f.lit(True)).when(~f.col("unread"), holds)


def text_of(field: Expression) -> Expression:
    """A field as text; null where there is none."""
    return f.try_variant_get(field, "$", "string")


def number_of(field: Expression, form: str = NUMBER) -> Expression:
    """A field as a number; null where it is none."""
    number = f.when(text_of(field).rlike(_NUMBER_TEXT), f.try_variant_get(field, "$", form))
    return f.when(f.abs(number) < f.lit(_LIMIT), number) if form == NUMBER else number


def time_of(field: Expression) -> Expression:
    """A field as a time; null where it is none."""
    text = text_of(field)
    # Of an array it merges the types of all elements: a minute for 20,000 of 250 KB.
    is_scalar = ~(text.startswith("{") | text.startswith("["))
    kind = f.when(is_scalar, f.schema_of_variant(field))
    number = f.try_variant_get(field, "$", "bigint")
    is_date = (kind == "STRING") & (f.length(text) < _DIGITS_OF_MS)
    in_ms = f.when((kind != "BOOLEAN") & ~is_date & number.between(_FIRST_MS, _LAST_MS), number)
    date = f.coalesce(
        f.when(
            text.rlike(r"^\d{8}"), f.coalesce(*(f.try_to_timestamp(text, f.lit(form)) for form in _BASIC))
        ),
        f.when(text.rlike(_FULL_MINUTE), f.try_to_timestamp(f.regexp_replace(text, _FULL_MINUTE, "$1:00$2"))),
        # Spark takes a time of the day for one of today.
        f.when(text.rlike(r"^\s*\d{4}\s*(-|$)"), f.try_variant_get(field, "$", "timestamp")),
    )
    in_date = f.when(kind.isin("STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"), date)
    is_in_range = f.unix_millis(in_date).between(_FIRST_MS, _LAST_MS)
    return f.coalesce(f.timestamp_millis(in_ms), f.when(is_in_range, in_date))
