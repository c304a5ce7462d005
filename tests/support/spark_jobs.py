"""A job on a Spark cluster, its traffic, and all that it holds compared with the log.

The job is sent to the cluster as docs/operate/spark.md says: `package` is what `make package-job` builds, but
for the libraries, which executors have from the tests' environment.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sys
import threading
import time
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from unittest.mock import patch

import psutil
import pytest
from confluent_kafka import Producer
from tests.servers.own import PATIENCE_S, create_topic, eventually
from tests.servers.spark_cluster import EXECUTOR_MEMORY
from tests.support import clocked_workers, jobs
from tests.support import lanes as t
from tests.support.jobs import State, Traffic
from tests.support.views import all_windows
from tests.torture.oracle import Acknowledged, Log, is_same, show
from tests.torture.schedule import Shape

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.errors import KeylaneError
from keylane.model.records import Options
from keylane.query.history import HistoryScan, read_history
from keylane.query.latest import read_latest
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store
from keylane_build import job_package
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.servers.spark_cluster import SparkCluster, SparkWorker

PARTITIONS = 4
TTL_MS = 1_800_000
"""Executors start as JVMs, several at a time, on a machine that does other things too."""
_TERMS = ReadTerms(timeout_ms=10_000)
_HISTORY = HistoryScan(limit=10_000)
_CONFIG = """\
[job]
{job}
small_batch_records = 0
max_batch_records = 4000
heartbeat_ms = 100
[topics.{plain}]
[topics.{mixed}]
history_count = 1000
[topics.{timed}]
ttl = "30m"
[views.{view}]
topic = "{plain}"
[views.{view}.columns]
n = "count()"
"""
_SPARK = """\
[spark]
"spark.master" = "{master}"
"spark.archives" = "{archive}#python"
"spark.executorEnv.PYTHONPATH" = "./python:{clocks}:{site_packages}"
"spark.executor.memory" = "512m"
"spark.executor.cores" = "1"
"spark.python.daemon.module" = "clocked_workers"
"""


def kill(processes: list[psutil.Process]) -> None:
    """Kill processes, of which there must be one, and wait until they have ended."""
    assert processes
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=60)


def package(folder: Path) -> Path:
    """The job's package, without its libraries, as `make package-job` builds it."""
    with patch.object(job_package, "_install"):
        job_package.build(folder, project_root() / "keylane.toml", "3.11")
    return folder


def complete_package(folder: Path) -> Path:
    """The job's package for this Python and this Spark, as `make package-job` builds it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    job_package.build(folder, project_root() / "keylane.toml", version)
    return folder


class SubmittedJob(jobs.RunningJob):
    """The package as a managed Spark starts it: `spark-submit`, with the archive for driver and executors.

    The driver's working directory has the unpacked archive. Nothing of the checkout is on its path, and its
    environment has what is given.
    """

    def __init__(
        self, package: Path, spark: SparkCluster, config: str, environment: dict[str, str], *options: str
    ) -> None:
        folder = package.parent / f"driver-{next(jobs.NUMBERS)}"
        with zipfile.ZipFile(package / "python.zip") as archive:
            archive.extractall(folder / "python")
        (folder / "keylane.toml").write_text(config)
        settings = {
            "spark.executorEnv.PYTHONPATH": "./python",
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.executor.cores": "1",
        }
        command = [str(spark.home / "bin" / "spark-submit"), "--master", spark.master]
        command += ["--jars", ",".join(map(str, (package / "jars").glob("*.jar")))]
        command += ["--archives", f"{package}/python.zip#python"]
        command += [f"--conf={name}={value}" for name, value in settings.items()]
        command += [*options, str(package / "main.py"), "--config", "keylane.toml"]
        own = {"PYTHONPATH": "./python", "PYSPARK_PYTHON": str(spark.python), "HOME": str(folder)}
        self.begin(folder, command, spark.environment | own | environment, folder)


class Claims:
    """Compares what lanes claim with what Kafka has acknowledged, in a thread, while its block runs.

    A lane that is complete as of a time has what was acknowledged before; one of a topic with strays has it
    of every partition.
    """

    def __init__(self, redis: str, shapes: dict[str, Shape]) -> None:
        self._states = {name: State(redis, name) for name in shapes}
        self._shapes = shapes
        self._acknowledged = Acknowledged()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.faults: list[str] = []
        self.checked = 0

    def note(self, topic: str, partition: int, offset: int) -> None:
        """Note that a record has been acknowledged by now."""
        with self._lock:
            self._acknowledged.note(t.CLOCK.now_ms(), [(topic, partition, offset)])

    def __enter__(self) -> Self:
        self._over.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._over.wait(0.02):
            for topic in self._shapes:
                try:
                    self.faults += self._look_at(topic)
                except KeylaneError as error:
                    self.faults.append(f"{topic}: {error!r}")

    def _look_at(self, topic: str) -> Iterator[str]:
        state, mixed = self._states[topic], self._shapes[topic].mixed
        claims = {lane: mark for lane, mark in state.watermarks().items() if mark}
        now_ms = t.CLOCK.now_ms()
        held = state.watermarks() if mixed else claims
        for (partition, stripe), mark in claims.items():
            claimed_ms = mark.complete_as_of_ms
            if claimed_ms > now_ms:
                yield f"{topic}/{partition} is complete as of {claimed_ms - now_ms} ms to come"
            for source in range(PARTITIONS) if mixed else [partition]:
                with self._lock:
                    due = self._acknowledged.next_offset(topic, source, claimed_ms)
                if (found := held[source, stripe]) is None or found.next_offset < due:
                    yield f"{topic}/{partition} claims {claimed_ms}, and lacks what {source} had below {due}"
            self.checked += claimed_ms > 0

    def close(self) -> None:
        for state in self._states.values():
            state.close()


@dataclass
class Scene:
    """A job on a Spark cluster over three topics and a view, all written by its executors.

    `plain` has values alone, which one transaction writes; `mixed` has tombstones, strays and histories;
    records of `timed` expire. The view counts the records of `plain`.
    """

    kafka: str
    redis: str
    spark: SparkCluster
    folder: Path
    name: str
    job: jobs.RunningJob = field(init=False)
    _number: int = 0
    _base_ms: int = field(default_factory=lambda: t.CLOCK.now_ms() - TTL_MS * 2)

    def __post_init__(self) -> None:
        self.plain, self.mixed, self.timed, self.view = (
            f"{self.name}-{kind}" for kind in ("plain", "mixed", "timed", "view")
        )
        options = {self.mixed: Options(history_count=1000), self.timed: Options(ttl_ms=TTL_MS)}
        self.shapes = {
            name: Shape(name, PARTITIONS, mixed=name == self.mixed, options=options.get(name, Options()))
            for name in (self.plain, self.mixed, self.timed)
        }
        for name in self.shapes:
            create_topic(self.kafka, name, PARTITIONS)
        self._clocks = self.folder / "clocks"
        self._clocks.mkdir()
        shutil.copy(clocked_workers.__file__, self._clocks)
        self._archive = self._package()
        self._log = Log(self.kafka, self.shapes)
        self._random = random.Random(self.name)
        self.claims = Claims(self.redis, self.shapes)
        self.states = {name: State(self.redis, name) for name in self.shapes}
        # No outage of Redis is part of this: a read that takes long met a busy machine.
        terms = {"timeout_ms": _TERMS.timeout_ms, "base_ms": self._base_ms}
        self.traffic = Traffic(self.kafka, self.states[self.plain], self.plain, **terms)
        self._producer = Producer({"bootstrap.servers": self.kafka, "partitioner": "murmur2_random"})

    def start(self, job: str = "") -> jobs.RunningJob:
        """Start a job, or the next one. `job`: more lines of its table."""
        names = {"plain": self.plain, "mixed": self.mixed, "timed": self.timed, "view": self.view}
        self.job = self._begin(_CONFIG.format(job=job, **names))
        self.job.wait_for("keylane: ready")
        return self.job

    def _package(self) -> Path:
        return package(self.folder / "job")

    def _begin(self, config: str) -> jobs.RunningJob:
        spark = _SPARK.format(
            master=self.spark.master,
            archive=self._archive / "python.zip",
            clocks=self._clocks,
            site_packages=self.spark.site_packages,
        )
        environment = {"PYSPARK_PYTHON": str(self.spark.python), "SPARK_LOCAL_IP": "127.0.0.1"}
        return jobs.start(self.kafka, self.redis, self.folder, config + spark, **environment)

    def close(self) -> None:
        self.job.end()
        self._log.close()
        self.claims.close()
        for state in self.states.values():
            state.close()

    def write(self, count: int) -> None:
        """Write so many records, and wait until Kafka has them."""
        for _ in range(count):
            self._number += 1
            topic = self.plain if self._number % 2 else self.mixed
            key, value = b"burst-%d" % self._random.randrange(500), b"%d" % self._number
            arguments = {}
            if topic == self.mixed and self._random.random() < 0.2:
                arguments["partition"] = self._random.randrange(PARTITIONS)
            if topic == self.mixed and self._random.random() < 0.2:
                value = None
            self.produce(topic, key, value, self._base_ms + self._number, **arguments)
        assert self._producer.flush(60) == 0

    def produce(self, topic: str, key: bytes, value: bytes | None, timestamp_ms: int, **arguments) -> None:
        """Write a record, and note when Kafka has acknowledged it."""

        def report(error, message) -> None:
            assert error is None
            self.claims.note(topic, message.partition(), message.offset())

        self._producer.produce(topic, value, key, timestamp=timestamp_ms, on_delivery=report, **arguments)
        self._producer.poll(0)

    @property
    def reached(self) -> int:
        """How many offsets the lanes have, of all topics together."""
        marks = [mark for state in self.states.values() for mark in state.watermarks().values()]
        return sum(mark.next_offset for mark in marks if mark)

    def in_a_burst(self, act: Callable[[], None], count: int = 40_000) -> None:
        """Do something while the job is in the middle of a burst: begun, and not at its end."""
        for _ in range(5):
            before = self.reached
            self.write(count)
            eventually(lambda least=before + count // 10: self.reached >= least)
            act()
            if self.reached < before + count * 3 // 4:
                return
            self.wait_until_written()
        pytest.fail("the job was at the end of each burst before anything was done to it")

    def wait_until_written(self) -> None:
        """Wait until the lanes have all that the log has now."""
        ends = self._log.ends()
        eventually(lambda: all(self._has(*source, end) for source, end in ends.items()))

    def _has(self, topic: str, partition: int, end: int) -> bool:
        mark = self.states[topic].watermarks()[partition, 0]
        return mark is not None and mark.next_offset >= end

    def wait_until_writing(self, *workers: SparkWorker) -> None:
        """Write until executors of these workers write to Redis: their processes are connected to it."""
        for worker in workers:
            until = time.monotonic() + PATIENCE_S
            while not self.is_connected(worker):
                assert time.monotonic() < until, f"no executor of worker {worker.port} writes"
                self.write(2_000)
                self.wait_until_written()

    def is_connected(self, worker: SparkWorker) -> bool:
        """Whether the job's code in an executor of the worker has a connection to Redis."""
        ports = {int(node.rpartition(":")[2]) for node in self.redis.split(",")}
        for process in worker.python_workers:
            with contextlib.suppress(psutil.Error):
                if any(each.raddr and each.raddr.port in ports for each in process.net_connections()):
                    return True
        return False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Read and write meanwhile, and compare claims; then compare all that is there with the log."""
        before = self.claims.checked
        with self.traffic, self.claims:
            yield
            self.wait_until_written()
        self.wait_until_written()
        self.traffic.check()
        assert self.claims.checked > before
        assert self.claims.faults == []
        self.check()

    def check(self) -> None:
        """Compare every key, every history and every count with the fold of the log."""
        self._log.read_on()
        self.wait_until_written()
        with contextlib.closing(RedisState(Cluster(t.settings(self.redis)))) as state:
            store = Store(state, Layouts(state, t.CLOCK, 0), t.CLOCK)
            assert list(self._faults(store)) == []
            wanted = {
                key: sum(each.value is not None for of in log.records.values() for each in of)
                for (topic, key), log in self._log.keys.items()
                if topic == self.plain
            }
            eventually(lambda: self._counts(store) == wanted)

    def _faults(self, store: Store) -> Iterator[str]:
        for (topic, key), log in self._log.keys.items():
            record, newest = read_latest(store, topic, key, _TERMS).record, log.newest()
            expected = None if newest is None or log.is_gone(newest, t.CLOCK.now_ms()) else newest
            if not is_same(record, expected):
                yield f"{topic}/{key!r}: the state has {show(record)}, the log {show(expected)}"
            if topic == self.mixed:
                page = read_history(store, topic, key, _HISTORY, _TERMS)
                held = [(each.position.partition, each.position.offset) for each in reversed(page.entries)]
                if held != [(each.partition, each.offset) for each in log.history()]:
                    yield f"{topic}/{key!r}: its history has {held}"

    def _counts(self, store: Store) -> dict[bytes, int]:
        """What the view has counted of each key."""
        windows = all_windows(store, self.view, _TERMS)
        return {window.key: json.loads(window.columns)["n"] for window in windows}


@dataclass
class SubmittedScene(Scene):
    """The same with the complete package, by `spark-submit`."""

    def _package(self) -> Path:
        return complete_package(self.folder / "job")

    def _begin(self, config: str) -> jobs.RunningJob:
        addresses = {"KEYLANE_KAFKA_BOOTSTRAP": self.kafka, "KEYLANE_REDIS_NODES": self.redis}
        return SubmittedJob(self._archive, self.spark, config, addresses)
