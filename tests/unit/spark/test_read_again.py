"""SIGHUP: the job reads its file again, and goes on in the same process."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.servers.own import eventually

from keylane.errors import UnknownTopic
from keylane_spark import __main__ as job

ADDRESSES = {"KEYLANE_KAFKA_BOOTSTRAP": "127.0.0.1:9", "KEYLANE_REDIS_NODES": "127.0.0.1:9"}


class RunningJob:
    """The process's part of a job without lanes and Spark; `served`: the topics of each run."""

    def __init__(self, config: Path):
        self.signals, self.served, self.sessions = job.Signals(), [], 0
        self.config = config
        self.exit_code, self.hurried = None, False

    def run(self):
        self.exit_code = job.until_ended(self.config, ADDRESSES, self.signals)

    def serve(self, context, stop):
        """Stands for `keylane_spark.job.run`, which sets `stop` at its end, too."""
        self.served.append(sorted(context.config.topics))
        if self.hurried:  # the next signal comes before the lanes are open
            self.hurried = False
            self.signals.read_again()
            return False
        if "missing" in context.config.topics:
            stop.set()
            raise UnknownTopic("missing")
        stop.wait()
        stop.set()
        return True

    def start_spark(self, *_):
        self.sessions += 1
        return SimpleNamespace()

    def reads(self, text: str, topics: list[str]):
        """Write the file, send the signal, and wait until these topics are served."""
        runs = len(self.served)
        self.config.write_text(text)
        self.signals.read_again()
        eventually(lambda: len(self.served) > runs)
        assert self.served[-1] == topics


@pytest.fixture
def starting(monkeypatch, tmp_path):
    config = tmp_path / "keylane.toml"
    config.write_text("[topics.a]")
    found = RunningJob(config)
    monkeypatch.setattr(job, "_start_spark", found.start_spark)
    monkeypatch.setattr(job.session, "stop", lambda _: None)
    monkeypatch.setattr(job, "JobContext", lambda config, *_: SimpleNamespace(config=config))
    monkeypatch.setattr(job.job, "run", found.serve)
    return found


@pytest.fixture
def running(starting):
    found = starting
    thread = threading.Thread(target=found.run, daemon=True)
    thread.start()
    eventually(lambda: bool(found.served))
    yield found
    found.signals.end()
    thread.join(20)
    assert found.exit_code == 0


def test_topics_come_and_go_without_another_session_of_spark(running):
    running.reads("[topics.a]\n[topics.b]", ["a", "b"])
    running.reads("[topics.b]", ["b"])
    assert running.sessions == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[topics.a", "is not valid TOML"),
        ("[topics.a]\nindxe = true", "there is no such field"),
        (
            "[topics.a]\n[topics.b]\n[job]\nheartbeat_ms = 100",
            "settings of the job changed: start the job again",
        ),
    ],
)
def test_a_file_that_can_not_be_served_leaves_everything_as_it_was(running, capsys, text, said):
    running.reads(text, ["a"])
    assert "goes on as before" in (printed := capsys.readouterr().out)
    assert said in printed


def test_a_topic_that_kafka_does_not_have_leaves_everything_as_it_was(running, capsys):
    runs = len(running.served)
    running.config.write_text("[topics.a]\n[topics.missing]")
    running.signals.read_again()
    eventually(lambda: len(running.served) > runs + 1)
    assert running.served[runs:] == [["a", "missing"], ["a"]]
    assert "goes on as before: topic 'missing' is unknown" in capsys.readouterr().out
    running.reads("[topics.b]", ["b"])
    assert running.exit_code is None


def test_two_signals_at_once_and_a_missing_topic_leave_everything_as_it_was(running):
    runs = len(running.served)
    running.config.write_text("[topics.a]\n[topics.missing]")
    running.hurried = True
    running.signals.read_again()
    eventually(lambda: len(running.served) > runs + 2)
    assert running.served[runs:] == [["a", "missing"], ["a", "missing"], ["a"]]
    running.reads("[topics.b]", ["b"])
    assert running.exit_code is None


def test_a_topic_that_is_missing_at_the_start_ends_the_job(starting):
    starting.config.write_text("[topics.missing]")
    starting.run()
    assert starting.exit_code == 4


def test_a_stop_is_not_lost_behind_a_signal_to_read_again(running):
    running.signals.read_again()
    running.signals.end()
    eventually(lambda: running.exit_code is not None)
