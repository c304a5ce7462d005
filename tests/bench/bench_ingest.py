"""A backlog of records from Kafka into the lanes of a warm job, beside `redis-cli --pipe` of the same SETs.

The job writes a first backlog and is then suspended (SIGSTOP). The measured backlog is produced, and the
clock runs from SIGCONT until every lane's watermark has reached the end of its partition: once with new keys,
then with the same keys again. Each `--case` (options of the topic, and records to match) has a stack of its
own. The reference does not read Kafka, route or guard: it sends as many keys and payloads of the same size as
SET commands, from one file per shard, with three `redis-cli --pipe` in parallel. Both have primaries only,
and Redis writes nothing to disk.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import redis
from harness import ResultRow, add_settings, configured, parse, report
from stage import cpu_seconds, memory_bytes, whole_stack, write_all
from tests.torture.faults.world import stopped

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.config.functions import redis_settings
from keylane.model.records import Layout
from keylane.ports import Clock, Deadline
from keylane.state import codec
from keylane_local.stack.plan import StackOptions
from keylane_local.stack.watching import Lanes
from keylane_spark.lanes.lane import LaneTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    import psutil

    from keylane.adapters.redis.cluster import Node
    from keylane_local.stack.stack import Stack

    Values = bytes | Sequence[bytes] | Callable[[int], bytes]

TOPIC = "ingest"
LAYOUT = Layout(TOPIC, 9)
CONFIG = f"[topics.{TOPIC}]\npartitions = {{partitions}}\nstripes = {{stripes}}\n"
NEW, KNOWN = "the job: new keys", "the job: the same keys again"
PIPE, PIPE_KNOWN = "redis-cli --pipe: new keys", "redis-cli --pipe: the same keys again"
TIMEOUT_S = 300
NO_PARTITION = -1
"""librdkafka's: its partitioner decides."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a topic's options are, and what is special about its records.

    `has_fields`: values have `status`, which stays, and `amount`, which changes when a key comes again.
    `stray_every`: one record of so many goes to another partition than its key's; 0: none.
    """

    options: str = ""
    has_fields: bool = False
    stray_every: int = 0


CASES = {
    "plain": Case(),
    "index": Case("index = true\n"),
    "fields": Case('fields = { status = "text", amount = "number" }\n', has_fields=True),
    "history": Case("history_count = 10\n"),
    "ttl": Case('ttl = "1d"\n'),
    "strays": Case("guarded = true\n", stray_every=100),
}


def key_of(number: int) -> bytes:
    return b"key-%010d" % number


def value_of(size: int) -> bytes:
    """Return a JSON object of this many bytes."""
    return b'{"v":"' + b"x" * (size - 8) + b'"}'


def values_with_fields(size: int, of_round: int) -> Callable[[int], bytes]:
    """Return what makes a record's value of its number: a JSON object of about this many bytes."""
    rest = "x" * (size - 50)

    def value(number: int) -> bytes:
        status = ("open", "paid", "shipped", "returned", "closed")[number % 5]
        amount = f"{number * 7919 % 1_000_000 + of_round}.{number % 100:02}"
        return f'{{"status":"{status}","amount":{amount},"v":"{rest}"}}'.encode()

    return value


def produce(bootstrap: str, first: int, count: int, value: Values, stray_every: int = 0) -> None:
    """Write records with keys from `first` on; several values are taken in turn.

    `stray_every`: as of Case.
    """
    if callable(value):
        value_of_number = value
    else:
        values = [value] if isinstance(value, bytes) else value

        def value_of_number(number: int) -> bytes:
            return values[number % len(values)]

    def records() -> Iterator[tuple[bytes, bytes, int]]:
        for number in range(first, first + count):
            key = key_of(number)
            partition = NO_PARTITION
            if stray_every and number % stray_every == 0:
                own = routing.partition_for(key, LAYOUT.partition_count)
                partition = (own + 1) % LAYOUT.partition_count
            yield key, value_of_number(number), partition

    write_all(bootstrap, TOPIC, records())


def wait_until_whole(lanes: Lanes) -> float:
    """Return the time (perf_counter) at which all lanes have reached Kafka's current end offsets."""
    ends = lanes.end_offsets()
    until = time.perf_counter() + TIMEOUT_S
    while time.perf_counter() < until:
        reached = lanes.next_offsets()
        if all(reached[partition] >= end for partition, end in ends.items()):
            return time.perf_counter()
        time.sleep(0.02)
    raise SystemExit(f"the lanes did not reach {ends} within {TIMEOUT_S} s")


@contextlib.contextmanager
def running(config: str, **variables: str) -> Iterator[tuple[Stack, Lanes]]:
    """Run a stack of primaries that write nothing to disk, with the job of this keylane.toml.

    `variables`: of its environment, beside the stack's own.
    """
    options = StackOptions(replicas=0, appendonly=False)
    with whole_stack(config, options=options, variables=variables) as stack, Lanes(stack, TOPIC) as lanes:
        yield stack, lanes


def halted(first: psutil.Process) -> contextlib.AbstractContextManager[None]:
    """Suspend a process and its children within the block."""
    return stopped([first, *first.children(recursive=True)])


def job_seconds(
    stack: Stack, lanes: Lanes, first: int, count: int, value: Values, stray_every: int = 0
) -> tuple[float, dict[str, float]]:
    """Return how long the job takes, and how long each part of it and its servers computes."""
    with halted(stack.job.program.process):
        produce(stack.kafka_bootstrap, first, count, value, stray_every)
        time.sleep(1)
        before = cpu_seconds(stack)
        began = time.perf_counter()
    took = wait_until_whole(lanes) - began
    after = cpu_seconds(stack)
    return took, {part: after[part] - before[part] for part in after}


def pipe_seconds(stack: Stack, first: int, count: int, value: bytes) -> float:
    """Write the same records with redis-cli; the files are created before the clock starts."""
    clock = Clock()
    cluster = Cluster(redis_settings(stack.environment()))
    cluster.refresh(Deadline.after_ms(5000, clock))
    shards: dict[Node, BinaryIO] = {}
    prefixes = []
    for partition in range(LAYOUT.partition_count):
        lane = LaneTarget.of(LAYOUT, partition, 0)
        node = cluster.primary(lane.slot)
        if node not in shards:
            shards[node] = (stack.data / f"{node.port}.resp").open("wb")
        prefixes.append((shards[node], lane.key_prefix))
    now_ms = time.time_ns() // 1_000_000
    for number in range(first, first + count):
        key = key_of(number)
        file, prefix = prefixes[routing.partition_for(key, LAYOUT.partition_count)]
        payload = codec.encode_record(value, number, now_ms)
        name = prefix + key
        file.write(
            b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(payload), payload)
        )
    for file in shards.values():
        file.close()
    began = time.perf_counter()
    pipes = []
    for node, file in shards.items():
        with Path(file.name).open("rb") as commands:
            pipes.append(
                subprocess.Popen(
                    ["redis-cli", "-h", node.host, "-p", str(node.port), "--pipe"],
                    stdin=commands,
                    stdout=subprocess.PIPE,
                )
            )
    for pipe in pipes:
        output, _ = pipe.communicate(timeout=TIMEOUT_S)
        if pipe.returncode or b"errors: 0" not in output:
            raise SystemExit(f"redis-cli --pipe: {output!r}")
    took = time.perf_counter() - began
    for file in shards.values():
        Path(file.name).unlink()
    return took


def empty(stack: Stack) -> None:
    """Delete everything, so that the reference starts empty, as the job did."""
    for node in stack.redis.nodes:
        host, _, port = node.address.rpartition(":")
        with redis.Redis(host, int(port)) as client:
            client.execute_command("FLUSHALL", "SYNC")  # Valkey would free it later, and be measured with it


@dataclass(frozen=True, slots=True)
class Measured:
    """Of a case: seconds, and CPU seconds of the parts, for new and known keys; memory of the new ones."""

    new_s: float
    known_s: float
    new_cpu_s: dict[str, float]
    known_cpu_s: dict[str, float]
    lane_bytes: int

    def facts(self, count: int, stored_bytes: int) -> Iterator[tuple[str, float]]:
        """Yield names and figures of so many records, whose keys and values have so many bytes each."""
        for part, new_s in self.new_cpu_s.items():
            yield f"CPU of {part}, us a record", round(new_s / count * 1e6, 2)
            yield f"CPU of {part}, us a known key", round(self.known_cpu_s[part] / count * 1e6, 2)
        beyond = self.lane_bytes / count - stored_bytes
        yield "Redis memory beyond key and value, B a record", round(beyond, 1)


def measure(stack: Stack, lanes: Lanes, case: Case, chosen: argparse.Namespace) -> Measured:
    values: list[Values] = [value_of(chosen.value_bytes)] * 2
    if case.has_fields:
        values = [values_with_fields(chosen.value_bytes, of_round) for of_round in range(2)]
    first, count = chosen.warm_up, chosen.records
    job_seconds(stack, lanes, 0, first, values[0], case.stray_every)
    before = memory_bytes(stack)
    new_s, new_cpu_s = job_seconds(stack, lanes, first, count, values[0], case.stray_every)
    lane_bytes = memory_bytes(stack) - before
    known_s, known_cpu_s = job_seconds(stack, lanes, first, count, values[1], case.stray_every)
    return Measured(new_s, known_s, new_cpu_s, known_cpu_s, lane_bytes)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--warm-up", type=int, default=3_000_000)
    parser.add_argument("--value-bytes", type=int, default=170)
    parser.add_argument(
        "--case", action="append", choices=CASES, help="the options of the topic; one or several, plain"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="LINE",
        help="more of the topic's, as 'headers = true'",
    )
    add_settings(parser)
    chosen = parse(parser, arguments)
    chosen.case = chosen.case or ["plain"]
    count = chosen.records
    measured: dict[str, Measured] = {}
    seconds: dict[str, float] = {}
    pipe_bytes, stored = 0, len(key_of(0)) + chosen.value_bytes
    for name in chosen.case:
        config = CONFIG.format(partitions=LAYOUT.partition_count, stripes=LAYOUT.stripes)
        config += CASES[name].options + "".join(f"{line}\n" for line in chosen.option)
        with running(configured(config, chosen)) as (stack, lanes):
            each = measured[name] = measure(stack, lanes, CASES[name], chosen)
            of = "" if len(chosen.case) == 1 else f"{name}, "
            seconds |= {of + NEW: each.new_s, of + KNOWN: each.known_s}
            if name == chosen.case[-1]:
                stack.job.stop()
                stack.kafka.stop()
                empty(stack)
                before, value = memory_bytes(stack), value_of(chosen.value_bytes)
                seconds[PIPE] = pipe_seconds(stack, chosen.warm_up, count, value)
                pipe_bytes = memory_bytes(stack) - before
                seconds[PIPE_KNOWN] = pipe_seconds(stack, chosen.warm_up, count, value)
    facts = {
        (name if len(measured) == 1 else f"{case}: {name}"): figure
        for case, each in measured.items()
        for name, figure in each.facts(count, stored)
    }
    facts["the same, of bare SETs"] = round(pipe_bytes / count - stored, 1)
    report(
        "ingest",
        "records/s",
        [ResultRow(name, {"records/s": count / took}) for name, took in seconds.items()],
        reference=PIPE,
        settings=vars(chosen),
        facts=facts,
        aim="500,000 records/s of new keys and 700,000 of known ones, warm, on 2 cores",
    )


if __name__ == "__main__":
    main()
