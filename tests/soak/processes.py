"""Every process of the stack, by what it is, and what the system says of it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

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
