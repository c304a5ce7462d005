"""What tests of the job's parts share. Those of the whole job start it as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.jobs import JARS

from keylane_spark.engine import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_session() -> Iterator[SparkSession]:
    """A session of Spark in this process, with the Kafka connector; it ends with the tests of its group."""
    running = session.start(JARS, {"spark.master": "local[2]"})
    yield running
    running.stop()


@pytest.fixture(scope="session")
def spark(spark_session: SparkSession) -> SparkSession:
    """That session. Whoever changes its settings changes them back."""
    return spark_session
