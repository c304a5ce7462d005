"""The Spark job as a process, between a real broker and a real cluster."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_END
from tests.servers.own import create_topic, eventually, produce, remove_records
from tests.support import jobs
from tests.support import lanes as t
from tests.support.builders import a_topic
from tests.support.jobs import RunningJob
from tests.support.lanes import Event, fold

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.model.records import Layout
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.lanes.layout_store import LayoutStore

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = 3
JOB = "[job]\nmax_batch_records = 10000\nheartbeat_ms = 100\nsmall_batch_records = "
BY_SPARK = '\nreader = "spark"'
SMALL_BATCH_RECORDS = {
    "driver": "1_000_000",
    "tasks": "0",
    "driver, read by Spark": f"1_000_000{BY_SPARK}",
    "tasks, read by Spark": f"0{BY_SPARK}",
}


@dataclass
class Shared:
    """A job over topics of several kinds, two of which have had records before it began."""

    running: RunningJob
    topics: dict[str, str]
    logs: dict[str, dict[int, list[Event]]]


BATCHES = [
    # Batches of what Spark reads are in test_transforms.py as well.
    pytest.param(each, marks=pytest.mark.long) if each.endswith("by Spark") else each
    for each in SMALL_BATCH_RECORDS
]


@pytest.fixture(scope="module", params=BATCHES)
def shared(request, kafka, redis_cluster, tmp_path_factory):
    """One job whose batches all go one way: the driver, tasks, or tasks that read Kafka themselves."""
    kinds = {"stripes-1": 1, "stripes-4": 4, "mixed": 1, "crc32": 1, "idle": 1}
    topics = {kind: new_topic(kafka) for kind in kinds}
    logs = {
        kind: log_of(kafka, topics[kind], some_records(1, 15_000, 3_000))
        for kind in ("stripes-1", "stripes-4")
    }
    tables = "".join(f"[topics.{topics[kind]}]\nstripes = {stripes}\n" for kind, stripes in kinds.items())
    config = f"{JOB}{SMALL_BATCH_RECORDS[request.param]}\n{tables}"
    with jobs.running(kafka, redis_cluster, tmp_path_factory.mktemp("job"), config) as running:
        yield Shared(running, topics, logs)


def new_topic(kafka: str) -> str:
    create_topic(kafka, name := a_topic(), PARTITIONS)
    return name


def log_of(kafka: str, topic: str, records) -> dict[int, list[Event]]:
    """Write (key, value) pairs as a Java client would place them; the log of each partition."""
    log = {partition: [] for partition in range(PARTITIONS)}
    for message in produce(kafka, topic, records):
        log[message.partition()].append(Event(message.offset(), message.key(), message.value()))
    return log


def wait_until_written(redis_cluster: str, layout: Layout, log: dict[int, list[Event]]) -> None:
    ends = {partition: events[-1].offset + 1 if events else 0 for partition, events in log.items()}
    wait_until_reached(redis_cluster, layout, ends)


def wait_until_reached(redis_cluster: str, layout: Layout, ends: dict[int, int]) -> None:
    def has_reached(lane: LaneTarget, end: int) -> bool:
        watermark = t.held(redis_cluster, lane, [])[1]
        return watermark is not None and watermark.next_offset >= end

    for partition, end in ends.items():
        for lane in LaneTarget.of_partition(layout, partition):
            eventually(lambda lane=lane, end=end: has_reached(lane, end))


def state_of(redis_cluster: str, layout: Layout, keys: set[bytes]) -> dict[bytes, bytes]:
    """The values under these keys, each looked up where routing says."""
    by_lane: dict[LaneTarget, list[bytes]] = {}
    for key in keys:
        partition = routing.partition_for(key, layout.partition_count)
        by_lane.setdefault(
            LaneTarget.of(layout, partition, routing.stripe_for(key, layout.stripes)), []
        ).append(key)
    state = {}
    for lane, group in by_lane.items():
        records, _ = t.held(redis_cluster, lane, group)
        state |= {key: record.value for key, record in records.items()}
    return state


def values(log: dict[int, list[Event]]) -> dict[bytes, bytes]:
    events = (event for partition in log.values() for event in partition if event.key is not None)
    return {key: value for key, (value, _) in fold(list(events)).items()}


def some_records(seed: int, count: int, keys: int):
    """Sets and tombstones of repeated keys, and records without a key."""
    source = random.Random(seed)
    for number in range(count):
        key = b"key-%d" % source.randrange(keys)
        kind = source.random()
        yield (None if kind < 0.02 else key, None if kind > 0.8 else b'{"n": %d}' % number)


@pytest.mark.parametrize("stripes", [1, 4])
def test_the_state_is_the_fold_of_the_log(shared, redis_cluster, stripes):
    topic, log = shared.topics[f"stripes-{stripes}"], shared.logs[f"stripes-{stripes}"]
    layout = Layout(topic, PARTITIONS, stripes)
    wait_until_written(redis_cluster, layout, log)
    keys = {event.key for events in log.values() for event in events if event.key is not None}
    assert state_of(redis_cluster, layout, keys) == values(log)
    shared.running.wait_for(f"topic '{topic}' has records without a key")
    stored = LayoutStore(Cluster(t.settings(redis_cluster)), t.CLOCK).get(topic)
    assert stored == replace(layout, incarnation=stored.incarnation)


def test_whoever_wrote_a_key_it_is_found_the_newest_wins_and_tombstones_hold(shared, kafka, redis_cluster):
    """A Java client, librdkafka by default, and callers that name a partition, all into one topic."""
    topic, running = shared.topics["mixed"], shared.running
    layout = Layout(topic, PARTITIONS)
    running.wait_for("keylane: ready")
    lines = len(running.lines)
    # Times of late: records of years ago are removed by the broker as soon as it looks.
    start_ms = t.CLOCK.now_ms() - 20_000_000
    first = produce_by_all(kafka, topic, 7, count=6_000, start_ms=start_ms, deletes=0)
    wait_until_reached(redis_cluster, layout, first.next_offsets)
    running.wait_for(" strays", after=lines)
    second = produce_by_all(kafka, topic, 8, count=6_000, start_ms=start_ms + 10_000_000, deletes=0.3)
    wait_until_reached(redis_cluster, layout, second.next_offsets)
    newest = first.newest | second.newest
    expected = {key: value for key, value in newest.items() if value is not None}
    assert state_of(redis_cluster, layout, set(newest)) == expected
    assert len(expected) < len(newest)


@pytest.mark.parametrize("shared", ["driver"], indirect=True)
def test_the_partitioner_of_a_topic_that_librdkafka_s_default_filled_is_reported(shared, kafka):
    topic = shared.topics["crc32"]
    keys = ((b"key-%d" % number, b"") for number in range(500))
    produce(kafka, topic, keys, partitioner="consistent_random")
    told = shared.running.wait_for(f"topic '{topic}': ")
    assert "records lie where crc32 puts them, not murmur2" in told


@pytest.mark.parametrize("shared", ["driver"], indirect=True)
def test_an_idle_topic_is_known_complete_as_of_now(shared, redis_cluster):
    shared.running.wait_for("keylane: ready")
    for partition in range(PARTITIONS):
        lane = LaneTarget.of(Layout(shared.topics["idle"], PARTITIONS), partition, 0)
        seen = set()

        def is_fresh_again(lane=lane, seen=seen) -> bool:
            complete_ms = t.held(redis_cluster, lane, [])[1].complete_as_of_ms
            if t.CLOCK.now_ms() - complete_ms < 1000:
                seen.add(complete_ms)
            return len(seen) >= 2

        eventually(is_fresh_again)


@dataclass
class Produced:
    """What was written last of each key, and the next offset of each partition."""

    newest: dict[bytes, bytes | None]
    next_offsets: dict[int, int]


def produce_by_all(
    kafka: str, topic: str, seed: int, *, count: int, start_ms: int, deletes: float
) -> Produced:
    """Write records with rising timestamps, each by a way drawn by lot."""
    source = random.Random(seed)
    newest, records = {}, []
    # One producer keeps timestamps rising in each partition; test_partitioners shows that clients place so.
    for number in range(count):
        key = b"key-%d" % source.randrange(400)
        newest[key] = None if source.random() < deletes else b"%d" % (start_ms + number)
        places = [
            routing.partition_for(key, PARTITIONS, "murmur2"),
            routing.partition_for(key, PARTITIONS, "crc32"),
            source.randrange(PARTITIONS),
        ]
        records.append((key, newest[key], source.choice(places), start_ms + number))
    written = produce(kafka, topic, records)
    return Produced(newest, {each.partition(): each.offset() + 1 for each in written})


@dataclass
class Killed:
    """A job that was killed and came back without its checkpoint, over two topics.

    `checkpoint`: the folder that it has now, in which somebody else has a file, too.
    `behind` had more records meanwhile. So had `cut`, but they were removed before the job came back.
    """

    again: RunningJob
    checkpoint: Path
    behind: str
    first: dict[int, list[Event]]
    second: dict[int, list[Event]]
    cut: str
    later: dict[int, list[Event]]


@pytest.fixture(scope="module")
def killed(kafka, redis_cluster, tmp_path_factory):
    behind, cut, folder = new_topic(kafka), new_topic(kafka), tmp_path_factory.mktemp("killed")
    config = f"{JOB}5000\n[topics.{behind}]\n[topics.{cut}]\n"
    first = log_of(kafka, behind, some_records(2, 8_000, 500))
    log = log_of(kafka, cut, some_records(4, 300, 50))
    with jobs.running(kafka, redis_cluster, folder, config) as running:
        wait_until_written(redis_cluster, Layout(behind, PARTITIONS), first)
        wait_until_written(redis_cluster, Layout(cut, PARTITIONS), log)
        running.kill()
    second = log_of(kafka, behind, some_records(3, 3_000, 500))
    produce(kafka, cut, some_records(5, 300, 50))
    remove_records(kafka, cut, dict.fromkeys(range(PARTITIONS), OFFSET_END))
    later = log_of(kafka, cut, some_records(6, 300, 50))
    checkpoint = folder / "elsewhere"
    checkpoint.mkdir()
    (checkpoint / "precious").write_text("mine")
    with jobs.running(kafka, redis_cluster, folder, config, KEYLANE_CHECKPOINT=str(checkpoint)) as again:
        yield Killed(again, checkpoint, behind, first, second, cut, later)


def test_a_job_that_comes_back_without_its_checkpoint_goes_on_at_the_watermarks(killed, redis_cluster):
    layout = Layout(killed.behind, PARTITIONS)
    wait_until_written(redis_cluster, layout, killed.second)
    assert "batch 0: 3,300 records" in killed.again.wait_for("batch 0: ")
    log = {partition: killed.first[partition] + killed.second[partition] for partition in killed.first}
    keys = {event.key for events in log.values() for event in events if event.key is not None}
    assert state_of(redis_cluster, layout, keys) == values(log)


def test_records_that_retention_removed_leave_lanes_marked_incomplete(killed, redis_cluster):
    layout = Layout(killed.cut, PARTITIONS)
    killed.again.wait_for(f"INCOMPLETE: partition 0 of topic '{killed.cut}'")
    wait_until_written(redis_cluster, layout, killed.later)
    assert t.held(redis_cluster, LaneTarget.of(layout, 0, 0), [])[1].incomplete
    assert not t.held(redis_cluster, LaneTarget.of(Layout(killed.behind, PARTITIONS), 0, 0), [])[1].incomplete


@pytest.mark.last
def test_sigterm_stops_it_gracefully_and_what_else_lies_in_the_checkpoint_folder_stays(killed):
    killed.again.wait_for("keylane: ready")
    assert len(list(killed.checkpoint.iterdir())) > 1
    killed.again.process.terminate()
    assert killed.again.exit_code() == 0
    killed.again.wait_for("keylane: stopped")
    assert (killed.checkpoint / "precious").read_text() == "mine"


@pytest.mark.parametrize(
    ("config", "environment", "code", "words"),
    [
        ("[topics.x]\nstripes = 0\n", {}, 2, ":2: topics.x.stripes: "),
        ("[topics.x]\n", {"KEYLANE_REDIS_NODES": "nowhere"}, 2, "KEYLANE_REDIS_NODES has an item (number 1)"),
        ("[topics.no-such-topic]\n", {}, 4, "topic 'no-such-topic' is unknown"),
    ],
)
def test_what_no_waiting_mends_ends_it_with_a_clear_line(
    kafka, redis_cluster, tmp_path, config, environment, code, words
):
    (tmp_path / "keylane.toml").write_text(config)
    addresses = {"KEYLANE_KAFKA_BOOTSTRAP": kafka, "KEYLANE_REDIS_NODES": redis_cluster}
    jars = {"KEYLANE_JARS": str(jobs.JARS)}
    running = RunningJob(tmp_path, {**addresses, **jars, **environment})
    assert running.exit_code() == code
    assert words in running.wait_for("keylane: ")
    assert "Traceback" not in running.log.read_text()


def test_redis_away_at_start_is_waited_for(topic, start):
    running = start(f"{JOB}5000\n[topics.{topic}]\n", KEYLANE_REDIS_NODES="127.0.0.1:1")
    assert "Redis" in running.wait_for("restarts in")
    assert running.process.poll() is None
