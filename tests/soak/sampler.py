"""Samples of the whole stack, every few seconds, in a thread; each is a line of JSON in samples.jsonl.

They have what the system says of every process, and what servers say of themselves: Redis nodes, Kafka's
offsets, and the folders that the stack writes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import redis
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from keylane_local.tools import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane_local.stack.stack import Stack


KAFKA, SERVER, DRIVER, SPARK = "kafka", "server", "job's driver", "job's JVM"
DAEMON, WORKERS = "job's Python daemon", "job's Python workers"
WORKER, FORKS = "server's worker", "other forks"
LOAD = "the load"
"""This process: as many connections as it keeps, the server has."""
JVMS = KAFKA, SPARK
RSS, FDS, THREADS, CONNECTIONS, AGE, CPU, COUNT = (
    "rss_bytes", "fds", "threads", "connections", "process_age_s", "cpu_s", "processes"
)  # fmt: skip
HEAP_LIVE, HEAP_COMMITTED, METASPACE, NATIVE = (
    "heap_live_bytes", "heap_bytes", "metaspace_bytes", "native_bytes"
)  # fmt: skip
_HEAP = re.compile(r"^ *(?:.*generation|garbage-first heap) +total (\d+)K, used (\d+)K", re.MULTILINE)
_METASPACE = re.compile(r"^ *Metaspace +used (\d+)K", re.MULTILINE)

Figures = dict[str, float]


def find_processes(stack: Stack) -> dict[str, list[psutil.Process]]:
    """Return the running processes by name; only those that come and go may be several or none."""
    found: dict[str, list[psutil.Process]] = {WORKERS: [], FORKS: [], LOAD: [psutil.Process()]}
    for name, process in _mains(stack):
        _add(found, name, process)
    return found


def _mains(stack: Stack) -> Iterator[tuple[str, psutil.Process]]:
    programs = {KAFKA: stack.kafka.program}
    programs |= {f"redis {number}": node.program for number, node in enumerate(stack.redis.nodes)}
    programs |= {SERVER: stack.server.program, DRIVER: stack.job.program}
    for name, program in programs.items():
        if process := program.process:
            yield name, process


def _add(found: dict[str, list[psutil.Process]], name: str, process: psutil.Process) -> None:
    found.setdefault(name, []).append(process)
    children = []
    with contextlib.suppress(psutil.NoSuchProcess):
        children = process.children()
    for child in children:
        # A zombie has no command line.
        with contextlib.suppress(psutil.NoSuchProcess):
            _add(found, _name_of_child(name, child), child)


def _name_of_child(parent: str, child: psutil.Process) -> str:
    """Name a process by its parent; one that has just been forked still looks like it."""
    command = " ".join(child.cmdline())
    if parent == DRIVER and "java" in command:
        return SPARK
    if parent == SPARK and "daemon" in command:
        return DAEMON
    if parent in (DAEMON, WORKERS):
        return WORKERS
    return WORKER if parent == SERVER else FORKS


def measure(processes: list[psutil.Process]) -> Figures:
    """Return the sums over some processes; those that end meanwhile are left out."""
    sums: Figures = dict.fromkeys((RSS, FDS, THREADS, CONNECTIONS, CPU, COUNT), 0.0)
    begun_s = [time.time()]
    for process in processes:
        try:
            with process.oneshot():
                cpu = process.cpu_times()
                own = {
                    RSS: process.memory_info().rss,
                    FDS: process.num_fds(),
                    THREADS: process.num_threads(),
                    CONNECTIONS: len(process.net_connections("tcp")),
                    CPU: cpu.user + cpu.system,
                    COUNT: 1,
                }
                begun_s.append(process.create_time())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        for name, value in own.items():
            sums[name] += value
    return {**sums, AGE: begun_s[0] - min(begun_s)}


def measure_heap(process: psutil.Process) -> Figures:
    """Return what a JVM's heap holds after a full collection, and what it has of the system.

    `native_bytes` is the resident memory besides the heap, of a JVM that touches all that it has committed.
    Returns nothing without jcmd, or if the JVM has ended.
    """
    jcmd = Path(find_java() or "").resolve().parent / "jcmd"
    if not jcmd.exists():
        return {}
    try:
        _ask(jcmd, process.pid, "GC.run")
        text = _ask(jcmd, process.pid, "GC.heap_info")
        rss = process.memory_info().rss
    except (subprocess.SubprocessError, psutil.NoSuchProcess):
        return {}
    return parse_heap(text, rss)


def parse_heap(text: str, rss: float) -> Figures:
    """Return the figures of jcmd's GC.heap_info. Raises ValueError if it has none."""
    areas = [(int(total) * 1024, int(used) * 1024) for total, used in _HEAP.findall(text)]
    metaspace = _METASPACE.search(text)
    if not areas or not metaspace:
        raise ValueError(f"this names no heap: {text}")
    committed = sum(total for total, _ in areas)
    return {
        HEAP_LIVE: sum(used for _, used in areas),
        HEAP_COMMITTED: committed,
        METASPACE: int(metaspace[1]) * 1024,
        NATIVE: rss - committed,
    }


def _ask(jcmd: Path, pid: int, command: str) -> str:
    return subprocess.run(
        [jcmd, str(pid), command], capture_output=True, text=True, check=True, timeout=60
    ).stdout


USED_MEMORY, KEYS, CLIENTS, IS_PRIMARY = "used_memory_bytes", "keys", "clients", "is_primary"
DISK, FILES, RECORDS = "disk_bytes", "files", "records"
_FACTS = {USED_MEMORY: "used_memory", CLIENTS: "connected_clients"}


class StateReader:
    """Reads the figures of a stack's servers over connections of its own."""

    def __init__(self, stack: Stack, topics: dict[str, int]) -> None:
        """`topics`: partition counts by name."""
        self._stack = stack
        self._offsets = [
            TopicPartition(topic, partition) for topic, count in topics.items() for partition in range(count)
        ]
        self._admin = AdminClient({"bootstrap.servers": stack.kafka_bootstrap, "log_level": 0})
        self._nodes = {
            f"redis {number}": redis.Redis(port=node.port, socket_timeout=10)
            for number, node in enumerate(stack.redis.nodes)
        }

    def read(self) -> dict[str, Figures]:
        return {**self._redis(), **self._kafka(), **self._folders()}

    def close(self) -> None:
        for client in self._nodes.values():
            client.close()

    def _redis(self) -> dict[str, Figures]:
        found: dict[str, Figures] = {}
        for name, client in self._nodes.items():
            with contextlib.suppress(redis.RedisError):
                facts = client.info()
                found[name] = {figure: float(facts[fact]) for figure, fact in _FACTS.items()}
                found[name][KEYS] = float(facts.get("db0", {}).get("keys", 0))
                found[name][IS_PRIMARY] = float(facts["role"] == "master")
        return found

    def _kafka(self) -> dict[str, Figures]:
        futures = self._admin.list_offsets(
            {each: OffsetSpec.latest() for each in self._offsets}, request_timeout=10
        )
        sums: dict[str, Figures] = {}
        for each, future in futures.items():
            figures = sums.setdefault(f"topic {each.topic}", {RECORDS: 0.0})
            figures[RECORDS] += future.result(15).offset
        return sums

    def _folders(self) -> dict[str, Figures]:
        data = self._stack.data
        folders = {
            "kafka's log": data / "kafka", "Redis' files": data / "redis", "job's folder": data / "job",
            "job's checkpoint": data / "checkpoint",
        }  # fmt: skip
        sizes = {name: measure_folder(path) for name, path in folders.items()}
        # The server logs each request.
        logs = [path.stat().st_size for path in (data / "logs").iterdir() if path.name != "server.log"]
        return {**sizes, "logs": {DISK: float(sum(logs)), FILES: float(len(logs))}}


def measure_folder(path: Path) -> Figures:
    """Return how many files a folder has, and what they take of the disk; 0 if there is no such folder."""
    sizes = []
    for folder, _, files in os.walk(path):
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                sizes.append(os.stat(os.path.join(folder, file)).st_blocks * 512)  # noqa: PTH116, PTH118 (many)
    return {DISK: float(sum(sizes)), FILES: float(len(sizes))}


EVERY_S, HEAP_EVERY_S = 5.0, 120.0
"""A JVM's heap is measured by a full collection, which takes it a tenth of a second."""


class Sampler:
    """Samples from `start` to `stop`; `failures` has what could not be read."""

    def __init__(self, stack: Stack, topics: dict[str, int], to: Path) -> None:
        self.failures: list[str] = []
        self.latest: dict[str, Figures] = {}
        self._stack = stack
        self._to = to
        self._state = StateReader(stack, topics)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it, unless it has ended."""
        self._over.set()
        self._thread.join(120)
        self._state.close()

    def _run(self) -> None:
        begun_s = heap_s = time.monotonic()
        number = 0
        with self._to.open("w", encoding="utf-8") as file:
            while not self._over.wait(max(0.0, begun_s + number * EVERY_S - time.monotonic())):
                number = int((time.monotonic() - begun_s) / EVERY_S) + 1
                with_heap = time.monotonic() >= heap_s
                heap_s += HEAP_EVERY_S if with_heap else 0
                try:
                    self.latest = self._sample(with_heap=with_heap)
                except Exception as error:  # noqa: BLE001 - a server that is busy leaves a gap, which is counted
                    self.failures.append(repr(error))
                    continue
                file.write(json.dumps({"at_s": round(time.time(), 3), "figures": self.latest}) + "\n")
                file.flush()

    def _sample(self, *, with_heap: bool) -> dict[str, Figures]:
        figures = self._state.read()
        for name, processes in find_processes(self._stack).items():
            own = measure(processes)
            if with_heap and name in JVMS and processes:
                own |= measure_heap(processes[0])
            figures[name] = figures.get(name, {}) | own
        return figures


def read_series(samples: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return points (seconds since the first sample, value) by name and figure."""
    series: dict[str, dict[str, list[tuple[float, float]]]] = {}
    begun_s: float | None = None
    for line in samples.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        begun_s = sample["at_s"] if begun_s is None else begun_s
        for name, figures in sample["figures"].items():
            for figure, value in figures.items():
                points = series.setdefault(name, {}).setdefault(figure, [])
                points.append((round(sample["at_s"] - begun_s, 3), value))
    return series
