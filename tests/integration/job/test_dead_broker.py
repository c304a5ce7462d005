"""A broker that dies stops the lanes of its own partitions: all others stay fresh and take new records."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.servers.own import (
    PATIENCE_S,
    READY_WITHIN_S,
    create_topic,
    eventually,
    records_of,
    resume,
    suspend,
)
from tests.support import jobs
from tests.support.jobs import State
from tests.support.stopwatch import Stopwatch

from keylane import routing
from keylane_spark.stream.batch_query import STOP_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.servers.kafka_cluster import KafkaCluster

FRESH_MS = 6_000
PAUSE_S = 0.1
PARTITIONS = 6
ALONE, COPIED = "alone", "copied"
"""Topics: while its broker is away, a partition of the one has no leader, one of the other a new leader."""

pytestmark = pytest.mark.timeout(900)


@dataclass
class Scene:
    """Both topics, their states and a job; a thread notes the lanes' ages and writes records while it is on.

    `ages_ms`: the greatest age of each lane. `late`: lanes that lacked a record for `FRESH_MS`.
    """

    kafka: KafkaCluster
    states: dict[str, State]
    job: jobs.RunningJob
    written: dict[str, dict[bytes, bytes]] = field(default_factory=lambda: {ALONE: {}, COPIED: {}})
    ages_ms: dict[tuple[str, int], float] = field(default_factory=dict)
    late: list[tuple[str, int]] = field(default_factory=list)
    acked: int = 0
    _number: int = 0

    def leaders(self) -> dict[tuple[str, int], int]:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        topics = admin.list_topics(timeout=20).topics
        return {
            (topic, partition): metadata.leader
            for topic in (ALONE, COPIED)
            for partition, metadata in topics[topic].partitions.items()
        }

    def produce(self, sources: Iterable[tuple[str, int]], within_s: float = 60) -> None:
        """Write a record into each of these partitions."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "acks": "all", "log_level": 0})
        for topic, partition in sources:
            self._number += 1
            # Strays would make each lane only as fresh as the whole topic.
            key, value = key_of(partition, self._number), b"%d" % self._number
            producer.produce(topic, value, key, partition)
            self.written[topic][key] = value
        assert producer.flush(within_s) == 0

    def ages(self) -> dict[tuple[str, int], float]:
        return {
            (topic, partition): time.time() * 1000 - (mark.complete_as_of_ms if mark else 0)
            for topic, state in self.states.items()
            for (partition, _), mark in state.watermarks().items()
        }

    def are_fresh(self, sources: Iterable[tuple[str, int]]) -> bool:
        ages = self.ages()
        return all(ages[each] < FRESH_MS for each in sources)

    def watch(self, sources: set[tuple[str, int]], over: threading.Event) -> None:
        """Note the ages of lanes, and how soon lanes have a record that Kafka has acknowledged."""
        acked_s: dict[tuple[str, int], tuple[int, float]] = {}
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "acks": "all", "log_level": 0})

        def note(source: tuple[str, int], offset: int) -> None:
            acked_s[source] = offset, time.monotonic()
            self.acked += 1

        while not over.is_set():
            for topic, partition in sources - acked_s.keys():
                self._number += 1
                key, value = key_of(partition, self._number), b"%d" % self._number
                self.written[topic][key] = value
                producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=lambda error, sent: (
                        error or note((sent.topic(), sent.partition()), sent.offset())
                    ),
                )
                acked_s[topic, partition] = -1, time.monotonic()
            producer.poll(PAUSE_S)
            for source, age in self.ages().items():
                self.ages_ms[source] = max(age, self.ages_ms.get(source, 0))
            for topic, state in self.states.items():
                for (partition, _), mark in state.watermarks().items():
                    offset, at_s = acked_s.get((topic, partition), (-1, 0.0))
                    if offset < 0:
                        continue
                    if mark and mark.next_offset > offset:
                        del acked_s[topic, partition]
                    elif time.monotonic() - at_s > FRESH_MS / 1000:
                        self.late.append((topic, partition))
        assert producer.flush(PATIENCE_S) == 0

    def hold_the_logs(self) -> bool:
        return all(
            state.holds(dict(self.written[topic]))
            and sum(len(records_of(self.kafka.bootstrap, topic, each)) for each in range(PARTITIONS))
            >= len(self.written[topic])
            for topic, state in self.states.items()
        )


def key_of(partition: int, number: int) -> bytes:
    """A key of this partition."""
    return next(
        key
        for i in range(10_000)
        if routing.partition_for(key := b"%d-%d" % (number, i), PARTITIONS) == partition
    )


@pytest.fixture(scope="module")
def scene(brokers, redis_cluster, tmp_path_factory):
    create_topic(brokers.bootstrap, ALONE, PARTITIONS, replication=1)
    create_topic(brokers.bootstrap, COPIED, PARTITIONS, replication=3)
    folder = tmp_path_factory.mktemp("job")
    config = f"[topics.{ALONE}]\n[topics.{COPIED}]\n"
    states = {topic: State(redis_cluster, topic) for topic in (ALONE, COPIED)}
    with jobs.running(brokers.bootstrap, redis_cluster, folder, config) as job:
        job.wait_for("keylane: ready")
        made = Scene(brokers, states, job)
        everywhere = [(topic, each) for topic in (ALONE, COPIED) for each in range(PARTITIONS)]
        made.produce(everywhere)
        eventually(lambda: made.hold_the_logs() and made.are_fresh(everywhere))
        yield made
    for state in states.values():
        state.close()


def during(scene: Scene, sources: set[tuple[str, int]], seconds: float) -> None:
    """Watch for so long, and write into these partitions."""
    scene.ages_ms, scene.late, scene.acked = {}, [], 0
    over = threading.Event()
    timer = threading.Timer(seconds, over.set)
    timer.start()
    scene.watch(sources, over)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed", marks=pytest.mark.long),
        pytest.param(signal.SIGSTOP, id="hung", marks=pytest.mark.long),
    ],
)
def test_the_lanes_of_partitions_with_a_living_leader_stay_fresh_and_take_new_records(scene, number):
    said = len(scene.job.lines)
    leaders = scene.leaders()
    # A broker that has been away leads no copied partition.
    victim = scene.kafka.brokers[next(number for (topic, _), number in leaders.items() if topic == COPIED)]
    own = {source for source, leader in leaders.items() if leader == victim.number}
    others = leaders.keys() - own
    assert {topic for topic, _ in own} == {topic for topic, _ in others} == {ALONE, COPIED}
    if number == signal.SIGKILL:
        victim.kill()
    else:
        suspend(victim.program.process.pid)
    # Longer than an election takes: 9 s until the controller misses the broker.
    during(scene, others, 20)
    assert scene.late == []
    assert max(scene.ages_ms[each] for each in others) < FRESH_MS, scene.ages_ms
    assert scene.acked > len(others)
    # Nobody can tell what the dead broker has acknowledged: its lanes do not claim to be complete.
    assert min(scene.ages_ms[each] for each in own if each[0] == ALONE) > 15_000
    scene.job.wait_for("no leader answers for partitions", after=said)
    moved = {each for each in own if each[0] == COPIED}
    eventually(lambda: scene.are_fresh(moved))
    scene.produce(moved)
    assert any("new leaders: their logs have all" in line for line in scene.job.lines[said:])
    if number == signal.SIGKILL:
        victim.start()
        victim.wait_ready(READY_WITHIN_S)
    else:
        resume(victim.program.process.pid)
    eventually(lambda: scene.are_fresh(leaders))
    scene.job.wait_for("leaders answer again for partitions", after=said)
    scene.produce(leaders)
    eventually(scene.hold_the_logs)
    assert not [line for line in scene.job.lines[said:] if "restarts in" in line or "opens its" in line]
    eventually(lambda: scene.kafka.in_sync(COPIED) == {1, 2, 3})


def test_a_job_ends_within_its_time_while_no_broker_answers(scene):
    said = len(scene.job.lines)
    for node in scene.kafka.brokers.values():
        node.kill()
    scene.job.wait_for("Kafka can't be asked", after=said)
    with Stopwatch() as watch:
        scene.job.process.terminate()
        assert scene.job.exit_code() == 0
    # A job that waited for the batch in progress would take that long.
    assert watch.seconds < STOP_S, "\n".join(scene.job.lines[-20:])
