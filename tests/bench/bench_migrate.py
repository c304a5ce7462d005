"""A lane of many small keys, whose slot moves to another shard key by key under reads and writes.

The lane's index is one sorted set, then several (`index_parts`); each has a cluster of its own, of three
primaries and three replicas. The slot moves as resharding tools move it. Meanwhile a reader looks up random
keys and pages of 100, and the job's writer sends chunks of ten known keys. No failover comes in between:
nodes may be silent for ten minutes.

`key` is the largest key in the memory of its node, `dump` its serialized form, both in MiB. `MIGRATE` is the
longest of these calls, `move` the time from the first to the last, `read` the slowest read, and `away` the
longest time that a chunk took: all in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import redis
import stage
import state
from fill import TopicFiller, settle
from harness import ResultRow, parse, report
from tests.servers.own import SlotMove

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.errors import KeylaneError
from keylane.model.records import Layout, Options
from keylane.ports import Clock
from keylane.query.key_count import read_key_count
from keylane.query.latest import read_latest
from keylane.query.layouts import Layouts
from keylane.query.ranges import read_range
from keylane.query.span import RangeScan, Span
from keylane.query.store import ReadTerms, Store
from keylane.state.lanes import lanes_of_topic
from keylane_spark.lanes.function_library import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane_local.servers.redis_node import RedisNode

CLOCK = Clock()
PAGE = 100
TERMS = ReadTerms(timeout_ms=5_000)
PAUSE_S = 0.01
PATIENT = WriteOptions(retry_budget_s=3_600)
SILENCE_MS = 600_000
MIB = 2**20


def key_of(number: int) -> bytes:
    return b"N%09d" % number


@dataclass(slots=True)
class Load:
    """What a thread does again and again: when each began and ended, and what failed."""

    act: Callable[[], None]
    spans_s: list[tuple[float, float]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    is_over: bool = False

    def run(self) -> None:
        while not self.is_over:
            began_s = time.monotonic()
            try:
                self.act()
            except (KeylaneError, LookupError) as error:
                self.failed.append(repr(error))
            self.spans_s.append((began_s, time.monotonic()))
            time.sleep(PAUSE_S)

    @property
    def longest_s(self) -> float:
        return max(end_s - began_s for began_s, end_s in self.spans_s)


@contextlib.contextmanager
def running(*loads: Load) -> Iterator[None]:
    threads = [threading.Thread(target=load.run) for load in loads]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)
        yield
        time.sleep(1)
    finally:
        for load in loads:
            load.is_over = True
        for thread in threads:
            thread.join()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--parts", type=int, nargs="+", default=[1, 16])
    options.add_argument("--value-bytes", type=int, default=20)
    options.add_argument("--at-once", type=int, default=10, help="keys of one MIGRATE, 10 as redis-cli's")
    chosen = parse(options)
    rows = [ResultRow(f"index_parts = {parts}", measure(parts, chosen)) for parts in chosen.parts]
    report(
        f"migrate-{chosen.keys}",
        "MiB and s",
        rows,
        reference=rows[0].name,
        settings=vars(chosen),
        aim="no key over 64 MiB, no read fails",
    )


def measure(parts: int, chosen: argparse.Namespace) -> dict[str, float]:
    layout = Layout("moved", 1, options=Options(index=parts))
    with (
        stage.redis_cluster(appendonly=False) as servers,
        TopicFiller(servers.addresses, layout, PATIENT) as filler,
    ):
        for node in servers.nodes:
            node.command("CONFIG", "SET", "cluster-node-timeout", SILENCE_MS)
        filler.add((key_of(number), b"v" * chosen.value_bytes) for number in range(chosen.keys))
        settle(servers.addresses)
        move = SlotMove(servers, lanes_of_topic(layout)[0].slot)
        largest, serialized = largest_of(move.source)
        reader, writer = reads_of(servers.addresses, chosen.keys), writes_of(filler, chosen.keys)
        with running(reader, writer):
            began_s = time.monotonic()
            longest_s = migrate(move, chosen.at_once)
            took_s = time.monotonic() - began_s
        for sentence in sorted(set(reader.failed + writer.failed))[:5]:
            print(f"failed: {sentence}", file=sys.stderr)
        check_all(servers.addresses, layout, chosen.keys)
        return {
            "key": largest / MIB,
            "dump": serialized / MIB,
            "MIGRATE": longest_s,
            "move": took_s,
            "reads": len(reader.spans_s),
            "failed": len(reader.failed),
            "read": reader.longest_s,
            "away": writer.longest_s,
        }


def largest_of(node: RedisNode) -> tuple[int, int]:
    """Return the memory of the node's largest sorted set, and how long its serialized form is."""
    with redis.Redis(node.host, node.port, socket_timeout=None) as client:
        sizes = {key: client.memory_usage(key, samples=0) for key in client.scan_iter("*:i:*", _type="zset")}
        key = max(sizes, key=lambda each: sizes[each])
        return sizes[key], len(client.dump(key))


def store_of(nodes: str) -> tuple[Store, RedisState]:
    """Return a store, and the connections that it has."""
    own = RedisState(Cluster(redis_settings(state.environment(nodes))))
    return Store(own, Layouts(own, CLOCK, 30), CLOCK), own


def reads_of(nodes: str, count: int) -> Load:
    """Reads as the query function does them: a key, then a page of keys, then a key."""
    store, _ = store_of(nodes)
    turns = [0]

    def read() -> None:
        turns[0] += 1
        number = random.randrange(count - PAGE)
        if turns[0] % 2:
            found: Any = read_latest(store, "moved", key_of(number), TERMS).record
        else:
            page = read_range(store, "moved", RangeScan(Span(key_of(number)), PAGE, keys_only=True), TERMS)
            found = [key for key, _ in page.rows] == [key_of(number + each) for each in range(PAGE)]
        if not found:
            raise LookupError(f"a read from {number} on did not find what is there")

    return Load(read)


def writes_of(filler: TopicFiller, count: int) -> Load:
    """Chunks of known keys, as the job's writer sends them; each returns when Redis has it."""
    return Load(lambda: filler.add([(key_of(random.randrange(count)), b"w" * 20) for _ in range(10)]))


def migrate(move: SlotMove, at_once: int) -> float:
    """Move all keys of a slot; return how long the longest MIGRATE took."""
    move.begin()
    longest_s = 0.0
    with redis.Redis(move.source.host, move.source.port, socket_timeout=None) as client:
        while keys := client.execute_command("CLUSTER", "GETKEYSINSLOT", move.slot, at_once):
            began_s = time.monotonic()
            move.move(*keys, timeout_ms=SILENCE_MS)
            longest_s = max(longest_s, time.monotonic() - began_s)
    move.finish()
    return longest_s


def check_all(nodes: str, layout: Layout, count: int) -> None:
    """Exit unless the index has all keys afterwards: the figures would be of something else."""
    store, own = store_of(nodes)
    found = read_key_count(store, layout.topic, TERMS).count
    own.close()
    if found != count:
        sys.exit(f"the index has {found} keys after the move, and had {count}")


if __name__ == "__main__":
    main()
