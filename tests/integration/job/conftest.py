"""What tests of the job's parts share. Those of the whole job start it as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.jobs import JARS

from keylane_spark.engine import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session of Spark in this process, with the Kafka connector."""
    running = session.start(JARS, {"spark.master": "local[2]"})
    yield running
    running.stop()
