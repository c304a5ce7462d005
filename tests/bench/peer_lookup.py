"""`keylane serve` beside a Kafka Streams application that serves its store over HTTP: see bench_peers.py."""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import bench_serve
import bench_write
import psutil
import state
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness import report
from peers import QUIET, UNIT, WARM_UP_S, Contender, Load, in_turns, measured, why_not_served

from keylane_local.process.guard import guarded
from keylane_local.process.ports import HOST, Ports
from keylane_local.process.program import Program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

STREAMS = "KEYLANE_PEER_STREAMS"
STREAMS_PATH = "KEYLANE_PEER_STREAMS_PATH"
DEFAULT_PATH = "/messages/{key}"
PEER = "Kafka Streams application"
START_S = 120
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
        kafka = stack.enter_context(bench_write.kafka())
        redis = stack.enter_context(state.redis_cluster(replicas=0))
        records = state.fill(redis.addresses, chosen.keys, chosen.lookup_bytes)
        produce(kafka.bootstrap, records)
        served = stack.enter_context(
            bench_serve.standing_server(state.environment(redis.addresses), workers=1)
        )
        url, process = stack.enter_context(streams(kafka.bootstrap, path, records[-LAST:]))
        nodes = {"Redis": [node.program.process for node in redis.nodes]}
        ours = Contender(bench_serve.SERVER, served.url, psutil.Process(served.process.pid), nodes)
        theirs = Contender(PEER, url, process, {})
        turns = {
            each.name: partial(lookups, each, each_path, chosen)
            for each, each_path in ((ours, bench_serve.PATH), (theirs, path))
        }
        for look_up in turns.values():
            look_up(seconds=WARM_UP_S)
        rows = in_turns(turns, chosen.rounds)
    report("peers-lookup", UNIT, rows, reference=PEER, settings=vars(chosen))


def lookups(
    contender: Contender, path: str, chosen: argparse.Namespace, seconds: int = 0
) -> dict[str, float]:
    """Return the figures of GETs of random keys."""
    script = bench_serve.lookup_script(chosen.keys, path)
    return measured(contender, Load("", script, chosen.connections, seconds or chosen.seconds))[1]


def produce(bootstrap: str, records: Sequence[tuple[bytes, bytes]]) -> None:
    """Write the records that Redis has into a topic, partitioned as there."""
    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
    name = state.LAYOUT.topic
    admin.create_topics([NewTopic(name, state.LAYOUT.partition_count, 1)])[name].result(20)
    producer = Producer({**QUIET, "bootstrap.servers": bootstrap, **bench_write.SETTINGS, "linger.ms": 50})
    for key, value in records:
        producer.produce(name, value, key)
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("Kafka did not take all records")


@contextlib.contextmanager
def streams(
    bootstrap: str, path: str, last: Sequence[tuple[bytes, bytes]]
) -> Iterator[tuple[str, psutil.Process]]:
    """Yield address and process of the application once it has all records; it stops with the block."""
    port = Ports().any()
    with tempfile.TemporaryDirectory(prefix="keylane-bench-") as folder, guarded(Path(folder)) as data:
        values = {
            "bootstrap": bootstrap,
            "topic": state.LAYOUT.topic,
            "port": port,
            "folder": data / "store",
        }
        program = Program(
            "streams",
            command_of(os.environ[STREAMS], values),
            data / "run" / "streams.json",
            data / "logs" / "streams.log",
        )
        program.start()
        program.wait_until(lambda: has_all(port, path, last), START_S)
        process = program.process
        assert process is not None
        yield f"http://{HOST}:{port}", process


def has_all(port: int, path: str, records: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether each of these keys is found."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        for key, _ in records:
            connection.request("GET", path.replace("{key}", key.decode()))
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.client.OK:
                return False
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
