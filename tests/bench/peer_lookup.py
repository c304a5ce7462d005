"""Kafka Streams, whose application serves its store over HTTP, beside `keylane serve`: see bench_peers.py.

A find of the orders of bench_find.py is a scan of its store (StreamsScan.java).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import bench_serve
import stage
import state
from harness import report
from peers import UNIT, WARM_UP_S, Contender, Load, in_turns, measured, why_not_served

from keylane_local.process.ports import HOST, Ports
from keylane_local.process.program import Program
from keylane_local.tools import find_java

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import psutil


STREAMS = "KEYLANE_PEER_STREAMS"
STREAMS_PATH = "KEYLANE_PEER_STREAMS_PATH"
DEFAULT_PATH = "/messages/{key}"
PEER = "Kafka Streams application"
START_S = 120
WARM_ANSWERS, WARM_UP_LIMIT_S = 100_000, 60
LAST = 200
"""So many of the last records have reached every partition's end."""


def why_not() -> str:
    """Return why the application cannot be measured, or an empty string."""
    return why_not_served(PEER, STREAMS)


def command_of(text: str, values: Mapping[str, object]) -> list[str]:
    """Return the words of a command with {names} replaced, also where a value has spaces."""
    words = shlex.split(text)
    for name, value in values.items():
        words = [word.replace(f"{{{name}}}", str(value)) for word in words]
    return words


def measure(chosen: argparse.Namespace) -> None:
    path = os.environ.get(STREAMS_PATH, DEFAULT_PATH)
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(stage.broker(state.LAYOUT.topic, state.LAYOUT.partition_count))
        redis = stack.enter_context(stage.redis_cluster(replicas=0))
        records = state.fill(redis.addresses, chosen.keys, chosen.lookup_bytes)
        stage.write_all(kafka.bootstrap, state.LAYOUT.topic, records)
        variables = state.environment(redis.addresses)
        served = stack.enter_context(stage.standing_server(variables, chosen.workers))
        if not has_all(served.url, bench_serve.PATH, records[-LAST:]):
            raise SystemExit(f"{bench_serve.SERVER} has other values than were written")
        url, process = stack.enter_context(streams(kafka.bootstrap, path, records[-LAST:]))
        nodes = {"Redis": [node.program.process for node in redis.nodes]}
        ours = bench_serve.contender(served, nodes)
        theirs = Contender(PEER, url, process, {})
        turns = {}
        for each, each_path in ((ours, bench_serve.PATH), (theirs, path)):
            script = bench_serve.lookup_script(chosen.keys, each_path)
            load = partial(Load, "", script, chosen.connections)
            warm_up(each, load(WARM_UP_S))
            turns[each.name] = partial(figures_under, each, load(chosen.seconds))
        rows = in_turns(turns, chosen.rounds)
    report("peers-lookup", UNIT, rows, reference=PEER, settings=vars(chosen))


def warm_up(contender: Contender, load: Load) -> None:
    """Repeat the load until so many requests have been answered: Java compiles what runs often."""
    answered, until_s = 0, time.monotonic() + WARM_UP_LIMIT_S
    while answered < WARM_ANSWERS and time.monotonic() < until_s:
        answered += measured(contender, load)[0]


def figures_under(contender: Contender, load: Load) -> dict[str, float]:
    return measured(contender, load)[1]


@contextlib.contextmanager
def streams(
    bootstrap: str, path: str, last: Sequence[tuple[bytes, bytes]]
) -> Iterator[tuple[str, psutil.Process]]:
    """Yield address and process of the application once it has all records; it stops with the block."""
    with application(os.environ[STREAMS], bootstrap, state.LAYOUT.topic) as (url, program):
        program.wait_until(lambda: has_all(url, path, last), START_S)
        process = program.process
        assert process is not None
        yield url, process


@contextlib.contextmanager
def application(command: str, bootstrap: str, topic: str) -> Iterator[tuple[str, Program]]:
    """Yield the address of an application, by its command (see `command_of`); it stops with the block."""
    port = Ports().any()
    with stage.own_folder() as data:
        values = {"bootstrap": bootstrap, "topic": topic, "port": port, "folder": data / "store"}
        program = Program(
            "streams",
            command_of(command, values),
            data / "run" / "streams.json",
            data / "logs" / "streams.log",
        )
        program.start()
        yield f"http://{HOST}:{port}", program


def has_all(url: str, path: str, records: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether each of these keys has its value there."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    try:
        for key, value in records:
            connection.request("GET", path.replace("{key}", key.decode()))
            answer = connection.getresponse()
            if not holds(answer.read(), value) or answer.status != http.client.OK:
                return False
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def holds(body: bytes, value: bytes) -> bool:
    """Return whether a response has the value, as it is or as a string within JSON."""
    return value in body or json.dumps(value.decode())[1:-1].encode() in body


JARS = "KEYLANE_PEER_STREAMS_JARS"
SOURCE = Path(__file__).with_name("StreamsScan.java")
SCAN_START_S = 600
"""Within this the application has read what was written."""


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
        self._bootstrap, self._topic = bootstrap, topic
        self._program = program

    def add(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Write records (key, value), and wait until the application has the last ones."""
        last: deque[tuple[bytes, bytes]] = deque(maxlen=LAST)
        stage.write_all(self._bootstrap, self._topic, (last.append(each) or each for each in records))
        self._program.wait_until(lambda: has_all(self.url, "/keys/{key}", last), SCAN_START_S)


@contextlib.contextmanager
def scan(topic: str, partitions: int) -> Iterator[Scan]:
    """Yield an empty topic in a broker of its own, and the application; both stop with the block."""
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(stage.broker(topic, partitions))
        java = [find_java() or "java", "-Xmx2g", "-cp", f"{os.environ[JARS]}/*", str(SOURCE)]
        command = f"{shlex.join(java)} {{bootstrap}} {{topic}} {{port}} {{folder}}"
        started = application(command, kafka.bootstrap, topic)
        url, program = stack.enter_context(started)
        yield Scan(kafka.bootstrap, topic, program, url)
