"""What the parts of a stack cost: processor time and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import redis

if TYPE_CHECKING:
    from keylane_local.stack.stack import Stack


def cpu_seconds(stack: Stack) -> dict[str, float]:
    """Return the seconds that Spark's JVM, the job's Python, Redis and Kafka have computed so far."""
    job = stack.job.program.process
    family = [job, *job.children(recursive=True)] if job else []
    java = [process for process in family if process.name() == "java"]
    parts = {
        "JVM": java,
        "Python": [process for process in family if process not in java],
        "Redis": [node.program.process for node in stack.redis.nodes],
        "Kafka": [stack.kafka.program.process],
    }
    seconds = {}
    for part, processes in parts.items():
        seconds[part] = sum(map(_cpu_seconds, processes))
    return seconds


def family_seconds(process: psutil.Process) -> float:
    """Return the seconds that a process and its children have computed so far."""
    return sum(map(_cpu_seconds, [process, *process.children(recursive=True)]))


def _cpu_seconds(process: psutil.Process) -> float:
    """Of a process that has ended since it was listed (Hadoop forks a `chmod` for each file): 0."""
    try:
        found = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(found.user + found.system)


def memory_bytes(stack: Stack) -> int:
    """Return how much memory the primaries use."""
    total = 0
    for node in stack.redis.primaries():
        with redis.Redis(port=node.port) as client:
            total += client.info("memory")["used_memory"]
    return total
