"""Which of Spark's errors are about a record, so that it can be passed by, and not about the cluster.

An error about a value has an SQLSTATE of class 22, where Spark has thought of it. What it has not thought of
comes as an exception of Java, as the cause of an aborted job: a time in Kafka that has no microseconds in 64
bits is an ArithmeticException of Spark's own Kafka source, before any expression sees the record.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

_DATA_EXCEPTION = "22"
_OF_VALUES = frozenset(
    {
        "java.lang.ArithmeticException",
        "java.lang.StackOverflowError",
        "java.time.DateTimeException",
        "java.util.regex.PatternSyntaxException",
    }
)
_MOST_CAUSES = 10


def is_about_a_value(error: PySparkException | Py4JJavaError) -> bool:
    """Whether Spark fails on a record, and not for a reason that passes or is the cluster's."""
    cause: Any = None
    if isinstance(error, PySparkException):
        if (error.getSqlState() or "").startswith(_DATA_EXCEPTION):
            return True
        cause = getattr(error, "_origin", None)  # PySpark has no name for the exception that it was made of
    else:
        cause = error.java_exception
    for _ in range(_MOST_CAUSES):
        if cause is None:
            return False
        if cause.getClass().getName() in _OF_VALUES:
            return True
        cause = cause.getCause()
    return False


def why_not_computed(error: PySparkException | Py4JJavaError) -> str:
    """Why Spark can't compute SQL, in a line; "" where the error is none of the SQL."""
    if not (isinstance(error, AnalysisException) or is_about_a_value(error)):
        return ""
    reason: Any = error
    if isinstance(error, Py4JJavaError):
        reason = (error.java_exception.getCause() or error.java_exception).toString()
    line, _, _ = str(reason).strip().partition("\n")
    return f"Spark can't compute it: {line}"
