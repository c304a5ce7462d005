"""The ends of leader epochs where Spark's JVM does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable
from keylane_spark.engine.leader_epochs import epoch_ends


def refuse() -> None:
    raise ConnectionRefusedError("no JVM")


def test_a_jvm_that_is_gone_is_an_error_after_which_the_job_starts_over():
    util = SimpleNamespace(HashMap=refuse)
    spark: Any = SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(util=util)))
    with pytest.raises(LogUnavailable, match="the ends of leader epochs are not known: no JVM"):
        epoch_ends(spark, Connection("localhost:1"), {("t", 0): 1})
