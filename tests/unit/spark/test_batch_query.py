"""The start of a streaming query."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from keylane_spark.stream.batch_query import BatchQuery


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
