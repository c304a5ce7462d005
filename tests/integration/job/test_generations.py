"""A topic's state that is rebuilt or changed while it is read: between a real broker and cluster."""

from __future__ import annotations

import itertools
import json
import re
import signal
import socket
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka import OFFSET_END, Producer
from confluent_kafka.admin import AdminClient
from tests.servers.own import create_topic, eventually, grow_topic, produce, remove_records
from tests.support import jobs
from tests.support import lanes as t
from tests.support.begun import Run, keys_of_lane
from tests.support.compaction import HOT, compact, keep_tombstones, keys_of
from tests.support.jobs import State, Traffic

from keylane import routing
from keylane.adapters.kafka.options import Connection
from keylane.api.reads.key import etag_of
from keylane.errors import LaneBuilding
from keylane.model.records import Layout, Options
from keylane.state import codec
from keylane_spark.lanes.lane import LaneTarget, OffsetRange
from keylane_spark.log.kafka_admin import JobKafka

NUMBERS = itertools.count()
JOB = "[job]\nheartbeat_ms = 100\nsweep_keys_per_s = 1000000\n"


@pytest.fixture(scope="module")
def names() -> dict[str, str]:
    """The topics of the job that all tests but those of restarts share."""
    return {name: f"gen-{name}" for name in ("growing", "short", "gappy", "rebuilt", "away", "known")}


@pytest.fixture(scope="module")
def job(kafka, redis_cluster, names, compacted_away, known_deletions, tmp_path_factory):
    """That job. It finds topics that others have written before: see the fixtures that it asks for."""
    create_topic(kafka, names["growing"], 9)
    for name in ("short", "gappy", "rebuilt"):
        create_topic(kafka, names[name], 2)
    options = {"known": "index = true\n"}
    tables = "".join(f"[topics.{topic}]\n{options.get(name, '')}" for name, topic in names.items())
    config = JOB + 'metrics = "emf"\n' + tables
    with jobs.running(kafka, redis_cluster, tmp_path_factory.mktemp("job"), config) as running:
        running.wait_for("keylane: ready")
        yield running


def serves(state: State, generation: int) -> bool:
    """Whether readers go by this generation, and it is whole."""
    layout = state.layout
    return (
        layout is not None
        and layout.generation == generation
        and all(mark and mark.complete_as_of_ms for mark in state.watermarks(layout).values())
    )


def test_a_topic_that_grows_is_read_all_the_while_and_no_key_is_lost(job, kafka, state_of, names):
    topic = names["growing"]
    state = state_of(topic)
    traffic = Traffic(kafka, state, topic)
    traffic.write_some(2_000)
    eventually(lambda: serves(state, 1))
    first = state.layout.incarnation
    with traffic:
        grow_topic(kafka, topic, 18)
        job.wait_for(f"topic '{topic}' has 18 partitions now, 9 before")
        eventually(lambda: serves(state, 2))
        eventually(lambda: state.record.remove == ())
        eventually(lambda: traffic.waited > 20)
    traffic.check()
    assert state.layout == Layout(topic, 18, generation=2, incarnation=first)
    assert state.keys_of(1) == set()
    assert state.strays["strays"] > 0


def test_a_generation_built_without_records_that_retention_removed_is_incomplete(job, kafka, state_of, names):
    topic = names["short"]
    state = state_of(topic)
    produce(kafka, topic, ((b"old-%d" % number, b"1") for number in range(50)))
    eventually(lambda: state.holds({b"old-1": b"1"}))
    remove_records(kafka, topic, dict.fromkeys(range(2), OFFSET_END))
    assert not any(mark.incomplete for mark in state.watermarks().values())
    grow_topic(kafka, topic, 4)
    eventually(lambda: serves(state, 2))
    job.wait_for(f"INCOMPLETE: partition 3 of topic '{topic}'")
    assert all(mark.incomplete for mark in state.watermarks().values())


def test_a_deleted_topic_is_waited_for_and_never_mixed_with_one_created_again(job, kafka, state_of, names):
    topic = names["rebuilt"]
    state = state_of(topic)
    produce(kafka, topic, ((b"a-%d" % number, b"first") for number in range(50)))
    eventually(lambda: state.holds({b"a-1": b"first"}))
    reader = state.reader()
    assert reader.value(b"a-1") == b"first"
    first = reader.latest(b"a-1").layout.incarnation
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([topic])[topic].result(30)
    job.wait_for(f"topic '{topic}' is missing in Kafka")
    assert reader.value(b"a-1") == b"first"
    create_topic(kafka, topic, 2)
    produce(kafka, topic, [(b"a-2", b"second"), (b"b-1", b"second")])
    eventually(lambda: state.holds({b"a-1": None, b"a-2": b"second", b"b-1": b"second"}))
    job.wait_for(f"topic '{topic}': it was deleted and created again")
    assert reader.value(b"a-1") is None
    assert 0 < first < reader.latest(b"a-1").layout.incarnation
    reader.close()
    eventually(lambda: state.keys_of(1) == set())
    assert job.process.poll() is None


@pytest.mark.long
def test_a_topic_deleted_while_a_batch_reads_it_does_not_hold_up_the_others(kafka, state_of, start):
    """Its tasks wait for records that are gone, can't be interrupted, and fill all of Spark's slots."""
    gone, kept = f"gone-{next(NUMBERS)}", f"kept-{next(NUMBERS)}"
    create_topic(kafka, gone, 40)
    create_topic(kafka, kept, 2)
    produce(kafka, gone, ((b"%d" % number, b"x" * 100_000) for number in range(3_000)))
    config = f"{JOB}[topics.{gone}]\n[topics.{kept}]\n"
    job = start(config)
    half_read, state = state_of(gone), state_of(kept)
    eventually(lambda: any(b":v:" in key for key in half_read.keys_of(1)))
    with job.paused():
        admin = AdminClient({"bootstrap.servers": kafka})  # it must live until it has the result
        admin.delete_topics([gone])[gone].result(30)
    produce(kafka, kept, [(b"key", b"value")])
    eventually(lambda: state.holds({b"key": b"value"}))
    assert job.process.poll() is None


def test_offsets_without_records_cost_no_repair(job, kafka, state_of, names):
    """Transactions committed and aborted, an aborted one last; and a log that was really compacted."""
    topic = names["gappy"]
    state = state_of(topic)
    eventually(lambda: serves(state, 1))
    epoch = state.record.owner.epoch
    said = len(job.lines)  # other tests delete a topic of this job
    transactions(kafka, topic)
    expected = {b"t-%d" % number: b"committed" for number in range(20)}
    eventually(lambda: state.holds(expected))
    compact(kafka, topic, 2)
    produce(kafka, topic, [(b"last", b"1")])
    eventually(lambda: state.holds({**expected, b"hot": b"cold", b"last": b"1"}))
    assert state.record.owner.epoch == epoch
    assert not [line for line in job.lines[said:] if "restarts in" in line]
    assert not any(mark.incomplete for mark in state.watermarks().values())


@pytest.fixture(scope="module")
def compacted_away(kafka, redis_cluster, names) -> dict[bytes, bytes | None]:
    """The topic "away" with a state that lacks a deletion: compaction took its tombstone while no job ran.

    What readers are to get of its keys once a job has begun.
    """
    topic = names["away"]
    create_topic(kafka, topic, 2, config={"cleanup.policy": "compact", "delete.retention.ms": "100"})
    partition = routing.partition_for(HOT, 2)
    key, other = keys_of_lane(Layout(topic, 2), partition, 2)
    run = Run(redis_cluster, topic)
    layout = run.begin(
        Layout(topic, 2), topic_id=JobKafka(Connection(kafka)).describe([topic])[topic].topic_id
    )
    lane = LaneTarget.of(layout.plan.serving, partition, 0)
    t.write(run.writer, lane, 0, [t.Event(0, key, b"v"), t.Event(1, other, b"v")], 2)
    t.complete(run.writer, lane, 2, t.CLOCK.now_ms() - 10_000)
    run.close()
    produce(kafka, topic, [(key, b"v"), (other, b"v")])
    produce(kafka, topic, [(key, None)])
    compact(kafka, topic, 2)
    eventually(lambda: are_compacted_away(kafka, topic, {key}))
    with closing(State(redis_cluster, topic)) as state:
        assert state.holds({key: b"v", other: b"v"})
    return {key: None, other: b"v", HOT: b"cold"}


def are_compacted_away(kafka: str, topic: str, keys: set[bytes]) -> bool:
    """Write one more record to the partition of HOT; whether compaction has left none of these keys there."""
    produce(kafka, topic, [(HOT, b"cold")])
    return not keys & {*keys_of(kafka, topic, routing.partition_for(HOT, 2))}


def test_a_key_whose_tombstone_was_compacted_away_while_no_job_ran_is_deleted_by_a_rebuild(
    job, compacted_away, state_of, names
):
    topic, partition = names["away"], routing.partition_for(HOT, 2)
    job.wait_for(f"INCOMPLETE: partition {partition} of topic '{topic}': its lanes may hold deleted keys")
    state = state_of(topic)
    eventually(lambda: serves(state, 2))
    assert state.holds(compacted_away)
    assert not any(mark.incomplete for mark in state.watermarks().values())
    said = [line for line in job.lines if topic in line and "and compaction removes tombstones after" in line]
    assert said[0].count("builds generation 2 beside 1") == 1


@pytest.fixture(scope="module")
def known_deletions(kafka, redis_cluster, names) -> dict[bytes, bytes | None]:
    """The topic "known": values in one partition, tombstones in another, where compaction took these alone.

    What readers get of its keys, before and after.
    """
    topic = names["known"]
    create_topic(kafka, topic, 2, config={"cleanup.policy": "compact", "delete.retention.ms": "100"})
    home = routing.partition_for(HOT, 2)
    other = 1 - home
    marked, forgotten, kept = keys_of_lane(Layout(topic, 2), home, 3)
    logged = [(key, b"v", other) for key in (marked, forgotten, kept)]
    logged += [(key, None, home) for key in (marked, forgotten)]
    records = ((*each, t.BASE_MS + number) for number, each in enumerate(logged))
    produce(kafka, topic, records)
    run = Run(redis_cluster, topic)
    topic_id = JobKafka(Connection(kafka)).describe([topic])[topic].topic_id
    serving = run.begin(Layout(topic, 2), topic_id=topic_id).plan.serving
    lane, source = (LaneTarget.of(serving, partition, 0) for partition in (home, other))
    writer = run.writer
    rows = [
        (key, codec.encode_record(value, number % 3, t.BASE_MS + number, None if value is None else other))
        for number, (key, value, _) in enumerate(logged)
    ]
    writer.put_strays(lane, t.chunk_of(lane, *rows[:3], end_offset=3), other)
    writer.flush()
    writer.note_strays(source, {lane: 3})
    writer.apply(lane, OffsetRange(0, 2), t.chunk_of(lane, *rows[3:], end_offset=2, has_tombstones=True))
    writer.flush()
    for each, end in ((source, 3), (lane, 2)):
        writer.apply(each, OffsetRange(0, end, t.CLOCK.now_ms(), end))
    writer.flush()
    run.close()
    with t.client(redis_cluster) as client:
        client.delete(lane.key_prefix + forgotten)  # its marker has expired
    compact(kafka, topic, 2)
    eventually(lambda: are_compacted_away(kafka, topic, {marked, forgotten}))
    assert {*keys_of(kafka, topic, other)} == {marked, forgotten, kept}
    keep_tombstones(kafka, topic)
    expected = {marked: None, forgotten: None, kept: b"v"}
    with closing(State(redis_cluster, topic)) as state:
        assert state.holds(expected)
    return expected


def test_deletions_that_the_state_alone_knows_are_in_the_generation_that_is_built_next(
    job, known_deletions, state_of, names
):
    expected = known_deletions | {HOT: b"cold"}
    state = state_of(names["known"])
    eventually(lambda: serves(state, 2))
    assert state.holds(expected)
    line = job.wait_for(f"topic '{names['known']}': generation 2 gets ")
    # One, where another topic's growth had the lanes opened again between the two.
    assert re.search(r"gets [12] deletions of generation 1", line)
    assert not any("may bring deleted keys back" in line for line in job.lines if names["known"] in line)
    eventually(lambda: state.record.remove == ())
    assert state.holds(expected)


def transactions(kafka: str, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": kafka, "partitioner": "murmur2_random", "transactional.id": topic}
    )
    producer.init_transactions(30)
    for turn in range(6):
        producer.begin_transaction()
        value = b"aborted" if turn % 2 else b"committed"
        for number in range(20):
            producer.produce(topic, key=b"t-%d" % number, value=value)
        producer.flush(60)
        if turn % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def test_the_job_tells_its_metrics_in_cloudwatch_s_format(job, names):
    line = json.loads(job.wait_for('"Lag"'))
    assert line["topic"] in names.values()
    assert line["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "Keylane"
    assert {"Lag", "Records", "Strays", "LeftInKafka", "Restarts", "IncompletePartitions"} <= line.keys()


@pytest.mark.last
def test_a_redis_that_was_emptied_is_filled_from_the_topics_and_reads_say_so(
    job, kafka, redis_cluster, state_of, names
):
    topic = names["gappy"]
    state = state_of(topic)
    expected = {b"emptied-%d" % number: b"1" for number in range(20)}
    produce(kafka, topic, expected.items())
    eventually(lambda: state.holds(expected))
    reader = state.reader()
    assert jobs.values_of(reader, list(expected)) == expected
    with t.client(redis_cluster) as client:
        client.flushall(target_nodes="primaries")
    with pytest.raises(LaneBuilding):
        reader.value(b"emptied-0")
    eventually(lambda: state.holds(expected))
    assert jobs.values_of(reader, list(expected)) == expected
    reader.close()
    assert state.layout.generation == 1
    assert job.process.poll() is None


@pytest.fixture
def restarts(kafka, start):
    """A topic, and a function that starts a job over it with these fields: one after the other."""
    topic = f"restarts-{next(NUMBERS)}"
    create_topic(kafka, topic, 3)
    return topic, lambda fields="": start(f"{JOB}[topics.{topic}]\n{fields}\n")


def kill(job: jobs.RunningJob) -> None:
    job.signal(signal.SIGKILL)
    job.exit_code()


def test_what_another_file_shows_otherwise_is_no_answer_that_a_client_has_already(kafka, state_of, start):
    """Values that another `select` makes; and those that are shown otherwise in place."""
    selected, shown = (f"restarts-{next(NUMBERS)}" for _ in range(2))
    for topic in (selected, shown):
        create_topic(kafka, topic, 3)
        produce(kafka, topic, [(b"k", b"1")])
    state, state_of_shown = state_of(selected), state_of(shown)
    tags, layouts = [], []
    for name, form in (("a", "auto"), ("b", "text")):
        config = (
            f"[topics.{selected}]\nselect = 'value as {name}'\n[topics.{shown}]\nvalue_format = '{form}'\n"
        )
        job = start(JOB + config)
        eventually(partial(state.holds, {b"k": b'{"%s":"1"}' % name.encode()}))
        answer = state.reader().latest(b"k")
        tags.append(etag_of(answer.record, answer.layout.incarnation, as_bytes=False))
        eventually(lambda form=form: (seen := state_of_shown.layout) and seen.options.value_format == form)
        layouts.append(state_of_shown.layout)
        kill(job)
    assert tags[0] != tags[1]
    before, after = layouts
    assert before.generation == after.generation
    assert before.incarnation != after.incarnation


@pytest.mark.long
@pytest.mark.timeout(900)  # five starts of Spark, on a machine that does other things too
def test_layouts_change_while_jobs_crash_at_every_step_and_no_read_fails(
    kafka, redis_cluster, state_of, restarts
):
    """Stripes, partitioner and options in turn; each job dies at another step, each next finds its way."""
    topic, begin = restarts
    state = state_of(topic)
    # Its writes are waited for while one job after the other is started.
    traffic = Traffic(kafka, state, topic, keys=100, pause_s=0.02)
    traffic.write_some(1_000)
    job = begin()
    eventually(lambda: serves(state, 1))
    incarnation = state.layout.incarnation
    kill(job)
    with traffic:
        # While the next generation is built.
        job = begin("stripes = 3")
        eventually(lambda: state.record.building is not None)
        kill(job)
        assert (state.layout.generation, state.record.building.generation) == (1, 2)
        # Another one is wanted now: the half-built one is removed. Killed when it switches, wherever that is.
        job = begin('partitioner = "crc32"\npartition_by = "prefix:-"')
        job.wait_for("switching topic")
        kill(job)
        assert 2 in state.record.remove or state.keys_of(2) == set()
        finish_the_mark(redis_cluster, state)
        # Once the record names the next one, before its lanes are opened.
        job = begin("history_count = 3")
        generation = state.layout.generation
        eventually(lambda: state.layout.generation > generation)
        kill(job)
        job = begin("history_count = 3")
        generation = state.layout.generation
        eventually(lambda: serves(state, generation))
        eventually(lambda: state.record.remove == ())
    traffic.check()
    asked = Layout(topic, 3, generation=generation, options=Options(history_count=3))
    assert state.layout == replace(asked, incarnation=incarnation)
    for old in range(1, generation):
        assert state.keys_of(old) == set()
    assert not any(mark.superseded for mark in state.watermarks().values())


def finish_the_mark(redis_cluster: str, state: State) -> None:
    """Do what a job does that dies between its marks and the record: too short a time to hit it by a kill."""
    layout = state.layout
    lanes = t.writer(redis_cluster, state.record.owner.epoch)
    lanes.supersede(LaneTarget.of(layout, partition, 0) for partition in range(3))
    assert all(mark.superseded for mark in state.watermarks(layout).values())
    reader = state.reader()
    assert all(jobs.values_of(reader, [b"key-%d" % number for number in range(30)]).values())
    reader.close()


@pytest.mark.long
def test_a_job_ends_and_names_its_successor_though_it_slept_or_has_nothing_to_write(state_of, restarts):
    """The first sleeps while the second starts; the second notices the third by its heartbeat."""
    topic, begin = restarts
    first = begin()
    first.wait_for("keylane: ready")
    with first.paused():
        second = begin()
        second.wait_for("keylane: ready")
    ends_and_names(first, second)
    assert second.process.poll() is None
    assert state_of(topic).record.owner.pid == second.process.pid
    third = begin()
    third.wait_for("keylane: ready")
    ends_and_names(second, third)
    assert third.process.poll() is None
    assert state_of(topic).record.owner.pid == third.process.pid


def ends_and_names(older: jobs.RunningJob, newer: jobs.RunningJob) -> None:
    assert older.exit_code() == 3
    last = [line for line in older.lines if line.startswith("keylane: ")][-1]
    epoch, next_epoch = jobs.epoch_of(older), jobs.epoch_of(newer)
    assert next_epoch > epoch
    assert f"is written by epoch {next_epoch} now, this writer is epoch {epoch}" in last
    assert f"process {newer.process.pid} on {socket.gethostname()}, epoch {next_epoch} took over" in last


@pytest.mark.long
def test_a_job_that_slept_while_redis_was_emptied_and_its_successor_began_ends_all_the_same(
    state_of, restarts, redis_cluster
):
    """The epoch counter is lost with all the rest: what the sleeper remembers must not win by that."""
    topic, begin = restarts
    first = begin()
    first.wait_for("keylane: ready")
    with first.paused():
        with t.client(redis_cluster) as client:
            client.flushall(target_nodes="primaries")
        second = begin()
        second.wait_for("keylane: ready")
    assert first.exit_code() == 3
    assert second.process.poll() is None
    assert state_of(topic).record.owner.pid == second.process.pid
