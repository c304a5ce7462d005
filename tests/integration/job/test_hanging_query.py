"""A real query of Spark that does not end when it is stopped, and the one that follows it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import eventually

from keylane.errors import Unavailable
from keylane_spark.stream.batch_query import BatchQuery

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame


class HeldQuery(BatchQuery):
    """A query whose batches wait until they are let go."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__("keylane-query", "the query", checkpoint)
        self.began, self.let_go = threading.Event(), threading.Event()
        self.said: list[str] = []

    def write(self, rows: DataFrame, batch_id: int) -> None:  # noqa: ARG002
        self.began.set()
        assert self.let_go.wait(60)

    def say(self, text: str) -> None:
        self.said.append(text)


STOP_TIMEOUT = "spark.sql.streaming.stopTimeout"


@pytest.fixture
def rows(spark, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "file").write_text("line")
    before = spark.conf.get(STOP_TIMEOUT)
    yield spark.readStream.text(folder.as_uri())
    spark.conf.set(STOP_TIMEOUT, before)


def test_a_query_whose_batch_hangs_is_waited_for_by_the_next_which_then_runs(spark, rows, tmp_path):
    hangs, follows = HeldQuery(tmp_path / "checkpoint"), HeldQuery(tmp_path / "checkpoint")
    try:
        hangs.start_reading(rows)
        assert hangs.began.wait(60)
        spark.conf.set(STOP_TIMEOUT, "500ms")
        assert not hangs.stop(within_s=0)
        assert hangs.said == ["the query did not stop: Py4JJavaError"]
        with pytest.raises(Unavailable, match="the query: the one before it does not end"):
            follows.start_reading(rows)
        spark.conf.set(STOP_TIMEOUT, "30s")
        hangs.let_go.set()
        follows.start_reading(rows)
        assert follows.began.wait(60)
    finally:
        hangs.let_go.set()
        follows.let_go.set()
        follows.stop()


class SlowQuery(HeldQuery):
    """A query whose batches are tasks of Spark that take a minute."""

    def write(self, rows: DataFrame, batch_id: int) -> None:  # noqa: ARG002
        def work(_: object) -> None:
            time.sleep(60)

        self.began.set()
        try:
            rows.sparkSession.sparkContext.parallelize([1], 1).foreach(work)
        finally:
            self.let_go.set()


def test_a_query_that_is_stopped_in_the_middle_of_a_batch_prints_no_trace(spark, rows, tmp_path, capfd):
    query = SlowQuery(tmp_path / "checkpoint")
    query.start_reading(rows)
    assert query.began.wait(60)
    tracker = spark.sparkContext.statusTracker()
    eventually(lambda: bool(tracker.getActiveJobsIds()))
    assert not query.stop(within_s=0)
    assert query.let_go.wait(60)
    assert query.finish(60)
    assert "Traceback" not in capfd.readouterr().err
    assert query.failure is None
