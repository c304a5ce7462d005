"""Logs that lost records which the state has, and grew again: leaders that were not in sync are elected."""

from __future__ import annotations

import itertools

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.servers.kafka_cluster import UNCLEAN
from tests.servers.own import CLOCK, create_topic, eventually, produce, records_of, remove_records
from tests.support import jobs
from tests.support.jobs import State

from keylane import routing
from keylane.adapters.kafka.options import Connection
from keylane.ports import Clock
from keylane_spark.log.kafka_admin import JobKafka
from keylane_spark.log.leader_epochs import EpochEnd, epoch_ends

NUMBERS = itertools.count()
WAITING_MS = 5_000
"""For so long a lane stays fresh while another one waits."""
JOB = "[job]\nheartbeat_ms = 100\nsweep_keys_per_s = 1000000\n"

pytestmark = pytest.mark.timeout(900)


class Scene:
    """A topic on three brokers, of one partition as a rule, its state, and the jobs that write it."""

    def __init__(self, brokers, redis_cluster: str, folder, partitions: int = 1) -> None:
        self.brokers = brokers
        self.topic = f"truncated-{next(NUMBERS)}"
        self.partitions = range(partitions)
        create_topic(brokers.bootstrap, self.topic, partitions, replication=3, config=UNCLEAN)
        self.state = State(redis_cluster, self.topic)
        self._redis = redis_cluster
        self._folder = folder
        self._jobs: list[jobs.RunningJob] = []

    def start_job(self, more: str = "") -> jobs.RunningJob:
        config = f"{JOB}[topics.{self.topic}]\n{more}"
        job = jobs.start(self.brokers.bootstrap, self._redis, self._folder, config)
        self._jobs.append(job)
        job.wait_for("keylane: ready")
        return job

    def produce(self, values: dict[bytes, bytes], topic: str = "") -> None:
        """Write to a topic, by default to the scene's, whose keys librdkafka places by its own hash."""
        settings = {} if topic else {"partitioner": "consistent_random"}
        produce(self.brokers.bootstrap, topic or self.topic, values.items(), acks="all", **settings)

    def isolate_leader(self) -> int:
        """Stop all brokers but the leader, in order: what is written now, it alone has. Return it."""
        leader = self.brokers.leader(self.topic)
        for number, node in self.brokers.brokers.items():
            if number != leader:
                node.stop()
        eventually(lambda: all(self.brokers.in_sync(self.topic, p) == {leader} for p in self.partitions))
        return leader

    def elect_another(self, leader: int) -> int:
        """Kill the leader and elect a replica that was not in sync; return it."""
        other = leader % 3 + 1
        self.brokers.elect(other, self.topic)
        return other

    def holds_the_log(self) -> bool:
        """Whether the state is the fold of the log as it is now."""
        fold: dict[bytes, bytes | None] = dict(records_of(self.brokers.bootstrap, self.topic, 0))
        generation = self.state.layout.generation if self.state.layout else 0
        stored = {key.rpartition(b":v:")[2] for key in self.state.keys_of(generation) if b":v:" in key}
        return stored == fold.keys() and self.state.holds(fold)

    def view_counts_the_log(self) -> bool:
        """Whether the view of the topic's name has the keys that the log has, and no others."""
        view = State(self._redis, f"~{self.topic}")
        try:
            keys = view.keys_of(view.layout.generation) if view.layout else set()
        finally:
            view.close()
        counted = {key.rpartition(b":v:")[2].partition(b"\0")[0] for key in keys if b":v:" in key}
        return counted == {key for key, _ in records_of(self.brokers.bootstrap, self.topic, 0)}

    def epoch(self) -> int:
        """The present leader's epoch."""
        epoch = self.epochs()[0]
        assert epoch is not None
        return epoch

    def epochs(self) -> list[int | None]:
        """The present leaders' epochs."""
        ends = JobKafka(Connection(self.brokers.bootstrap)).ends({self.topic: len(self.partitions)})
        return [ends[self.topic, each].leader_epoch for each in self.partitions]

    def recorded_epochs(self) -> list[int]:
        """The leaders' epochs that the topic's record has."""
        return [lineage[-1][0] for lineage in self.state.record.lineages] if self.state.record else []

    def end_of(self, epoch: int) -> EpochEnd | None:
        """Where an epoch ends in the present log."""
        source = self.topic, 0
        return epoch_ends(Connection(self.brokers.bootstrap), {source: epoch}, Clock(), 60)[source]

    def end(self) -> None:
        for job in self._jobs:
            job.end()
        self.state.close()
        self.brokers.start()
        self.brokers.wait_ready()


@pytest.fixture
def scene(request, brokers, redis_cluster, tmp_path):
    made = Scene(brokers, redis_cluster, tmp_path, getattr(request, "param", 1))
    yield made
    made.end()


def values(name: str, count: int) -> dict[bytes, bytes]:
    return {b"%b-%d" % (name.encode(), number): name.encode() for number in range(count)}


def wait_for_values(scene: Scene, expected: dict[bytes, bytes]) -> None:
    eventually(lambda: scene.state.holds(expected))


@pytest.mark.long
def test_a_log_that_grew_past_the_watermark_while_the_job_was_down_is_noticed(scene):
    job = scene.start_job()
    scene.produce(values("kept", 20))
    leader = scene.isolate_leader()
    scene.produce(values("lost", 20))
    eventually(lambda: scene.state.holds(values("kept", 20) | values("lost", 20)))
    job.end()
    scene.elect_another(leader)
    scene.produce(values("new", 50))
    scene.start_job()
    eventually(scene.holds_the_log)
    assert scene.state.holds(values("new", 50) | dict.fromkeys(values("lost", 20)))
    assert not scene.state.watermarks()[0, 0].incomplete


def test_a_log_that_is_truncated_and_grows_under_a_running_job_is_noticed(scene):
    """The same with a view: it must count what the log has, once."""
    view = f'[views.{scene.topic}]\ntopic = "{scene.topic}"\n[views.{scene.topic}.columns]\nn = "count()"\n'
    job = scene.start_job(view)
    scene.produce(values("kept", 20))
    leader = scene.isolate_leader()
    scene.produce(values("lost", 20))
    eventually(lambda: scene.state.holds(values("lost", 20)))
    eventually(scene.view_counts_the_log)
    scene.elect_another(leader)
    scene.produce(values("new", 50))
    eventually(scene.holds_the_log)
    eventually(scene.view_counts_the_log)
    assert job.process.poll() is None


@pytest.mark.long
def test_two_elections_that_bring_back_the_first_log_are_noticed(scene):
    """Its end is beyond all that the state has, and only its epochs show that it is not the same log."""
    job = scene.start_job()
    scene.produce(values("kept", 10))
    first = scene.isolate_leader()
    scene.produce(values("first", 40))
    eventually(lambda: scene.state.holds(values("first", 40)))
    scene.elect_another(first)
    scene.produce(values("second", 20))
    eventually(scene.holds_the_log)
    job.end()
    scene.brokers.elect(first, scene.topic)
    scene.start_job()
    eventually(scene.holds_the_log)
    assert scene.state.holds(values("first", 40) | dict.fromkeys(values("second", 20)))


@pytest.mark.long
def test_what_retention_removed_is_missing_from_a_rebuilt_state_and_reads_say_so(scene):
    job = scene.start_job()
    scene.produce(values("old", 10))
    scene.produce(values("kept", 10))
    eventually(lambda: scene.state.holds(values("old", 10) | values("kept", 10)))
    remove_records(scene.brokers.bootstrap, scene.topic, {0: 10})
    assert not scene.state.watermarks()[0, 0].incomplete
    leader = scene.isolate_leader()
    scene.produce(values("lost", 10))
    eventually(lambda: scene.state.holds(values("lost", 10)))
    scene.elect_another(leader)
    eventually(scene.holds_the_log)
    assert scene.state.holds(dict.fromkeys([*values("old", 10), *values("lost", 10)]))
    assert scene.state.watermarks()[0, 0].incomplete
    job.wait_for("INCOMPLETE: partition 0")


@pytest.mark.long
@pytest.mark.parametrize("scene", [2], indirect=True)
def test_in_a_topic_with_strays_any_lane_may_lack_what_retention_removed(scene):
    """The producer places keys by another hash than the topic is declared with."""
    scene.start_job()
    scene.produce(values("old", 40))
    eventually(lambda: scene.state.holds(values("old", 40)))
    remove_records(scene.brokers.bootstrap, scene.topic, {0: 1})
    leader = scene.isolate_leader()
    scene.produce(values("lost", 40))
    eventually(lambda: scene.state.holds(values("lost", 40)))
    scene.elect_another(leader)
    eventually(lambda: scene.state.holds(dict.fromkeys(values("lost", 40))))
    assert all(mark.incomplete for mark in scene.state.watermarks().values())


@pytest.mark.long
@pytest.mark.parametrize("scene", [3], indirect=True)
def test_leaders_that_change_in_order_are_followed_and_cost_no_rebuild(scene):
    job = scene.start_job()
    written: dict[bytes, bytes] = {}
    for turn in range(3):
        eventually(lambda: scene.brokers.in_sync(scene.topic) == {1, 2, 3})
        leader = scene.brokers.leader(scene.topic)
        scene.brokers.brokers[leader].stop()
        scene.produce(values(f"turn-{turn}", 20))
        written |= values(f"turn-{turn}", 20)
        wait_for_values(scene, written)
        scene.brokers.brokers[leader].start()
        scene.brokers.wait_ready()
    assert any("new leaders: their logs have all" in line for line in job.lines)
    assert not [line for line in job.lines if "opens its lanes again" in line]
    eventually(lambda: scene.recorded_epochs() == scene.epochs())
    job.end()
    leader = scene.brokers.leader(scene.topic)
    scene.brokers.brokers[leader].stop()
    scene.produce(values("down", 20))
    scene.start_job()
    eventually(lambda: scene.state.holds(written | values("down", 20)))
    assert scene.state.layout.generation == 1
    assert not scene.state.watermarks()[0, 0].incomplete


@pytest.mark.long
def test_a_log_that_lost_records_waits_for_another_topics_leaders_and_all_other_lanes_go_on(
    scene, brokers, redis_cluster
):
    """The log lies on two brokers. One of them has a partition of the other topic alone, and stays away."""
    lossy, others = f"{scene.topic}-lossy", f"{scene.topic}-others"
    create_at(brokers.bootstrap, lossy, [[1, 2]], UNCLEAN)
    create_at(brokers.bootstrap, others, [[3], [1]])
    lossy_state, state = State(redis_cluster, lossy), State(redis_cluster, others)
    reader = state.reader()
    job = scene.start_job(f"[topics.{lossy}]\n[topics.{others}]\n")
    scene.produce(values("kept", 20), lossy)
    brokers.brokers[2].stop()
    eventually(lambda: brokers.in_sync(lossy) == {1})
    scene.produce(values("lost", 20), lossy)
    eventually(lambda: lossy_state.holds(values("lost", 20)))
    brokers.brokers[1].kill()
    brokers.brokers[2].start()
    eventually(lambda: brokers.leader(lossy) == 2)
    elected_ms = CLOCK.now_ms()
    scene.produce(values("new", 50), lossy)
    key = next(key for key in values("other", 100) if routing.partition_for(key, 2) == 0)
    for number in range(30):
        scene.produce({key: b"%d" % number}, others)
        eventually(lambda value=b"%d" % number: reader.value(key) == value)
    eventually(lambda: state.watermarks()[0, 0].complete_as_of_ms > elected_ms + WAITING_MS)
    assert lossy_state.watermarks()[0, 0].complete_as_of_ms <= elected_ms
    assert lossy_state.holds(values("lost", 20))
    assert not [line for line in job.lines if "opens its lanes again" in line]
    brokers.start()
    eventually(lambda: lossy_state.holds(values("new", 50) | dict.fromkeys(values("lost", 20))))
    eventually(lambda: all(each.complete_as_of_ms > elected_ms for each in state.watermarks().values()))
    assert reader.value(key) == b"29"
    assert job.process.poll() is None
    for each in (reader, state, lossy_state):
        each.close()


def create_at(
    bootstrap: str, topic: str, replicas: list[list[int]], config: dict[str, str] | None = None
) -> None:
    """Create a topic whose partitions have their replicas on these brokers, the first one leads."""
    new = NewTopic(topic, len(replicas), replica_assignment=replicas, config=config or {})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[topic].result(60)
    eventually(
        lambda: (
            [each.leader for each in admin.list_topics(topic, 60).topics[topic].partitions.values()]
            == [first for first, *_ in replicas]
        )
    )


def test_epochs_end_where_the_next_leader_wrote_first_and_a_leader_that_was_killed_is_asked_again(scene):
    scene.produce(values("first", 10))
    first, leader = scene.epoch(), scene.brokers.leader(scene.topic)
    assert scene.end_of(first) == EpochEnd(first, 10)
    scene.brokers.brokers[leader].stop()
    assert scene.end_of(first) == EpochEnd(first, 10)
    scene.produce(values("second", 5))
    second = scene.epoch()
    assert second > first
    assert scene.end_of(second) == EpochEnd(second, 15)
    assert scene.end_of(second + 1) is None


def test_an_epoch_older_than_all_of_the_log_ends_where_the_log_begins(scene):
    scene.produce(values("old", 10))
    epoch = scene.epoch()
    leader = scene.brokers.leader(scene.topic)
    scene.brokers.brokers[leader].stop()
    eventually(lambda: scene.epoch() > epoch)
    scene.produce(values("new", 10))
    remove_records(scene.brokers.bootstrap, scene.topic, {0: 15})
    assert scene.end_of(epoch) == EpochEnd(epoch, 15)
