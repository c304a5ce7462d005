"""Spark jobs as processes, and traffic that goes on while they change: one writer and one reader."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import httpx
import psutil
import pyspark
import pytest
from confluent_kafka import Producer
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.servers.own import PATIENCE_S, eventually, resume, suspend
from tests.support import lanes as t

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.errors import KeylaneError, LaneBuilding, UnknownTopic
from keylane.model.records import Position
from keylane.query.latest import Wait, read_latest
from keylane.query.layouts import Layouts
from keylane.query.store import ReadTerms, Store
from keylane.state import codec
from keylane_local.process.ports import HOST
from keylane_local.tools import jars_dir
from keylane_spark.lanes.lane import lanes_of
from keylane_spark.lanes.layout_store import LayoutStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from keylane.model.records import Layout, Watermark
    from keylane_spark.lanes.topic_record import TopicRecord

NUMBERS = itertools.count()
JARS = jars_dir(pyspark.__version__)
"""Those of the Spark with which the tests run: see `make spark-versions`."""
SELDOM = '"spark.sql.streaming.pollingDelay" = "200ms"\n'
"""A query of Spark asks Kafka so often, and not every 10 ms: a job that waits, and its broker, take less."""


class RunningJob:
    """`python -m keylane_spark`, or another module that runs it, with its output in a file."""

    def __init__(
        self,
        folder: Path,
        environment: dict[str, str],
        module: str = "keylane_spark",
        command: Sequence[str] = (),
    ) -> None:
        words = [*(command or (sys.executable, "-m", module)), "--config", str(folder / "keylane.toml")]
        self.begin(folder, words, {**os.environ, **environment})

    def begin(
        self, folder: Path, command: list[str], environment: dict[str, str], cwd: Path | None = None
    ) -> None:
        self.log = folder / f"job-{next(NUMBERS)}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def wait_for(self, text: str, timeout_s: float = PATIENCE_S, *, after: int = 0) -> str:
        """The log's first line (of those from number `after` on) with this text.

        Fails when the job says none or ends before.
        """
        until = time.monotonic() + timeout_s
        while True:
            over = time.monotonic() > until or self.process.poll() is not None
            for line in self.lines[after:]:
                if text in line:
                    return line
            if over:
                self.kill()  # a fixture that fails here would leave it running
                pytest.fail(f"no line with {text!r}:\n" + "\n".join(self.lines[-30:]))
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill all of its processes, if it is still running."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait(60)

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        os.killpg(self.process.pid, number)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """All of its processes stand still meanwhile, and have come to a stop before the block begins."""
        job, stopped = psutil.Process(self.process.pid), set[int]()
        try:
            # Python's workers are a group of their own; and one may have started another meanwhile.
            while found := {each.pid for each in (job, *job.children(recursive=True))} - stopped:
                stopped |= found
                suspend(*found)
            yield
        finally:
            resume(*stopped)

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_S)

    def end(self) -> None:
        """Stop it gracefully, if it is still running."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                pytest.fail(f"it does not end:\n{self._standing()}")
            finally:
                self.kill()

    def _standing(self) -> str:
        """Where the threads of its JVM and of its own process stand, by their log: this ends the process."""
        before, process = len(self.lines), psutil.Process(self.process.pid)
        for each in process.children(recursive=True):
            if each.name() == "java":
                each.send_signal(signal.SIGQUIT)
                eventually(lambda: any("JNI global refs" in line for line in self.lines[before:]))
        process.send_signal(signal.SIGABRT)  # see PYTHONFAULTHANDLER
        self.process.wait(PATIENCE_S)
        return "\n".join(self.lines[before:])


def epoch_of(job: RunningJob) -> int:
    return int(job.wait_for("keylane: ready: epoch ").split("epoch ")[1].split(",")[0])


def start(
    kafka: str,
    redis_cluster: str,
    folder: Path,
    config: str,
    *,
    module: str = "keylane_spark",
    command: Sequence[str] = (),
    **environment: str,
) -> RunningJob:
    """Start a job with this config and its own checkpoint folder. `command`: another one than Python's."""
    before, _, after = config.partition("[spark]\n")
    (folder / "keylane.toml").write_text(f"{before}\n[spark]\n{SELDOM}{after}")
    addresses = {
        "KEYLANE_KAFKA_BOOTSTRAP": kafka,
        "KEYLANE_REDIS_NODES": redis_cluster,
        "KEYLANE_JARS": str(JARS),
        "KEYLANE_CHECKPOINT": str(folder / f"checkpoint-{next(NUMBERS)}"),
        "PYTHONFAULTHANDLER": "1",
    }
    return RunningJob(folder, addresses | environment, module, command)


@contextlib.contextmanager
def running(kafka: str, redis_cluster: str, folder: Path, config: str, **how: str) -> Iterator[RunningJob]:
    """Start a job as `start` does, and end it with the block, whatever fails in it."""
    job = start(kafka, redis_cluster, folder, config, **how)
    try:
        yield job
    finally:
        job.end()


def scrape(port: int) -> dict[tuple[str, ...], float]:
    """A job's samples by name and label values, as Prometheus asks for them and reads them."""
    accept = "application/openmetrics-text; version=1.0.0"
    answer = httpx.get(f"http://{HOST}:{port}/metrics", headers={"Accept": accept}, timeout=10)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


class State:
    """A topic's state as its writers and readers see it."""

    def __init__(self, nodes: str, topic: str) -> None:
        self._nodes = nodes
        self._cluster = Cluster(t.settings(nodes))
        self._store = LayoutStore(self._cluster, t.CLOCK)
        self._topic = topic

    @property
    def layout(self) -> Layout | None:
        return self._store.get(self._topic)

    @property
    def record(self) -> TopicRecord | None:
        return self._store.record(self._topic)

    @property
    def strays(self) -> dict[str, int]:
        return self._store.strays(self.layout) if self.layout else {}

    def watermarks(self, layout: Layout | None = None) -> dict[tuple[int, int], Watermark | None]:
        """The watermarks of all lanes by partition and stripe."""
        layout = layout or self.layout
        assert layout
        state = RedisState(self._cluster)
        found = {}
        for lane in lanes_of(layout):
            (data,) = state.read(lane.slot, [lane.watermark_key], t.Deadline.after_ms(5000, t.CLOCK))
            found[lane.partition, lane.stripe] = data and codec.decode_watermark(data)
        return found

    def keys_of(self, generation: int) -> set[bytes]:
        """All keys of a generation, found by a scan of all keys."""
        with t.client(self._nodes) as client:
            pattern = f"{{*}}:{self._topic}:{generation}:*"
            return set(client.scan_iter(match=pattern, count=10_000, target_nodes="primaries"))

    def reader(self, layout_ttl_s: float = 30, timeout_ms: float = 5_000) -> Reader:
        return Reader(RedisState(Cluster(t.settings(self._nodes))), self._topic, layout_ttl_s, timeout_ms)

    def holds(self, values: dict[bytes, bytes | None]) -> bool:
        """Whether a reader gets just these values."""
        reader = self.reader(layout_ttl_s=0)
        try:
            return values_of(reader, list(values)) == values
        except (LaneBuilding, UnknownTopic):
            return False
        finally:
            reader.close()

    def close(self) -> None:
        self._cluster.close()


class Reader:
    """A warm query function: it caches the layout for its time to live."""

    def __init__(self, state: RedisState, topic: str, layout_ttl_s: float, timeout_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._state = state
        self._topic = topic
        self._store = Store(state, Layouts(state, t.CLOCK, layout_ttl_s), t.CLOCK)

    def latest(self, key: bytes, *, partial: bool = False, **wait):
        terms = ReadTerms(self._timeout_ms, partial=partial)
        return read_latest(self._store, self._topic, key, terms, Wait(**wait))

    def value(self, key: bytes, **arguments) -> bytes | None:
        record = self.latest(key, **arguments).record
        return record.value if record else None

    def close(self) -> None:
        self._state.close()


@dataclass
class Traffic:
    """Writes rising numbers under some keys and reads them, in two threads, while its block runs.

    Timestamps rise with every record, so the records of a key are in the order of their numbers, whatever
    partitions they are in. Every tenth write is read by its position, as a client reads its own writes.
    """

    kafka: str
    state: State
    topic: str
    partitioner: str = "murmur2_random"
    keys: int = 200
    pause_s: float = 0.005
    wait_ms: float = PATIENCE_S * 1000
    timeout_ms: float = 5_000
    written: dict[bytes, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    reads: int = 0
    waited: int = 0
    # Recent: Kafka's retention uses these timestamps.
    base_ms: int = field(default_factory=lambda: t.CLOCK.now_ms() - 600_000)
    _number: int = 0
    _positions: list[tuple[bytes, int, Position]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._over.clear()
        self._threads = [threading.Thread(target=each) for each in (self._write, self._read)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def key(self, number: int) -> bytes:
        return b"key-%d" % (number % self.keys)

    def write_some(self, count: int) -> None:
        """Write `count` records, and wait until Kafka has them."""
        producer = self._producer()
        for _ in range(count):
            self._produce(producer)
        assert producer.flush(60) == 0

    def check(self) -> None:
        """Assert that no read failed or went back, and that every key has its last value."""
        assert not self.faults, (len(self.faults), self.faults[:5])
        assert self.reads > 0
        reader = self.state.reader(timeout_ms=self.timeout_ms)
        last = {key: b"%d" % number for key, number in self.written.items()}
        eventually(lambda: values_of(reader, list(last)) == last)
        reader.close()

    def _producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.kafka,
                "partitioner": self.partitioner,
                "linger.ms": 1,
                # By this interval a client notices new partitions.
                "topic.metadata.refresh.interval.ms": 200,
            }
        )

    def _produce(self, producer: Producer) -> None:
        self._number += 1
        key, number = self.key(self._number * 7), self._number

        def report(error, message) -> None:
            if error:
                self.faults.append(f"not written: {error}")
                return
            self.written[key] = max(number, self.written.get(key, 0))
            if number % 10 == 0:
                self._positions.append((key, number, Position(message.partition(), message.offset())))

        producer.produce(
            self.topic, key=key, value=b"%d" % number, timestamp=self.base_ms + number, on_delivery=report
        )
        producer.poll(0)

    def _write(self) -> None:
        producer = self._producer()
        while not self._over.wait(self.pause_s):
            self._produce(producer)
        assert producer.flush(60) == 0

    def _read(self) -> None:
        readers = [self.state.reader(ttl_s, self.timeout_ms) for ttl_s in (30, 0)]
        seen: dict[bytes, int] = {}
        for turn in itertools.count():
            if self._over.wait(self.pause_s / 2):
                break
            reader = readers[turn % len(readers)]
            try:
                if turn % 20 == 0 and self._positions:
                    key, at_least, position = self._positions.pop()
                    answer = reader.latest(key, min_position=position, position_ms=self.wait_ms)
                    number = int(answer.record.value) if answer.record else 0
                    self.waited += 1
                    if number < at_least:
                        self.faults.append(f"{at_least} was written at {position}, read was {answer}")
                else:
                    key = self.key(turn)
                    number = int(reader.value(key) or 0)
            except KeylaneError as error:
                self.faults.append(f"{type(error).__name__}: {error}")
                continue
            self.reads += 1
            if number < seen.get(key, 0):
                self.faults.append(f"{key!r} went back: {seen[key]} -> {number}")
            seen[key] = max(number, seen.get(key, 0))
        for reader in readers:
            reader.close()


def values_of(reader: Reader, keys: list[bytes]) -> dict[bytes, bytes | None]:
    return {key: reader.value(key) for key in keys}
