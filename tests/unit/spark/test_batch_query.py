"""The start of a streaming query, and the end offsets of its batches, from the text that Spark writes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from keylane.errors import Unavailable, WriterError
from keylane_spark.lanes.lane import OffsetRange
from keylane_spark.stream.batch_query import LONG_S, BatchQuery, batch_ends
from keylane_spark.stream.driver_share import PlannedBatch


class Query(BatchQuery):
    def write(self, rows: Any, batch_id: int) -> None:  # noqa: ARG002
        raise AssertionError("no batch begins here")

    def say(self, text: str) -> None:
        raise AssertionError(text)


class Rows:
    """A stream of rows whose query writes the offset from which it begins, as Spark does."""

    def __init__(self) -> None:
        self.writeStream = self
        self.sparkSession = SimpleNamespace(streams=SimpleNamespace(active=[]))
        self.folder = Path()

    def foreachBatch(self, _write: Any) -> Rows:  # noqa: N802 (Spark's name)
        return self

    def queryName(self, _name: str) -> Rows:  # noqa: N802
        return self

    def option(self, name: str, value: str) -> Rows:
        assert name == "checkpointLocation"
        self.folder = Path(urlsplit(value).path)
        return self

    def start(self) -> Rows:
        assert not self.folder.exists(), "Spark would go on at the offsets of an earlier query"
        self.folder.mkdir(parents=True)
        (self.folder / "offsets").write_text("3969")
        return self


def test_a_query_finds_nothing_of_an_earlier_one_even_if_that_cannot_be_deleted(tmp_path: Path, monkeypatch):
    first, second = Rows(), Rows()
    Query("keylane-query", "the query", tmp_path).start_reading(first)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    Query("keylane-query", "the query", tmp_path).start_reading(second)
    assert first.folder != second.folder


def test_folders_of_earlier_queries_are_deleted_and_those_of_others_stay(tmp_path: Path):
    first, second, view = Rows(), Rows(), Rows()
    Query("keylane-query", "the query", tmp_path).start_reading(first)
    Query("keylane-view-v", "a view's", tmp_path).start_reading(view)
    Query("keylane-query", "the query", tmp_path).start_reading(second)
    assert not first.folder.exists()
    assert second.folder.exists()
    assert view.folder.exists()


PLANNED = PlannedBatch(None, {(topic, 0): OffsetRange(17, 20) for topic in "tu"})


class LongQuery(Query):
    """A query whose only batch is looked at while it works, at times that a test names."""

    def __init__(self, checkpoint: Path, clock: SimpleNamespace, looks_s: list[float]) -> None:
        super().__init__("keylane-query", "the query", checkpoint)
        self.clock, self.looks_s, self.said = clock, looks_s, list[str]()

    def write(self, rows: Any, batch_id: int) -> None:  # noqa: ARG002
        self.clock.now_s += 1000  # it waited for new records
        self.check()
        self.note_work(partial(PLANNED.named, {"t"}))
        begun_s = self.clock.now_s
        for look_s in self.looks_s:
            self.clock.now_s = begun_s + look_s
            self.check()

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_batch_that_takes_long_is_named_each_time_that_it_has_taken_twice_as_long(tmp_path, monkeypatch):
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr("keylane_spark.stream.batch_query.time.monotonic", lambda: clock.now_s)
    query = LongQuery(tmp_path, clock, [LONG_S - 1, LONG_S, 1.5 * LONG_S, 2 * LONG_S, 3 * LONG_S])
    query._write_batch(None, 1)
    assert query.said == [
        f"a batch has taken {took} s so far: transforms see t/0 from 17 on" for took in (60, 120)
    ]
    clock.now_s += 1000
    query.check()
    assert len(query.said) == 2
    assert PLANNED.named({"v"}) == ""


def test_ends_of_all_topics_are_read(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text('v1\n{"batchTimestampMs":1}\n{"a":{"0":5,"10":7},"b-c":{"0":0}}')
    assert batch_ends(tmp_path, 4) == {("a", 0): 5, ("a", 10): 7, ("b-c", 0): 0}


@pytest.mark.parametrize("text", ["", "v1\n{}", "v1\n{}\nnot json", "v1\n{}\n[1]", "v1\n{}\n-\n-"])
def test_another_format_is_an_error_that_names_the_batch(tmp_path, text):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text(text)
    with pytest.raises(WriterError, match="batch 4"):
        batch_ends(tmp_path, 4)


def test_a_log_that_is_gone_passes_with_the_next_query(tmp_path):
    with pytest.raises(Unavailable, match="batch 9"):
        batch_ends(tmp_path, 9)
