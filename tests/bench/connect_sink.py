"""A sink connector in Kafka Connect's standalone worker, as a user would run it instead of the job.

tests/bench/PEERS.md says how its folder is made: `worker/` with the jars of Kafka Connect, `plugins/`
with a folder of the connector's jars, and `sink.properties` with its settings.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from keylane_local.process.ports import HOST, Ports
from keylane_local.process.processes import tail
from keylane_local.process.program import Program
from keylane_local.tools import find_java

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import psutil

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
