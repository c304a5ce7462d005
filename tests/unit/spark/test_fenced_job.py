"""A job that another one has replaced, under a service that starts again whatever ends, as ECS does."""

from __future__ import annotations

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
from tests.support.cloudformation import template

from keylane.errors import Fenced
from keylane.ports import Clock
from keylane_spark import __main__ as job

ADDRESSES = {"KEYLANE_KAFKA_BOOTSTRAP": "127.0.0.1:9", "KEYLANE_REDIS_NODES": "127.0.0.1:9"}
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
    monkeypatch.setattr(job, "_start_spark", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(job.session, "stop", lambda _: None)
    monkeypatch.setattr(job, "JobContext", lambda *given: SimpleNamespace(checkpoint=given[4].name))
    monkeypatch.setattr(job.job, "run", serve)
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


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = Clock().monotonic_s() + 20
    while not is_so():
        assert Clock().monotonic_s() < deadline_s
        threading.Event().wait(POLL_S)


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

    wait_until(is_back)


def test_without_the_setting_a_job_that_was_replaced_ends_at_once(task):
    first = task("first")
    wait_until(lambda: LANES.owner == "first")
    task("second")
    wait_until(lambda: not first.thread.is_alive())


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


def test_the_wait_is_longer_than_a_new_task_may_take_to_get_healthy():
    [container] = template("infra/pipeline.yaml")["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    check = container["HealthCheck"]
    [wait] = [each["Value"] for each in container["Environment"] if each["Name"] == "KEYLANE_FENCED_WAIT_S"]
    assert int(wait) > check["StartPeriod"] + check["Interval"] * check["Retries"]
