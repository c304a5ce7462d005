"""A shard that takes no writes parks its own lanes; the job goes on with all others."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import redis
from confluent_kafka import Producer
from tests.servers.own import (
    SlotMove,
    create_topic,
    eventually,
    full,
    own_cluster,
    primary_and_replica,
    resume,
    suspend,
)
from tests.support import jobs
from tests.support import lanes as t
from tests.support.jobs import RunningJob, State

from keylane import routing
from keylane.errors import KeylaneError
from keylane.model.records import Layout
from keylane.routing import SLOTS
from keylane_local.process.ports import Ports
from keylane_spark.lanes.lane import LaneTarget

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from keylane_local.servers.redis_cluster import RedisCluster
    from keylane_local.servers.redis_node import RedisNode

NUMBERS = itertools.count()
PARTITIONS = 6
"""Two of each shard: 0 and 1 in shard 0, 2 and 3 in shard 1, 4 and 5 (and `{keylane}`) in shard 2."""
LOST, HEALTHY = (0, 1), (2, 3, 4, 5)
ALL = (*LOST, *HEALTHY)
PATIENCE_S = 2
FRESH_MS = 6_000
"""An age that only a beating job reaches: far below the time for which the shard is away."""
AWAY_S = 10
PAUSE_S = 0.2
"""Between two writes: the job's batches, one after the other, would take all of a core."""


@dataclass
class Served:
    """A topic with a job over it: one key in each partition, and what was last written under it."""

    kafka: str
    cluster: RedisCluster
    folder: Path
    options: str = ""
    topic: str = field(default_factory=lambda: f"lost-{next(NUMBERS)}")
    written: dict[int, bytes | None] = field(default_factory=dict)
    running: RunningJob | None = None

    def __post_init__(self) -> None:
        create_topic(self.kafka, self.topic, PARTITIONS)
        self.use(self.cluster)
        self.keys = {routing.partition_for(key, PARTITIONS): key for key in (b"k%d" % n for n in range(200))}
        self.producer = Producer({"bootstrap.servers": self.kafka, "linger.ms": 1})

    def use(self, cluster: RedisCluster) -> None:
        """Read this cluster from now on, and start jobs over it."""
        self.cluster = cluster
        self.state = State(cluster.addresses, self.topic)
        # Layouts lie in shard 2, which may be the lost one.
        self.reader = self.state.reader(layout_ttl_s=3600)

    def start(self) -> RunningJob:
        config = f"[job]\nheartbeat_ms = 200\nredis_patience_s = {PATIENCE_S}\n{self.options}\n"
        config += f"[topics.{self.topic}]\n"
        self.running = jobs.start(self.kafka, self.cluster.addresses, self.folder, config)
        return self.running

    def begin(self, lies_in: Mapping[int, int] | None = None) -> RunningJob:
        """Start the job, and wait until it has written a value of each partition."""
        job = self.start()
        job.wait_for("keylane: ready: epoch ")
        self.write(ALL, lies_in)
        eventually(lambda: self.has(ALL))
        return job

    def write(self, partitions: tuple[int, ...], lies_in: Mapping[int, int] | None = None) -> None:
        """Write a new value under the key of each partition; `lies_in`: where its record goes instead."""
        for partition in partitions:
            self.written[partition] = b"%d" % next(NUMBERS)
            self.producer.produce(
                self.topic,
                key=self.keys[partition],
                value=self.written[partition],
                partition=(lies_in or {}).get(partition, partition),
            )
        assert self.producer.flush(60) == 0

    def put(self, partition: int, value: bytes | None) -> None:
        """Write this value (None: a tombstone) under the partition's key."""
        self.written[partition] = value
        self.producer.produce(self.topic, key=self.keys[partition], value=value, partition=partition)
        assert self.producer.flush(60) == 0

    def has(self, partitions: tuple[int, ...]) -> bool:
        try:
            return all(self.reader.value(self.keys[p]) == self.written[p] for p in partitions)
        except KeylaneError:
            return False

    def ages_ms(self, partitions: tuple[int, ...]) -> dict[int, int]:
        layout = Layout(self.topic, PARTITIONS, generation=1)
        ages_ms = {}
        for partition in partitions:
            mark = t.held(self.cluster.addresses, LaneTarget.of(layout, partition, 0), [])[1]
            assert mark
            ages_ms[partition] = t.CLOCK.now_ms() - mark.complete_as_of_ms
        return ages_ms

    def is_fresh(self, partitions: tuple[int, ...]) -> bool:
        try:
            return max(self.ages_ms(partitions).values()) < FRESH_MS
        except KeylaneError:
            return False

    def stays_fresh(self, partitions: tuple[int, ...]) -> None:
        """New writes are readable and the ages small, again and again, for as long as a shard is away."""
        for _ in self.stays_readable(partitions):
            assert self.is_fresh(partitions), self.ages_ms(partitions)

    def stays_readable(self, partitions: tuple[int, ...]) -> Iterator[None]:
        """New writes are readable; yield after each."""
        until = time.monotonic() + AWAY_S
        while time.monotonic() < until:
            self.write(partitions)
            eventually(lambda: self.has(partitions))
            yield
            time.sleep(PAUSE_S)

    def close(self) -> None:
        if self.running:
            self.running.end()
        self.reader.close()
        self.state.close()


@pytest.fixture
def served(kafka: str, breaking: RedisCluster, tmp_path: Path) -> Iterator[Served]:
    one = Served(kafka, breaking, tmp_path)
    yield one
    bring_back(breaking, breaking.nodes)
    one.close()


def lose(cluster: RedisCluster, slot: int, signal_: signal.Signals = signal.SIGKILL) -> list[RedisNode]:
    """Kill or stop primary and replica of the slot's shard."""
    nodes = [*primary_and_replica(cluster, slot)]
    if signal_ == signal.SIGSTOP:
        suspend(*(node.program.process.pid for node in nodes if node.program.process))
    else:
        for node in nodes:
            node.kill()
    return nodes


def bring_back(cluster: RedisCluster, nodes: list[RedisNode]) -> None:
    resume(*(node.program.process.pid for node in nodes if node.program.process))
    cluster.start()


@pytest.mark.parametrize(
    ("lost", "signal_", "options"),
    [
        pytest.param(LOST, signal.SIGKILL, "", id="killed"),
        pytest.param(
            *(LOST, signal.SIGKILL, "small_batch_records = 0"),
            id="killed under tasks",
            marks=pytest.mark.long,
        ),
        pytest.param((4, 5), signal.SIGKILL, "", id="killed with the layouts", marks=pytest.mark.long),
        pytest.param(LOST, signal.SIGSTOP, "", id="hanging", marks=pytest.mark.long),
    ],
)
def test_the_loss_of_a_shard_leaves_the_lanes_of_all_others_fresh_and_it_catches_up(
    served: Served, lost: tuple[int, int], signal_: signal.Signals, options: str
):
    served.options = options
    job = served.begin()
    nodes = lose(served.cluster, lost[0] * SLOTS // PARTITIONS, signal_)
    others = tuple(sorted({*ALL} - {*lost}))
    served.write(ALL)
    eventually(lambda: served.has(others) and served.is_fresh(others))
    served.stays_fresh(others)
    assert f"partitions {lost[0]}, {lost[1]} of" in job.wait_for("parked: ")
    assert not any("restarts in" in line for line in job.lines)
    bring_back(served.cluster, nodes)
    eventually(lambda: served.has(ALL) and served.is_fresh(ALL))


def test_a_node_that_can_not_save_or_is_full_is_read_waited_for_and_written_again_when_it_can(
    served: Served,
):
    """One job for both: Redis refuses writes by itself, and says why."""
    job = served.begin()
    primary, _ = primary_and_replica(served.cluster, 0)
    before = dict(served.written)
    with unable_to_save(primary):
        served.write(ALL)
        eventually(lambda: served.has(HEALTHY) and served.is_fresh(HEALTHY))
        assert [served.reader.value(served.keys[each]) for each in LOST] == [before[each] for each in LOST]
        line = job.wait_for("parked: ")
        assert "partitions 0, 1 of" in line
        assert "MISCONF" in line
        assert [served.reader.value(served.keys[each]) for each in LOST] == [before[each] for each in LOST]
    eventually(lambda: served.has(ALL) and served.is_fresh(ALL))
    seen = len(job.lines)
    with full(primary):
        served.put(0, b"needs more room than there was")
        line = job.wait_for(f":{primary.port} is full: ", after=seen)
        assert "parked: partitions 0 of" in line
        served.put(1, None)
        others = (1, *HEALTHY)
        eventually(lambda: served.has(others) and served.is_fresh(others))
        assert not served.has((0,))
    eventually(lambda: served.has(ALL) and served.is_fresh(ALL))
    assert not any("restarts in" in line for line in job.lines)


@contextlib.contextmanager
def unable_to_save(node: RedisNode) -> Iterator[None]:
    """Its snapshots fail: what they are renamed to is a folder."""
    snapshot = node.home / "dump.rdb"
    snapshot.unlink(missing_ok=True)
    (snapshot / "in-the-way").mkdir(parents=True)

    def save() -> str:
        node.command("BGSAVE")
        eventually(lambda: node_info(node)["rdb_bgsave_in_progress"] == 0)
        return node_info(node)["rdb_last_bgsave_status"]

    node.command("CONFIG", "SET", "save", "3600 1")
    try:
        assert save() == "err"
        yield
    finally:
        shutil.rmtree(snapshot)
        node.command("CONFIG", "SET", "save", "")
        assert save() == "ok"


def node_info(node: RedisNode) -> dict[str, Any]:
    with node.client() as client:
        return client.info("persistence")


def test_the_metric_of_the_age_is_an_age_while_all_of_redis_is_away(served: Served):
    port = Ports().any()
    served.options = f'metrics = "openmetrics"\nmetrics_port = {port}'
    served.begin()
    parked, age_ms = (
        (name, served.topic) for name in ("keylane_topic_parked_partitions", "keylane_topic_age_ms")
    )
    nodes = [node.program.process.pid for node in served.cluster.nodes]
    suspend(*nodes)
    try:
        eventually(lambda: jobs.scrape(port)[parked] == PARTITIONS)
        first_ms = jobs.scrape(port)[age_ms]
        eventually(lambda: jobs.scrape(port)[age_ms] > first_ms)
        assert first_ms >= 0
    finally:
        resume(*nodes)
    eventually(lambda: served.is_fresh(ALL))
    eventually(lambda: jobs.scrape(port)[parked] == 0)


@pytest.mark.long
def test_a_job_that_starts_while_the_shard_of_the_layouts_is_away_writes_the_others(served: Served):
    """It can't know which topics have strays, so it claims nothing."""
    job = served.begin()
    job.end()
    lose(served.cluster, 16_203)
    job = served.start()
    job.wait_for("keylane: ready: epoch ")
    others = (0, 1, 2, 3)
    for _ in served.stays_readable(others):
        pass
    served.cluster.start()
    eventually(lambda: served.has(ALL) and served.is_fresh(ALL))


@pytest.mark.long
def test_a_job_that_starts_while_a_shard_is_away_serves_the_others(served: Served):
    job = served.begin()
    job.end()
    served.write(ALL)
    lose(served.cluster, 0)
    job = served.start()
    job.wait_for("keylane: ready: epoch ")
    served.write(LOST)
    served.stays_fresh(HEALTHY)
    served.cluster.start()
    eventually(lambda: served.has(ALL) and served.is_fresh(ALL))


@pytest.mark.long
def test_a_migration_that_is_stuck_stops_its_own_lane_alone(served: Served):
    job = served.begin()
    lane = LaneTarget.of(Layout(served.topic, PARTITIONS, generation=1), 0, 0)
    move = SlotMove(served.cluster, lane.slot)
    move.begin()
    move.move(lane.watermark_key)
    others = (1, *HEALTHY)
    try:
        served.write((0, *others))
        eventually(lambda: served.has(others) and served.is_fresh(others))
        served.stays_fresh(others)
        assert "partitions 0 of" in job.wait_for("parked: ")
    finally:
        move.undo()
    eventually(lambda: served.has((0, *others)) and served.is_fresh((0, *others)))


@pytest.mark.long
def test_a_stray_for_a_lost_lane_holds_its_own_partition_back_and_arrives_later(served: Served):
    served.begin(lies_in={0: 3})
    lose(served.cluster, 0)
    served.write((2,))
    served.write((0,), lies_in={0: 2})
    others = (3, 4, 5)
    for _ in served.stays_readable(others):
        pass
    assert min(served.ages_ms(others).values()) > FRESH_MS, "a stray for them may lie in a partition unread"
    served.write((2,))
    served.cluster.start()
    eventually(lambda: served.has((0, 2, *others)) and served.is_fresh(ALL))


def keys_of(cluster: RedisCluster, slot: int) -> dict[bytes, tuple[int, bytes]]:
    """All keys of the slot's shard as a snapshot has them: time to live in ms (0: none), and value."""
    primary, _ = primary_and_replica(cluster, slot)
    with redis.Redis(port=primary.port) as client:
        return {key: (max(client.pttl(key), 0), client.dump(key)) for key in client.scan_iter()}


def restore(cluster: RedisCluster, keys: Mapping[bytes, tuple[int, bytes]]) -> None:
    for key, (ttl_ms, value) in keys.items():
        primary, _ = primary_and_replica(cluster, routing.key_slot(key))
        with redis.Redis(port=primary.port) as client:
            client.restore(key, ttl_ms, value)


@pytest.mark.long
@pytest.mark.timeout(600)  # two starts of Spark, on a machine that does other things too
def test_a_new_cluster_with_snapshots_of_shards_from_different_moments_gets_what_kafka_has_had_since(
    served: Served, tmp_path_factory: pytest.TempPathFactory
):
    """So ElastiCache restores a cluster. Partition 5 was read beyond a stray that its lane's shard lacks."""
    job = served.begin(lies_in={0: 5})
    snapshot = keys_of(served.cluster, 0)
    served.write(ALL, lies_in={0: 5})
    eventually(lambda: served.has(ALL))
    snapshot |= keys_of(served.cluster, SLOTS // 2) | keys_of(served.cluster, SLOTS - 1)
    served.write((2, 4))
    job.end()
    with own_cluster(tmp_path_factory.mktemp("restored")) as restored:
        restore(restored, snapshot)
        served.use(restored)
        assert served.has((3, 5))
        assert not any(served.has((partition,)) for partition in (0, 1, 2, 4))
        job = served.start()
        job.wait_for("0.0 has lost strays: partition 5 is read again from ")
        job.wait_for("keylane: ready: epoch ")
        eventually(lambda: served.has(ALL) and served.is_fresh(ALL))
        served.close()
