"""Kafka Streams with the orders of bench_find.py: a find is a scan of its store (StreamsScan.java)."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import bench_write
import peer_lookup
import stage
from confluent_kafka import Producer
from peers import QUIET

from keylane_local.tools import find_java

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from keylane_local.process.program import Program

JARS = "KEYLANE_PEER_STREAMS_JARS"
SOURCE = Path(__file__).with_name("StreamsScan.java")
START_S = 600
"""Within this the application has read what was written."""
FLUSHED_TOGETHER = 50_000


def is_there() -> bool:
    """Return whether the jars of Kafka Streams are there; say what is missing."""
    is_named = bool(os.environ.get(JARS))
    if not is_named:
        print(f"Kafka Streams is left out: {JARS} names no folder, see tests/bench/PEERS.md")
    return is_named


class Scan:
    """A topic with records, which may grow, and the address of the application that has read them."""

    def __init__(self, bootstrap: str, topic: str, program: Program, url: str) -> None:
        self.url = url
        self._topic = topic
        self._program = program
        self._producer = Producer(
            {**QUIET, "bootstrap.servers": bootstrap, **bench_write.SETTINGS, "linger.ms": 50}
        )

    def add(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Write records (key, value), and wait until the application has the last ones."""
        last: deque[tuple[bytes, bytes]] = deque(maxlen=peer_lookup.LAST)
        for number, (key, value) in enumerate(records, 1):
            self._producer.produce(self._topic, value, key)
            last.append((key, value))
            if number % FLUSHED_TOGETHER == 0:
                self._producer.flush()
        self._producer.flush()
        self._program.wait_until(lambda: peer_lookup.has_all(self.url, "/keys/{key}", last), START_S)


@contextlib.contextmanager
def scan(topic: str, partitions: int) -> Iterator[Scan]:
    """Yield an empty topic in a broker of its own, and the application; both stop with the block."""
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(stage.broker(topic, partitions))
        java = [find_java() or "java", "-Xmx2g", "-cp", f"{os.environ[JARS]}/*", str(SOURCE)]
        command = f"{shlex.join(java)} {{bootstrap}} {{topic}} {{port}} {{folder}}"
        started = peer_lookup.application(command, kafka.bootstrap, topic)
        url, program = stack.enter_context(started)
        yield Scan(kafka.bootstrap, topic, program, url)
