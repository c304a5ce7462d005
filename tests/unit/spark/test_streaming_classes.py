"""Where versions of Spark have the classes that the job names."""

from __future__ import annotations

import pyspark
import pytest

from keylane_spark.engine.session import streaming_class


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("4.0.2", "org.apache.spark.sql.execution.streaming.StreamExecution"),
        ("4.1.0", "org.apache.spark.sql.execution.streaming.runtime.StreamExecution"),
        ("4.2.0.dev0", "org.apache.spark.sql.execution.streaming.runtime.StreamExecution"),
    ],
)
def test_classes_of_streaming_are_named_as_the_version_of_spark_has_them(monkeypatch, version, name):
    monkeypatch.setattr(pyspark, "__version__", version)
    assert streaming_class("runtime", "StreamExecution") == name
