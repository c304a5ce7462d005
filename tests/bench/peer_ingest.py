"""The job beside a Redis sink connector in Kafka Connect: see bench_peers.py."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench_ingest import CONFIG, LAYOUT, TOPIC, halted, produce, running, value_of, wait_until_whole
from connect_sink import SETTINGS_FILE, ConnectSink, connector_class, missing
from harness import ResultRow, configured, report
from parts import cpu_seconds, family_seconds
from peers import RECIPE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    import psutil

    from keylane_local.stack.stack import Stack
    from keylane_local.stack.watching import Lanes

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
