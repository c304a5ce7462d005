"""Removing a generation's keys from a real cluster: all of them, the watermarks last, and nothing in use."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.support import lanes as t
from tests.support.begun import Run
from tests.support.jobs import State

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.errors import Fenced, LaneBuilding
from keylane.model.records import Layout, Options, Watermark
from keylane.state import codec, redis_keys
from keylane_spark.lanes.function_library import FunctionLibrary
from keylane_spark.lanes.lane import lanes_of
from keylane_spark.lanes.sweep import FoundGenerations, remove_generation

NUMBERS = itertools.count()


def keys_of(layout: Layout, record_keys: list[bytes]) -> dict[bytes, bytes]:
    """A value, a history and an index entry for each record key, and the lanes' watermarks."""
    entries = {}
    for partition in range(layout.partition_count):
        tag = routing.hash_tag(routing.slot_for(partition, 0, layout.partition_count, 1))
        watermark_key = redis_keys.watermark_key(tag, layout.topic, layout.generation, partition, 0)
        entries[watermark_key] = codec.encode_watermark(Watermark(1, 1))
        entries[redis_keys.writer_key(tag, layout.topic, layout.generation)] = b"1"
        for key in record_keys:
            entries[redis_keys.value_key(tag, layout.topic, layout.generation, key)] = b"v"
            entries[redis_keys.history_key(tag, layout.topic, layout.generation, key)] = b"h"
        index = redis_keys.index_key(tag, layout.topic, layout.generation, partition, 0)
        entries |= dict.fromkeys(redis_keys.parts_of(index, layout.options.index), b"i")
    return entries


def is_last(key: bytes) -> bool:
    """Whether it goes after the records: a watermark, or the epoch of a slot."""
    return b":w:" in key or key.endswith(b":e")


def test_all_keys_of_a_generation_go_and_those_that_only_look_like_them_stay(redis_cluster):
    topic = f"sweep.{next(NUMBERS)}"
    layout = Layout(topic, 9, generation=2, options=Options(index=2))
    old = keys_of(layout, [b"%d" % number for number in range(20)])
    lookalike = b"x}:%b:2:v:1" % topic.encode()
    others = [
        keys_of(Layout(topic, 3, generation=20), [b"a"]),
        keys_of(Layout(topic, 3, generation=3), [b"a"]),
        keys_of(Layout(f"{topic}.2", 3, generation=2), [b"a"]),
        keys_of(Layout(topic.replace(".", "-"), 3, generation=2), [b"a"]),
        keys_of(Layout(f"other-{topic}", 3), [lookalike]),
    ]
    stay = {key: value for entries in others for key, value in entries.items()}
    cluster = Cluster(t.settings(redis_cluster))
    with t.client(redis_cluster) as client:
        for key, value in (old | stay).items():
            client.set(key, value)
        left = set(old)
        for looked, removed in remove_generation(FunctionLibrary(cluster, t.CLOCK), topic, 2, 1):
            before, left = left, {key for key in left if client.exists(key)} if removed else left
            assert len(before) - len(left) == removed <= looked
            records = [key for key in left if not is_last(key)]
            assert not records or len(left) == len(records) + sum(map(is_last, old))
        assert left == set()
        assert all(client.exists(key) for key in stay)
    cluster.close()


def test_an_interrupted_removal_is_continued(redis_cluster):
    topic = f"sweep.{next(NUMBERS)}"
    old = keys_of(Layout(topic, 3), [b"%d" % number for number in range(600)])
    cluster = Cluster(t.settings(redis_cluster))
    with t.client(redis_cluster) as client:
        for key, value in old.items():
            client.set(key, value)
        next(
            removed
            for _, removed in remove_generation(FunctionLibrary(cluster, t.CLOCK), topic, 1, 1)
            if removed
        )
        assert sum(
            removed for _, removed in remove_generation(FunctionLibrary(cluster, t.CLOCK), topic, 1, 1)
        ) < len(old)
        assert not any(client.exists(key) for key in old)
    cluster.close()


@pytest.fixture
def run(redis_cluster):
    """A writer with one topic."""
    made = Run(redis_cluster, f"sweep.{next(NUMBERS)}")
    yield made
    made.close()


def test_a_reader_with_an_old_layout_is_never_answered_by_a_half_removed_generation(redis_cluster, run):
    """Nobody has superseded it: the records that named it were lost."""
    layout = Layout(run.topic, 3, generation=1)
    run.begin(layout)
    keys = run.write(layout, 400)
    state = State(redis_cluster, run.topic)
    reader = state.reader()
    assert all(reader.value(key) == key for key in keys)
    answered = 0
    for _ in remove_generation(FunctionLibrary(run.cluster, t.CLOCK), run.topic, 1, run.epoch):
        for key in keys[::100]:
            try:
                assert reader.value(key) == key
                answered += 1
            except LaneBuilding:
                pass
    assert answered
    assert state.keys_of(1) == set()
    reader.close()
    state.close()


def test_a_writer_that_slept_removes_nothing_of_a_generation_in_use(redis_cluster, run):
    """It slept in the middle of a removal; Redis was emptied, and its successor uses the number again."""
    layout = Layout(run.topic, 3, generation=1)
    run.begin(layout)
    run.write(layout, 5000)
    removal = remove_generation(FunctionLibrary(run.cluster, t.CLOCK), run.topic, 1, run.epoch)
    next(removed for _, removed in removal if removed)
    with t.client(redis_cluster) as client:
        client.flushall(target_nodes="primaries")
    successor = Run(redis_cluster, run.topic)
    served = successor.begin(layout).plan.serving
    assert served == replace(layout, incarnation=successor.epoch)
    keys = successor.write(layout, 100)
    with pytest.raises(Fenced):
        list(removal)
    with pytest.raises(Fenced):
        list(remove_generation(FunctionLibrary(run.cluster, t.CLOCK), run.topic, 1, run.epoch))
    state = State(redis_cluster, run.topic)
    reader = state.reader()
    assert all(reader.value(key) == key for key in keys)
    for each in (reader, state, successor):
        each.close()


def test_a_lane_that_is_opened_in_the_middle_of_its_removal_begins_again_at_the_start(run):
    layout = Layout(run.topic, 1, generation=1)
    run.begin(layout)
    run.write(layout, 10)
    removal = remove_generation(FunctionLibrary(run.cluster, t.CLOCK), run.topic, 1, run.epoch)
    next(removed for _, removed in removal if removed)
    later = t.writer_over(run.cluster, run.epoch + 1)
    (start,) = later.open([(lane, 0) for lane in lanes_of(layout)]).values()
    assert (start.next_offset, start.complete_as_of_ms) == (0, 0)


def test_a_search_finds_the_generations_that_have_lanes_and_nothing_else(redis_cluster, run):
    view = f"~{run.topic}"
    with t.client(redis_cluster) as client:
        for layout in (Layout(run.topic, 9, generation=12), Layout(view, 3, generation=3)):
            for key, value in keys_of(layout, [b"x:%b:7:w:0.0" % run.topic.encode()]).items():
                client.set(key, value)
        client.set(b"{other}:%b:8:w:x" % run.topic.encode(), b"")
    found = FoundGenerations()
    assert sum(looked for looked, _ in found.search(run.cluster, t.CLOCK)) > 0
    assert found.by_topic[run.topic] == {12}
    assert found.by_topic[view] == {3}
