"""What tests of the job's parts share. Those of the whole job start it as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import jobs
from tests.support.views import Query

from keylane_spark.engine import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def start(kafka: str, redis_cluster: str, tmp_path: Path) -> Iterator[Callable[..., jobs.RunningJob]]:
    """Start a job, which ends with the test: `start(config)`."""
    started = []

    def begin(config: str, **how: str) -> jobs.RunningJob:
        started.append(jobs.start(kafka, redis_cluster, tmp_path, config, **how))
        return started[-1]

    yield begin
    for each in started:
        each.end()


@pytest.fixture
def state_of(redis_cluster: str) -> Iterator[Callable[[str], jobs.State]]:
    """Give a topic's state, which is closed in the end."""
    states = []

    def make(topic: str) -> jobs.State:
        states.append(jobs.State(redis_cluster, topic))
        return states[-1]

    yield make
    for state in states:
        state.close()


@pytest.fixture
def query(redis_cluster: str, monkeypatch: pytest.MonkeyPatch) -> Query:
    """A warm query function."""
    return Query(redis_cluster, monkeypatch)


@pytest.fixture(scope="session")
def spark_session() -> Iterator[SparkSession]:
    """A session of Spark in this process, with the Kafka connector; it ends with the tests of its group."""
    running = session.start(jobs.JARS, {"spark.master": "local[2]"})
    yield running
    running.stop()


@pytest.fixture(scope="session")
def spark(spark_session: SparkSession) -> SparkSession:
    """That session. Whoever changes its settings changes them back."""
    return spark_session
