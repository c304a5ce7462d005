"""The job's process: it reads its file again at SIGHUP, ends when it was replaced, and says what it does."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.servers.own import eventually
from tests.support.cloudformation import template

from keylane.errors import Fenced, UnknownTopic
from keylane_spark import __main__ as job
from keylane_spark.__main__ import _say, _write

ADDRESSES = {"KEYLANE_KAFKA_BOOTSTRAP": "127.0.0.1:9", "KEYLANE_REDIS_NODES": "127.0.0.1:9"}


def without_spark(monkeypatch, serve):
    """Have the process serve so, without Spark."""

    def context(config, *others):
        return SimpleNamespace(config=config, checkpoint=others[3].name)

    monkeypatch.setattr(job, "_start_spark", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(job.session, "stop", lambda _: None)
    monkeypatch.setattr(job, "JobContext", context)
    monkeypatch.setattr(job.job, "run", serve)


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
    without_spark(monkeypatch, found.serve)
    monkeypatch.setattr(job, "_start_spark", found.start_spark)
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


POLL_S, HEALTHY_AFTER = 0.005, 10


@dataclass
class Lanes:
    """Which epoch has the lanes, and each start that took them."""

    takeovers: int = 0
    crashing: set[str] = field(default_factory=set)
    owner: str = ""


LANES = Lanes()


def serve(context, stop):
    """Stands for `keylane_spark.job.run`, which sets `stop` at its end, too."""
    revision = context.checkpoint
    LANES.takeovers, LANES.owner = LANES.takeovers + 1, revision
    epoch = LANES.takeovers
    try:
        if revision in LANES.crashing:
            raise job.EngineEnded("crashes")
        while not stop.wait(POLL_S):
            if LANES.takeovers > epoch:
                raise Fenced("flights/0", epoch, LANES.takeovers)
    finally:
        stop.set()


class Task:
    """A process of the job."""

    def __init__(self, config: Path, revision: str, **environment: str):
        self.revision, self.signals = revision, job.Signals()
        given = ADDRESSES | environment | {"KEYLANE_CHECKPOINT": revision}
        self.thread = threading.Thread(
            target=job.until_ended, args=(config, given, self.signals), daemon=True
        )
        self.thread.start()

    def stop(self):
        self.signals.end()
        self.thread.join()


class Service:
    """Keeps a task of each revision that it should; what ends is replaced by its own revision."""

    def __init__(self, start: Callable[[str], Task]):
        self.start, self.tasks = start, []

    def deploy(self, revision: str) -> bool:
        """Return whether the revision was deployed: else, after three failures, the old ones remain."""
        self.tasks.append(self.start(revision))
        failures = polls = 0
        while polls < HEALTHY_AFTER:
            threading.Event().wait(POLL_S)
            new = self.tasks[-1].thread
            polls = polls + 1 if new.is_alive() else 0
            failures += not new.is_alive()
            self.replace_ended()
            if failures == 3:
                self.tasks.pop().stop()
                return False
        for old in self.tasks[:-1]:
            old.stop()
        del self.tasks[:-1]
        return True

    def replace_ended(self):
        for at, each in enumerate(self.tasks):
            if not each.thread.is_alive():
                self.tasks[at] = self.start(each.revision)


@pytest.fixture
def task(monkeypatch, tmp_path):
    """Start a task of a revision, with an environment; all of them share new lanes."""
    without_spark(monkeypatch, serve)
    config = tmp_path / "keylane.toml"
    config.write_text("[topics.flights]\npartitions = 9\n")
    LANES.takeovers, LANES.crashing, LANES.owner = 0, set(), ""
    started = []

    def start(revision: str, **environment: str) -> Task:
        started.append(Task(config, revision, **environment))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def test_each_of_twenty_releases_takes_the_lanes_over_once(task):
    service = Service(partial(task, KEYLANE_FENCED_WAIT_S="420"))
    for release in range(20):
        assert service.deploy(f"revision-{release}")
        assert (LANES.takeovers, LANES.owner) == (release + 1, f"revision-{release}")


def test_after_a_release_that_crashes_the_old_job_takes_its_lanes_back(task):
    service = Service(partial(task, KEYLANE_FENCED_WAIT_S="1"))
    assert service.deploy("works")
    LANES.crashing = {"crashes"}
    assert not service.deploy("crashes")

    def is_back() -> bool:
        service.replace_ended()
        return LANES.owner == "works"

    eventually(is_back)


def test_without_the_setting_a_job_that_was_replaced_ends_at_once(task):
    first = task("first")
    eventually(lambda: LANES.owner == "first")
    task("second")
    eventually(lambda: not first.thread.is_alive())


FENCED_AT_ONCE = """
import sys
from types import SimpleNamespace
from keylane.errors import Fenced
from keylane_spark import __main__ as job

def serve(context, stop):
    stop.set()
    raise Fenced("flights/0", 1, 2)

job._start_spark = lambda *_, **__: SimpleNamespace()
job.session.stop = lambda _: None
job.JobContext = lambda *_: None
job.job.run = serve
sys.exit(job.main(["--config", sys.argv[1]]))
"""


def test_a_job_that_waits_ends_at_the_signal_with_its_exit_code(tmp_path):
    config = tmp_path / "keylane.toml"
    config.write_text("[topics.flights]\npartitions = 9\n")
    given = os.environ | ADDRESSES | {"KEYLANE_FENCED_WAIT_S": "60"}
    command = [sys.executable, "-c", FENCED_AT_ONCE, str(config)]
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True) as process:
        lines = iter(process.stdout.readline, "")
        assert any("waits for its end, 60 s at most" in line for line in lines)
        process.terminate()
        assert process.wait(20) == 3


SIGNAL_IN_A_LOOK = """
import signal
from keylane_spark.__main__ import Signals

signals = Signals()
signals.handle()
with signals.stop._cond:  # as each look at the event has it for some steps
    signal.raise_signal(signal.SIGTERM)
assert signals.stop.wait(20) and signals.asked.wait(20)
"""


def test_a_signal_between_any_two_steps_of_the_job_does_not_hold_it_up():
    subprocess.run([sys.executable, "-c", SIGNAL_IN_A_LOOK], timeout=60, check=True)


def test_the_wait_is_longer_than_a_new_task_may_take_to_get_healthy():
    [container] = template("infra/pipeline.yaml")["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    check = container["HealthCheck"]
    [wait] = [each["Value"] for each in container["Environment"] if each["Name"] == "KEYLANE_FENCED_WAIT_S"]
    assert int(wait) > check["StartPeriod"] + check["Interval"] * check["Retries"]


SIGNAL_IN_THE_IMPORTS = """
import importlib.abc, os, signal, sys

class SendsSignal(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "keylane_spark.job":
            os.kill(os.getpid(), signal.SIGHUP)

sys.meta_path.insert(0, SendsSignal())
"""
MODULE = "import runpy; runpy.run_module('keylane_spark', run_name='__main__', alter_sys=True)"
COMMAND = "from keylane_client.cli.__main__ import main; main()"


@pytest.mark.parametrize(("program", "words"), [(MODULE, []), (COMMAND, ["job"])])
def test_a_signal_to_read_again_in_the_imports_does_not_end_the_job(tmp_path, program, words):
    (tmp_path / "keylane.toml").write_text("[topics.a")
    command = [sys.executable, "-c", SIGNAL_IN_THE_IMPORTS + program, *words, "--config", "keylane.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "is not valid TOML" in done.stdout + done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(("encoding", "said"), [("utf-8", "é \\ud83d"), ("ascii", "\\xe9 \\ud83d")])
def test_a_line_that_the_output_can_not_encode_is_said_with_escapes(monkeypatch, encoding, said):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding))
    _write("é \ud83d")
    assert output.getvalue().decode(encoding) == f"{said}\n"


def test_an_output_that_is_full_or_closed_ends_nothing(monkeypatch):
    full = Path("/dev/full").open("w", encoding="utf-8", buffering=1)  # noqa: SIM115 (closing it fails)
    monkeypatch.setattr(sys, "stdout", full)
    _say("one")
    with pytest.raises(OSError, match="No space left"):
        full.close()
    _say("two")
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, "utf-8"))
    _say("three")
    assert output.getvalue().startswith(b"keylane: three ")
