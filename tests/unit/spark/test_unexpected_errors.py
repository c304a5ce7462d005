"""Errors that nobody foresaw, in the job's threads: what failed is restarted, and the log says so."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from tests.support import lanes as t
from tests.support.builders import a_session
from tests.support.fakes import FakeTime

from keylane.errors import EngineEnded, KeylaneError, TooLarge, Unavailable
from keylane.ports import Clock
from keylane_spark import job
from keylane_spark.config.job import JobConfig
from keylane_spark.lanes.function_library import DEFAULTS
from keylane_spark.stream import heartbeat, restarts
from keylane_spark.stream.freshness import ObservedEnds
from keylane_spark.stream.leaders import AnsweredEnds
from keylane_spark.stream.openings import Opening, WriterSpec
from keylane_spark.stream.reading_query import ReadingQuery
from keylane_spark.telemetry.metrics import JobMetrics
from keylane_spark.views import runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Py4JError(Exception):
    """As Spark's: the text goes on with a trace of Java's."""


class Recorder:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.view_restarts: list[str] = []
        self.stopped: list[str] = []
        self.reported: list[tuple[str, int]] = []
        self.noted: list[tuple[str, str]] = []
        self.failed: list[Exception] = []

    def count(self, kind: str, name: str, *, restarts: int = 0, stops: int = 0) -> None:
        assert kind == "view"
        self.view_restarts += [name] * restarts
        self.stopped += [name] * stops

    def gauge(self, kind: str, name: str, *, stopped: int) -> None:
        assert kind == "view"
        self.reported.append((name, stopped))


@dataclass
class Context:
    say: Callable[[str], None]
    metrics: Recorder
    config: Any = field(default_factory=lambda: SimpleNamespace(views=["delays"]))
    clock: Clock = field(default_factory=Clock)
    broker: Any = field(default_factory=lambda: SimpleNamespace(renew=lambda: None))
    spark: Any = field(default_factory=a_session)


def views_of(recorder: Recorder, stop: threading.Event) -> runner.Views:
    context: Any = Context(recorder.lines.append, recorder)
    failed: Any = recorder.failed.append
    ownership: Any = SimpleNamespace(note_stopped=lambda *noted: recorder.noted.append(noted))
    return runner.Views(context, ownership, stop, sweep=lambda _: None, failed=failed)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(restarts, "_FIRST_PAUSE_S", 0.01)
    return Recorder()


def serve_with(monkeypatch: pytest.MonkeyPatch, recorder: Recorder, *is_stopped: bool | Exception) -> None:
    """Serve where a start meets a refused connection. `is_stopped`: what Spark's JVM says when asked."""

    def refuse(*_: Any) -> Any:
        raise ConnectionRefusedError("a call of the JVM")

    asked = Mock(side_effect=is_stopped)
    metrics: Any = JobMetrics(Clock())
    context: Any = Context(recorder.lines.append, metrics, spark=a_session(isStopped=asked))
    monkeypatch.setattr(job, "open_topics", refuse)
    job._serve(context, Mock(), Mock(), threading.Event())


def test_where_a_start_fails_because_the_jvm_is_gone_that_is_the_reason(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(EngineEnded, match="Spark's JVM does not answer any more"):
        serve_with(monkeypatch, recorder, False, ConnectionRefusedError("no JVM"))


def test_where_a_start_fails_and_the_jvm_answers_the_reason_is_what_was_raised(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(ConnectionRefusedError, match="a call of the JVM"):
        serve_with(monkeypatch, recorder, False, False)


def test_restarts_are_reported_while_they_go_on(recorder: Recorder, monkeypatch: pytest.MonkeyPatch):
    stop, time, reports = threading.Event(), FakeTime(), []
    metrics = JobMetrics(time.clock, 10.0, reports.append)

    def open_topics(*_: Any) -> Any:
        time.move(11)
        if reports:
            stop.set()
        raise Unavailable("no rights")

    monkeypatch.setattr(job, "open_topics", open_topics)
    config = SimpleNamespace(topics=["orders"], views=[])
    job._serve(Context(recorder.lines.append, metrics, config), Mock(), Mock(), stop)
    [[series]] = reports
    assert (series.labels, series.totals) == (("orders",), {"Restarts": 1})


def test_a_view_whose_start_fails_unexpectedly_is_started_again(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    stop = threading.Event()
    attempts = []

    def open_view(*_: Any, **__: Any) -> Any:
        attempts.append(1)
        if len(attempts) == 3:
            stop.set()
            raise Unavailable("enough")
        raise Py4JError("An error occurred while calling o42.load\n\tat java.lang.Thread.run")

    monkeypatch.setattr(runner, "open_view", open_view)
    views = views_of(recorder, stop)
    views.start()
    views.join()
    assert len(attempts) == 3
    assert recorder.failed == []
    assert recorder.view_restarts == ["delays"] * 3
    assert (
        "view 'delays' restarts in 0 s: unexpected error: Py4JError: An error occurred" in recorder.lines[0]
    )
    assert "java" not in recorder.lines[0]
    assert set(recorder.reported) == {("delays", 1)}
    noted = ("delays", "an unexpected error, which the job's log names")
    assert recorder.noted == [noted] * 2
    assert "Py4JError" in capsys.readouterr().err


def test_an_error_that_does_not_pass_stops_its_view_alone(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
):
    stop = threading.Event()

    class Noted(list[tuple[str, str]]):
        def append(self, noted: tuple[str, str]) -> None:
            super().append(noted)
            if len(self) == 3:
                stop.set()

    recorder.noted = Noted()
    monkeypatch.setattr(runner, "_NOTE_S", 0.01)

    def open_view(*_: Any, **__: Any) -> Any:
        raise TooLarge("windows", 40_000_000, 32_000_000)

    monkeypatch.setattr(runner, "open_view", open_view)
    views = views_of(recorder, stop)
    views.start()
    views.join()
    assert len(recorder.noted) == 3
    assert "windows" in recorder.noted[-1][1]
    assert (recorder.failed, recorder.stopped, recorder.view_restarts) == ([], ["delays"], [])
    assert recorder.reported == [("delays", 1)] * 3  # what nobody reports for minutes is gone
    assert "view 'delays' STOPS until the job's next start" in recorder.lines[0]


def test_a_heartbeat_that_fails_unexpectedly_ends_its_query(recorder: Recorder, tmp_path: Path):
    """The first beat, of a query over no partitions, is in order; the next one is not."""
    ended = threading.Event()
    beats: list[int] = []

    class Query(ReadingQuery):
        def check_topics(self) -> None:
            beats.append(1)
            if len(beats) > 1:
                raise RuntimeError("nobody foresaw this")

        def fail(self, error: KeylaneError) -> None:
            recorder.failed.append(error)
            ended.set()

        def write(self, *_: Any) -> None:
            pytest.fail("nothing is read here")

        def say(self, text: str) -> None:
            recorder.lines.append(text)

    job = JobConfig(heartbeat_ms=50)
    claim_clock = SimpleNamespace(compare=lambda *_: None, largest_skew=lambda: None, now_ms=lambda: 1)
    context: Any = SimpleNamespace(clock=Clock(), claim_clock=claim_clock, config=SimpleNamespace(job=job))
    leaders: Any = SimpleNamespace(answered_ends=lambda: AnsweredEnds({}, {}))
    writer = WriterSpec(t.settings("127.0.0.1:1"), {}, 1, DEFAULTS)
    query = Query("topics", "the query of topics", tmp_path, Opening(writer, {}, [], frozenset()))
    beating = heartbeat.Heartbeat(context, writer, ObservedEnds(), leaders, query)
    beating.start()
    assert ended.wait(60)
    beating.stop()
    (error,) = recorder.failed
    assert isinstance(error, Unavailable)
    assert "RuntimeError: nobody foresaw this" in str(error)
