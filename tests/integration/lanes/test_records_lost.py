"""A topic's records are lost, in one shard or in all, and a writer begins again: on a real cluster."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

import pytest
import redis
from tests.servers.own import eventually, hanging, primary_and_replica
from tests.support import lanes as t
from tests.support.begun import Run
from tests.support.jobs import State

from keylane import routing
from keylane.errors import Fenced, StateUnavailable, UnknownTopic
from keylane.model.records import Layout
from keylane.state import redis_keys
from keylane.state.redis_keys import COPY_TAGS, RECORD_TAG
from keylane_spark.generations.ownership import Ownership
from keylane_spark.lanes.function_library import WriteOptions

NUMBERS = itertools.count()


@pytest.fixture
def scene(redis_cluster):
    """A topic's name, its state as readers see it, and a function that makes runs of its writer."""
    topic = f"lost-{next(NUMBERS)}"
    state, runs = State(redis_cluster, topic), []

    def run() -> Run:
        runs.append(Run(redis_cluster, topic))
        return runs[-1]

    yield topic, state, run
    for each in runs:
        each.close()
    state.close()


def empty_shard_of(nodes: str, key: bytes) -> None:
    """Empty the shard that holds this key, as if its primary had come back without data."""
    with t.client(nodes) as client:
        node = client.nodes_manager.get_node_from_slot(routing.key_slot(key))
    with redis.Redis(host=node.host, port=node.port) as primary:
        primary.flushall()


def record_keys(topic: str, tag: bytes) -> list[bytes]:
    kinds = redis_keys.layout_key, redis_keys.record_key, redis_keys.epoch_key
    return [kind(topic, tag) for kind in kinds]


def lose_records(nodes: str, topic: str, *tags: bytes) -> None:
    with t.client(nodes) as client:
        for tag in tags:
            client.delete(*record_keys(topic, tag))


@pytest.mark.parametrize("has_whole_log", [True, False])
def test_older_slots_are_left_only_if_the_log_has_all_that_they_hold(redis_cluster, scene, has_whole_log):
    topic, state, run = scene
    first = run()
    older = first.begin(Layout(topic, 3, centered=False)).plan.serving
    keys = first.write(older, 20)
    plan = run().begin(Layout(topic, 3), oldest=0 if has_whole_log else 5).plan
    assert plan.serving == older
    assert plan.building == (replace(older, generation=2, centered=True) if has_whole_log else None)
    with contextlib.closing(state.reader()) as reader:
        assert all(reader.value(key) == key for key in keys)
    # Who changes the layout has asked for a state of what the log has.
    changed = run().begin(Layout(topic, 3, stripes=2), oldest=5).plan.building
    assert changed is not None
    assert (changed.centered, changed.stripes) == (True, 2)


def test_the_three_copies_lie_in_three_shards_of_three():
    slots = sorted(routing.key_slot(b"{%b}" % tag) for tag in (RECORD_TAG, *COPY_TAGS))
    assert slots == [5307, 10052, 16203]
    assert [slot * 3 // 16384 for slot in slots] == [0, 1, 2]


def test_a_start_after_the_shard_of_the_records_was_emptied_continues_with_the_generation(
    redis_cluster, scene
):
    topic, state, run = scene
    layout = Layout(topic, 9, generation=1)
    first = run()
    layout = first.begin(layout).plan.serving
    keys = first.write(layout, 20)
    reader = state.reader()
    assert all(reader.value(key) == key for key in keys)
    empty_shard_of(redis_cluster, redis_keys.layout_key(topic))
    second = run()
    begun = second.begin(layout, oldest=5)
    assert begun.plan.serving == layout
    assert begun.began == (0,) * 9
    marks = state.watermarks(layout)
    kept = {partition for (partition, _), mark in marks.items() if mark and mark.next_offset == 20}
    assert 0 < len(kept) < 9
    assert all(mark and mark.incomplete == (partition not in kept) for (partition, _), mark in marks.items())
    assert state.record.remove == ()
    assert state.layout == layout
    here = [key for key in keys if routing.partition_for(key, 9) in kept]
    assert all(reader.value(key) == key for key in here)
    reader.close()


def test_a_run_that_goes_on_after_redis_was_emptied_keeps_its_generation_and_where_it_began(
    redis_cluster, scene
):
    topic, state, run = scene
    layout = Layout(topic, 3, generation=1)
    only = run()
    layout = only.begin(layout, oldest=2).plan.serving
    with t.client(redis_cluster) as client:
        client.flushall(target_nodes="primaries")
    begun = only.begin(layout, oldest=7)
    assert (begun.plan.serving, begun.began) == (layout, (2, 2, 2))
    assert all(mark and mark.incomplete for mark in state.watermarks(layout).values())


def test_a_switch_that_a_failover_took_back_from_readers_is_not_taken_back_by_the_next_start(
    redis_cluster, scene
):
    topic, state, run = scene
    first = run()
    incarnation = first.begin(Layout(topic, 3, generation=1)).plan.serving.incarnation
    keys = record_keys(topic, RECORD_TAG)
    with t.client(redis_cluster) as client:
        before = client.mget_nonatomic(keys)
        first.begin(Layout(topic, 3, generation=1, partitioner="crc32"))
        first.ownership.switch(topic, 1, state.record.building)
        assert state.layout.generation == 2
        for key, value in zip(keys, before, strict=True):
            client.set(key, value)
    reader = state.reader()
    begun = run().begin(Layout(topic, 3, generation=1, partitioner="crc32"))
    switched = Layout(topic, 3, generation=2, partitioner="crc32", incarnation=incarnation)
    assert begun.plan.serving == switched
    assert state.record.remove == (1,)
    assert reader.latest(b"key", partial=True).layout.generation == 2
    reader.close()


def test_where_all_records_are_lost_a_new_generation_is_incomplete_and_the_old_one_is_listed(
    redis_cluster, scene
):
    topic, state, run = scene
    run().begin(Layout(topic, 3, generation=1))
    lose_records(redis_cluster, topic, RECORD_TAG, *COPY_TAGS)
    begun = run().begin(Layout(topic, 3, generation=1), oldest=4)
    assert begun.plan.serving.generation == 2
    assert begun.began == (0, 0, 0)
    assert state.record.remove == (1,)
    assert all(mark and mark.incomplete for mark in state.watermarks().values())


def test_a_number_that_another_layout_left_behind_in_a_slot_is_not_used_again(redis_cluster, scene):
    """9 partitions became 3: partition 1 of 3 lies in the slot that partition 4 of 9 had."""
    topic, state, run = scene
    old = Layout(topic, 9, generation=1)
    run().begin(old)
    lose_records(redis_cluster, topic, RECORD_TAG, *COPY_TAGS)
    with t.client(redis_cluster) as client:
        for key in state.keys_of(1):
            if not key.startswith(b"{fjl}"):
                client.delete(key)
    assert run().begin(Layout(topic, 3, generation=1)).plan.serving.generation == 2


def test_a_topic_that_is_new_on_a_log_with_retention_is_not_incomplete(scene):
    topic, state, run = scene
    assert run().begin(Layout(topic, 3), oldest=9).began == (9, 9, 9)
    assert not any(mark.incomplete for mark in state.watermarks().values())


def test_readers_go_by_a_copy_while_the_layout_record_is_lost(redis_cluster, scene):
    topic, state, run = scene
    layout = Layout(topic, 3, generation=1)
    first = run()
    first.begin(layout)
    keys = first.write(layout, 10)
    lose_records(redis_cluster, topic, RECORD_TAG, COPY_TAGS[0])
    reader = state.reader()
    assert all(reader.value(key) == key for key in keys)
    lose_records(redis_cluster, topic, COPY_TAGS[1])
    reader = state.reader()
    with pytest.raises(UnknownTopic):
        reader.value(keys[0])


def test_what_a_copy_lost_is_written_again(redis_cluster, scene):
    topic, _, run = scene
    first = run()
    first.begin(Layout(topic, 3, generation=1))
    assert first.ownership.repair() == []
    with t.client(redis_cluster) as client:
        before = {tag: client.mget_nonatomic(record_keys(topic, tag)) for tag in (RECORD_TAG, *COPY_TAGS)}
        for tag, stored in before.items():
            lose_records(redis_cluster, topic, tag)
            (line,) = first.ownership.repair()
            assert line == f"topic '{topic}': its records in {{{tag.decode()}}} are written again"
            assert client.mget_nonatomic(record_keys(topic, tag)) == stored


def test_a_run_that_was_replaced_repairs_nothing(redis_cluster, scene):
    topic, state, run = scene
    first, second = run(), run()
    for each in (first, second):
        each.begin(Layout(topic, 3, generation=1))
    lose_records(redis_cluster, topic, RECORD_TAG)
    with pytest.raises(Fenced):
        first.ownership.repair()
    with pytest.raises(Fenced):
        first.ownership.take([topic])
    second.ownership.repair()
    assert state.record.owner.epoch == second.epoch


def test_records_wait_for_replicas_as_the_config_says_and_missing_ones_are_reported(redis_cluster, scene):
    topic, _, _ = scene
    said: list[str] = []
    options = WriteOptions(wait_replicas=1, wait_ms=10_000)
    enough = Ownership(t.settings(redis_cluster), t.CLOCK, options, said.append)
    enough.take([topic])
    assert said == []
    enough.close()
    options = WriteOptions(wait_replicas=5, wait_ms=1_000)
    too_many = Ownership(t.settings(redis_cluster), t.CLOCK, options, said.append)
    too_many.take([topic])
    assert said == ["1 of 5 replicas have the records of the topics"]
    too_many.close()


@pytest.mark.parametrize("tag", [RECORD_TAG, COPY_TAGS[0]])
def test_two_copies_suffice_while_the_shard_of_the_third_is_away(breaking, tag):
    topic = f"copies-{next(NUMBERS)}"
    layout = Layout(topic, 3, generation=1)
    first = Run(breaking.addresses, topic)
    layout = first.begin(layout).plan.serving
    nodes = primary_and_replica(breaking, routing.key_slot(b"{%b}" % tag))
    second = Ownership(t.settings(breaking.addresses), t.CLOCK)
    with hanging(*nodes):
        epoch = second.take([topic])
        known, record = second.known(topic)
        assert (known, epoch > first.epoch) == (layout, True)
        second.change(topic, replace(record, owner=second.owner(epoch)).removing([7]))
        with pytest.raises(Fenced):
            first.ownership.note_removed(topic, 1)
    expected = f"topic '{topic}': its records in {{{tag.decode()}}} are written again"
    lines: list[str] = []

    def is_repaired() -> bool:
        with contextlib.suppress(StateUnavailable):
            lines.extend(second.repair())
        return expected in lines

    eventually(is_repaired)
    with pytest.raises(Fenced):
        first.ownership.take([topic])
    for each in (first, second):
        each.close()
