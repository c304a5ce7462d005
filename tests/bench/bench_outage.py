"""What readers notice of an outage, on the whole local stack: 200 reads/s over HTTP, 50 records/s into Kafka.

`job`: the Spark job is killed and later restarted. `primary`: a Redis primary is killed, its replica
promoted, and the node restarted. `growth`: the topic grows from 9 to 18 partitions, and the state is rebuilt
beside the old one. Each scenario starts with all parts up, which is its reference. At its end every key is
checked: the state must have the record that Kafka acknowledged last.
"""

from __future__ import annotations

import argparse
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewPartitions
from harness import add_settings, configured, parse, percentile
from scenario import TOPIC, UP, Memory, ScenarioRun, wait_until
from stage import whole_stack
from verdict import key_of, longest_gap_s

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.ports import Clock, Deadline
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.lanes.layout_store import LayoutStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verdict import TimedRead

    from keylane_local.stack.stack import Stack

PARTITIONS, GROWN = 9, 18
CONFIG = f"[topics.{TOPIC}]\npartitions = {PARTITIONS}\n"
FRESH_MS = 2000
"""An age without an outage: that of a busy topic is about half a second."""
CLOCK = Clock()


def without_job(run: ScenarioRun) -> None:
    killed_s = time.monotonic()
    run.stack.job.kill()
    time.sleep(run.chosen.seconds)
    started_s = time.monotonic()
    run.stack.job.start()
    run.stack.job.wait_ready()
    fresh_s = run.reads.wait_for(is_fresh)
    time.sleep(run.chosen.quiet_s)
    end_s = time.monotonic()
    run.rest()
    course = ages(run, killed_s, started_s)
    off_ms = max(abs(age_ms - course[0] - at_s * 1000) for at_s, age_ms in course.items())
    run.finish(
        "job",
        [
            run.row(UP, run.begin_s, killed_s),
            run.row("without the job", killed_s, started_s),
            run.row("from its start on", started_s, end_s),
        ],
        {
            "median Keylane-Age-Ms after s without the job": course,
            "furthest from growing with the clock, ms": off_ms,
            "from the job's start until ages are below 2 s, s": round(fresh_s - started_s, 1),
        },
    )


def is_fresh(seen: Sequence[TimedRead]) -> bool:
    return all(0 <= one.age_ms < FRESH_MS for one in seen if one.status == 200)


def ages(run: ScenarioRun, from_s: float, to_s: float) -> dict[int, float]:
    """Return the median age of reads by second of the outage, and that of the last second."""
    last_s = int(to_s - from_s) - 1
    found = {}
    for at_s in sorted({0, last_s, *(at_s for at_s in (10, *range(60, 3600, 60)) if at_s < last_s)}):
        seen = run.reads.between(from_s + at_s, from_s + at_s + 1)
        found[at_s] = percentile([one.age_ms for one in seen if one.age_ms >= 0], 50)
    return found


def without_primary(run: ScenarioRun) -> None:
    cluster = Cluster(redis_settings(run.stack.environment()))
    cluster.refresh(Deadline.after_ms(5000, CLOCK))
    key_slots = [slot_of(key_of(number)) for number in range(run.chosen.keys)]
    victim = cluster.primary(key_slots[0])
    of_victim = {number for number, slot in enumerate(key_slots) if cluster.primary(slot) == victim}
    cluster.close()
    node = next(node for node in run.stack.redis.nodes if node.port == victim.port)
    killed_s = time.monotonic()
    node.kill()
    position = run.writes.write_and_wait(0)
    readable_s = wait_readable(run.stack, 0, str(position))
    time.sleep(run.chosen.quiet_s)
    started_s = time.monotonic()
    run.stack.redis.start()
    run.stack.redis.wait_ready()
    time.sleep(run.chosen.quiet_s)
    end_s = time.monotonic()
    run.rest()
    gap_s = longest_gap_s(run.reads.between(killed_s - 1, end_s, of_victim.__contains__))
    before_s = longest_gap_s(run.reads.between(run.begin_s, killed_s, of_victim.__contains__))
    run.finish(
        "primary",
        [
            run.row(UP, run.begin_s, killed_s),
            run.row("until its keys' writes are readable", killed_s, readable_s),
            run.row("from then on, node started again", readable_s, end_s),
        ],
        {
            "keys of the killed primary": f"{len(of_victim)} of {run.chosen.keys}",
            "longest gap between good reads of them, s": f"{gap_s:.3f} (before: {before_s:.3f})",
            "until the first write after it is readable, s": round(readable_s - killed_s, 2),
            "node started again after s": round(started_s - killed_s, 1),
        },
    )


def slot_of(key: bytes) -> int:
    return routing.slot_for(routing.partition_for(key, PARTITIONS), 0, PARTITIONS, 1)


def wait_readable(stack: Stack, key: int, position: str) -> float:
    """Return the time at which a read of the key returns that position."""
    path = f"/topics/{TOPIC}/keys/{key_of(key).decode()}"
    host = stack.http_url.removeprefix("http://")

    def is_readable() -> bool:
        connection = HTTPConnection(host, timeout=30)
        connection.request("GET", path, headers={"Keylane-Min-Position": position, "Prefer": "wait=20"})
        status = connection.getresponse().status
        connection.close()
        return status == 200

    return wait_until(stack, is_readable, f"the record at {position}", within_s=60)


def grown(run: ScenarioRun) -> None:
    state = RedisState(Cluster(redis_settings(run.stack.environment())))
    layouts = LayoutStore(Cluster(redis_settings(run.stack.environment())), CLOCK)
    old = layouts.get(TOPIC)
    assert old

    def is_removed() -> bool:
        lanes = [LaneTarget.of(old, partition, 0) for partition in range(PARTITIONS)]
        deadline = Deadline.after_ms(2000, CLOCK)
        return all(state.read(lane.slot, [lane.watermark_key], deadline) == [None] for lane in lanes)

    with Memory(run.stack) as memory:
        grown_s = time.monotonic()
        admin = AdminClient({"bootstrap.servers": run.stack.kafka_bootstrap, "log_level": 0})
        admin.create_partitions([NewPartitions(TOPIC, GROWN)])[TOPIC].result(20)
        switched_s = wait_until(run.stack, lambda: layouts.get(TOPIC) not in (None, old), "the switch")
        removed_s = wait_until(run.stack, is_removed, "the old generation's end")
        time.sleep(run.chosen.quiet_s)
        end_s = time.monotonic()
    run.rest()
    state.close()
    moved = sum(position.partition >= PARTITIONS for _, position in run.writes.acknowledged.values())
    run.finish(
        "growth",
        [
            run.row(UP, run.begin_s, grown_s),
            run.row("grown, not yet switched", grown_s, switched_s),
            run.row("switched, old not yet removed", switched_s, removed_s),
            run.row("after that", removed_s, end_s),
        ],
        {
            "keys with their last record in a new partition": f"{moved} of {run.chosen.keys}",
            "from growth until the layout names the new generation, s": round(switched_s - grown_s, 1),
            "from there until the old one is removed, s": round(removed_s - switched_s, 1),
            "memory of the primaries, MiB": memory.told(),
        },
    )


SCENARIOS = {"job": without_job, "primary": without_primary, "growth": grown}


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--scenario", choices=SCENARIOS, action="append", help="default: all of them")
    options.add_argument("--seconds", type=float, default=300, help="how long the job is away")
    options.add_argument("--quiet-s", type=float, default=10, help="before and after what happens")
    options.add_argument("--keys", type=int, default=20_000)
    options.add_argument("--value-bytes", type=int, default=170)
    options.add_argument("--reads-per-s", type=float, default=200)
    options.add_argument("--writes-per-s", type=float, default=50)
    add_settings(options)
    chosen = parse(options, arguments)
    for name in chosen.scenario or SCENARIOS:
        with whole_stack(configured(CONFIG, chosen)) as stack, ScenarioRun(stack, chosen) as run:
            SCENARIOS[name](run)


if __name__ == "__main__":
    main()
