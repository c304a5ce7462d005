"""The job beside a Redis sink connector in Kafka Connect's standalone worker: see bench_peers.py.

tests/bench/PEERS.md says how the folder of the connector is made: `worker/` with the jars of Kafka Connect,
`plugins/` with a folder of its jars, and `sink.properties` with its settings."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import time
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_ingest import CONFIG, LAYOUT, TOPIC, halted, produce, running, value_of, wait_until_whole
from confluent_kafka import Consumer, KafkaException, TopicPartition
from harness import ResultRow, configured, report
from peers import RECIPE
from stage import cpu_seconds, family_seconds

from keylane_local.process.ports import HOST, Ports
from keylane_local.process.processes import tail
from keylane_local.process.program import Program
from keylane_local.tools import find_java

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import psutil

    from keylane_local.stack.stack import Stack
    from keylane_local.stack.watching import Lanes


NAME = "peer"
SETTINGS_FILE = "sink.properties"
MAIN_CLASS = "org.apache.kafka.connect.cli.ConnectStandalone"
TIMEOUT_S = 300
LOOK_S = 0.05
LOOK_AT_TASKS_S = 2.0
WORKER = """\
bootstrap.servers={bootstrap}
listeners=http://{host}:{port}
plugin.path={plugins}
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
offset.storage.file.filename={offsets}
offset.flush.interval.ms=100
consumer.auto.offset.reset=earliest
consumer.session.timeout.ms=900000
consumer.max.poll.interval.ms=1800000
"""
"""Offsets are committed often, because they show what has arrived. The sink is suspended while others run."""


def missing(folder: Path) -> list[str]:
    """Return what the recipe would have put into the folder, and is not there."""
    wanted = {"worker": "connect-runtime-*.jar", "plugins": "*/*.jar", ".": SETTINGS_FILE}
    return [f"{place}/{name}" for place, name in wanted.items() if not any((folder / place).glob(name))]


def sink_properties(text: str, values: Mapping[str, object]) -> str:
    """Return a connector's settings: those of its folder, with {names} replaced, behind what all have."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return f"name={NAME}\ntopics={values['topic']}\ntasks.max={values['tasks']}\n{text}"


def connector_class(text: str) -> str:
    """Return the connector that the settings name. The rest of them may hold passwords."""
    found = re.search(r"^\s*connector\.class\s*[=:]\s*(\S+)", text, re.MULTILINE)
    return found[1] if found else "not named"


def failed_tasks(status: Mapping[str, Any]) -> list[str]:
    """Return the tasks that have failed, each with its first error and the cause, of a connector's status."""
    return [
        f"task {task['id']}: {_summary(task.get('trace', 'no trace'))}"
        for task in status.get("tasks", [])
        if task["state"] == "FAILED"
    ]


def _summary(trace: str) -> str:
    error, *rest = trace.splitlines() or ["no trace"]
    causes = [line for line in rest if line.startswith("Caused by: ")]
    return "; ".join([error, *causes[-1:]])


class ConnectSink:
    """The worker with its one connector. Whatever guards `data` ends it."""

    def __init__(self, folder: Path, data: Path, bootstrap: str, values: Mapping[str, object]) -> None:
        settings = data / "connect"
        settings.mkdir(parents=True)
        worker, sink = settings / "worker.properties", settings / "sink.properties"
        port = Ports().any()
        self._status = f"http://{HOST}:{port}/connectors/{NAME}/status"
        worker.write_text(
            WORKER.format(
                bootstrap=bootstrap,
                host=HOST,
                port=port,
                plugins=(folder / "plugins").absolute(),
                offsets=settings / "offsets",
            )
        )
        sink.write_text(sink_properties((folder / SETTINGS_FILE).read_text(), values))
        java = find_java()
        if java is None:
            raise SystemExit("Kafka Connect needs Java: run `make setup`")
        self._program = Program(
            "connect",
            [java, "-cp", f"{folder.absolute()}/worker/*", MAIN_CLASS, worker, sink],
            data / "run" / "connect.json",
            data / "logs" / "connect.log",
        )
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"connect-{NAME}"})
        self._topic = str(values["topic"])

    def start(self) -> None:
        self._program.start()

    @property
    def process(self) -> psutil.Process:
        if (process := self._program.process) is None:
            raise SystemExit(f"Kafka Connect has ended:\n{tail(self._program.log)}")
        return process

    def wait_until_committed(self, ends: Mapping[int, int]) -> float:
        """Return the time (perf_counter) at which it has committed these offsets, after its writes."""
        until_s = time.perf_counter() + TIMEOUT_S
        look_at_s = time.perf_counter() + LOOK_AT_TASKS_S
        while (now_s := time.perf_counter()) < until_s:
            if self._has_committed(ends):
                return time.perf_counter()
            assert self.process
            if now_s > look_at_s:
                if failed := failed_tasks(self._read_status()):
                    raise SystemExit(f"the connector has failed, {failed[0]}")
                look_at_s = now_s + LOOK_AT_TASKS_S
            time.sleep(LOOK_S)
        raise SystemExit(f"Kafka Connect did not get to {ends} in {TIMEOUT_S} s:\n{tail(self._program.log)}")

    def _has_committed(self, ends: Mapping[int, int]) -> bool:
        places = [TopicPartition(self._topic, partition) for partition in ends]
        try:
            found = self._consumer.committed(places, timeout=10)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False  # the coordinator of a new group is not there at once
        return all(place.offset >= ends[place.partition] for place in found)

    def _read_status(self) -> dict[str, Any]:
        """Return the connector's status, or an empty one while the worker does not answer."""
        try:
            with urllib.request.urlopen(self._status, timeout=5) as answer:  # noqa: S310 - loopback
                return dict(json.load(answer))
        except OSError:
            return {}

    def close(self) -> None:
        self._consumer.close()
        self._program.stop()


CONNECT = "KEYLANE_PEER_CONNECT_REDIS"
JOB, SINK = "the job", "sink connector in Kafka Connect"


@dataclass(frozen=True, slots=True)
class Reader:
    """A process that reads the topic; `wait` returns the time at which it has all of it."""

    name: str
    process: psutil.Process
    wait: Callable[[], float]


def why_not() -> str:
    """Return why the connector cannot be measured, or an empty string."""
    if not (folder := os.environ.get(CONNECT)):
        return f"{SINK}: not installed ({CONNECT} is not set), {RECIPE}"
    lacking = missing(Path(folder))
    return f"{SINK}: {folder} lacks {', '.join(lacking)}, {RECIPE}" if lacking else ""


def measure(chosen: argparse.Namespace) -> None:
    config = CONFIG.format(partitions=LAYOUT.partition_count, stripes=LAYOUT.stripes)
    with running(configured(config, chosen)) as (stack, lanes):
        values = {
            "topic": TOPIC,
            "tasks": LAYOUT.partition_count,
            "redis_node": stack.redis.nodes[0].address,
            "redis_nodes": ",".join(node.address for node in stack.redis.nodes),
        }
        sink = ConnectSink(Path(os.environ[CONNECT]), stack.data, stack.kafka_bootstrap, values)
        with contextlib.closing(sink):
            sink.start()
            rows = ingest(stack, lanes, sink, chosen)
    facts = {"connector": connector_class((Path(os.environ[CONNECT]) / SETTINGS_FILE).read_text())}
    settings = vars(chosen)
    unit = "records/s, CPU in us a record"
    report("peers-ingest", unit, rows, reference=SINK, settings=settings, facts=facts)


def ingest(stack: Stack, lanes: Lanes, sink: ConnectSink, chosen: argparse.Namespace) -> list[ResultRow]:
    """Measure all rounds; the first backlog only warms up."""
    job = stack.job.program.process
    assert job is not None
    turns = [
        Reader(JOB, job, lambda: wait_until_whole(lanes)),
        Reader(SINK, sink.process, lambda: sink.wait_until_committed(lanes.end_offsets())),
    ]
    value, first = value_of(chosen.value_bytes), 0
    samples: dict[str, list[tuple[float, float]]] = {JOB: [], SINK: []}
    for number in range(chosen.rounds + 1):
        count = chosen.records if number else chosen.warm_up
        print(f"round {number} of {chosen.rounds}" if number else "warm-up", flush=True)
        for name, sample in in_turns(
            stack, turns, partial(produce, stack.kafka_bootstrap, first, count, value)
        ):
            if number:
                samples[name].append(sample)
        first += count
        turns.reverse()
    return [
        ResultRow(
            name,
            {
                "records/s": chosen.records / statistics.median(took_s for took_s, _ in taken),
                "CPU": statistics.median(cpu_s for _, cpu_s in taken) / chosen.records * 1e6,
            },
        )
        for name, taken in samples.items()
    ]


def in_turns(
    stack: Stack, turns: Sequence[Reader], fill: Callable[[], None]
) -> Iterator[tuple[str, tuple[float, float]]]:
    """Fill the topic while nobody reads it; yield what each takes, in s and in s of CPU with its servers."""
    first, second = turns
    with contextlib.ExitStack() as held:
        held.enter_context(halted(second.process))
        with halted(first.process):
            fill()
            time.sleep(1)
            before, began_s = computed(stack, first), time.perf_counter()
        yield first.name, (first.wait() - began_s, computed(stack, first) - before)
        with halted(first.process):
            before, began_s = computed(stack, second), time.perf_counter()
            held.close()
            yield second.name, (second.wait() - began_s, computed(stack, second) - before)


def computed(stack: Stack, reader: Reader) -> float:
    """Return the seconds that all processes of the reader, Redis and Kafka have computed so far."""
    of_stack = cpu_seconds(stack)
    return family_seconds(reader.process) + of_stack["Redis"] + of_stack["Kafka"]
