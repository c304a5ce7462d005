"""Kafka removes records that the job has never read: on a real Redis, with the model's log."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.model.log import TOPIC, Kind
from tests.model.world import World
from tests.support import lanes as t

from keylane_spark.config.topics import Config
from keylane_spark.generations.ownership import Ownership
from keylane_spark.lanes.lane import LaneTarget, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane.model.records import Layout
    from keylane_spark.lanes.topic_record import TopicRecord

CALLS_TO_OPEN = 8
"""An epoch and a record in three copies each, and two lanes."""
OWN, OTHER, ADDED = Kind(0, True), Kind(1, True), Kind(2, True)


@pytest.fixture
def world(nodes) -> Iterator[World]:
    with World(nodes) as found:
        yield found


def are_incomplete(world: World) -> list[bool]:
    return [world.watermark(number).incomplete for number in range(2)]


def test_strays_that_retention_removed_unread_leave_every_lane_incomplete_that_could_have_taken_them(world):
    world.write(OWN)
    world.write(OTHER)
    world.settle()
    assert are_incomplete(world) == [False, False]
    world.write(OTHER)
    world.removed_below[1] = 2
    world.open()
    assert are_incomplete(world) == [True, True]
    assert len(world.query._opening.incomplete) == 2


def test_without_strays_only_the_lane_of_the_partition_is_incomplete(world):
    world.write(OWN)
    world.settle()
    world.write(OTHER)
    world.removed_below[1] = 1
    world.open()
    assert are_incomplete(world) == [False, True]


def test_a_start_that_ended_before_it_marked_the_other_lanes_leaves_that_to_the_next(world):
    world.write(OWN)
    world.write(OTHER)
    world.settle()
    world.write(OTHER)
    world.removed_below[1] = 2
    assert world.open(crash_at=CALLS_TO_OPEN)
    assert world.query is None
    assert are_incomplete(world) == [False, True]
    world.open()
    assert are_incomplete(world) == [True, True]


def test_records_of_an_added_partition_that_were_removed_before_its_first_reading_leave_lanes_incomplete(
    world,
):
    world.write(OWN)
    world.settle()
    world.partition_count = 3
    world.write(ADDED)
    world.removed_below[2] = 1
    world.open()
    assert are_incomplete(world) == [True, True]


def test_a_partition_that_was_added_and_has_all_its_records_leaves_no_lane_incomplete(world):
    world.write(OWN)
    world.settle()
    world.partition_count = 3
    world.write(ADDED)
    world.open()
    assert are_incomplete(world) == [False, False]


def later(world: World, ms: int) -> None:
    """Time goes by while no job runs."""
    world.query = None
    world.now += ms


def record_of(world: World) -> TopicRecord:
    with contextlib.closing(Ownership(world.context.redis, world.context.clock)) as ownership:
        record = ownership.record(TOPIC)
    assert record
    return record


def built(world: World) -> tuple[int, int | None]:
    """The generations that serve and are being built."""
    record = record_of(world)
    assert record.serving
    return record.serving.generation, record.building and record.building.generation


def test_lanes_that_were_complete_before_compaction_removed_tombstones_are_incomplete_and_built_again(world):
    world.compacted_after = 1_000
    world.write(OWN)
    world.settle()
    later(world, 800)
    world.open()
    assert (are_incomplete(world), built(world)) == ([False, False], (1, None))
    later(world, 1_000)
    world.open()
    assert are_incomplete(world) == [True, True]
    assert world.watermark(0).missed_deletions
    assert world.query._opening.missed_deletions == {(TOPIC, 0), (TOPIC, 1)}
    assert built(world) == (1, 2)
    building = record_of(world).building
    served = world.query._opening.writer.layouts[TOPIC]
    assert building == replace(served, generation=2, incarnation=building.incarnation)
    assert building.incarnation != served.incarnation, "listeners begin again"


def test_what_compaction_does_not_touch_is_not_built_again(world):
    world.write(OWN)
    world.settle()
    later(world, 10**9)
    world.open()
    assert (are_incomplete(world), built(world)) == ([False, False], (1, None))


def test_lanes_that_may_hold_deleted_keys_are_built_again_though_they_are_complete_by_now(world):
    """The job ended before it had built them."""
    world.compacted_after = 1_000
    world.write(OWN)
    world.settle()
    later(world, 2_000)
    world.open()
    world.read_on()
    assert world.watermark(0).complete_as_of_ms > world.now - 100
    world.open()
    assert (are_incomplete(world), built(world)) == ([True, True], (1, 2))
    record = record_of(world)
    ownership = Ownership(world.context.redis, world.context.clock)
    ownership.take([TOPIC])
    ownership.change(TOPIC, replace(record, building=None, remove=(2,)))
    ownership.close()
    world.open()
    assert (are_incomplete(world), built(world)) == ([True, True], (1, 3))


def test_a_generation_that_was_not_complete_in_time_is_given_up_for_another(world):
    world.compacted_after = 1_000
    world.write(OWN)
    world.settle()
    later(world, 2_000)
    world.open()
    read_one_record(world, replace(world.layout, generation=2))
    later(world, 800)
    world.open()
    assert built(world) == (1, 2)
    later(world, 200)
    world.open()
    assert built(world) == (1, 3)
    assert record_of(world).remove == (2,)


def read_one_record(world: World, layout: Layout) -> None:
    """A generation that is being built reads a record of partition 0."""
    writer = t.writer_over(world.cluster, world.query._opening.writer.epoch)
    writer.apply(LaneTarget.of(layout, 0, 0), OffsetRange(0, 1))
    writer.flush()


def test_a_rebuild_that_may_bring_deleted_keys_back_is_named_in_the_log(world):
    said: list[str] = []
    world.context.say = said.append
    world.compacted_after = 1_000
    world.write(OWN)
    world.write(OTHER)
    world.settle()
    later(world, 2_000)
    world.open()
    world.open()
    assert built(world) == (1, 2)
    (line,) = [line for line in said if "may bring deleted keys back" in line]
    assert line.startswith(f"topic {TOPIC!r} is compacted, and its keys have records in several partitions")


def config_of(**options: bool) -> Config:
    return Config.model_validate({"job": {"reader": "spark"}, "topics": {TOPIC: options}})


@pytest.mark.parametrize(("options", "is_named"), [({}, False), ({"insert_once": True}, True)])
def test_a_rebuild_that_gets_all_deletions_of_the_generation_that_serves_is_not_named(
    world, options, is_named
):
    said: list[str] = []
    world.context.say = said.append
    world.compacted_after = 10**9
    world.context.config = config_of(**options)
    world.write(OWN)
    world.write(OTHER)
    world.settle()
    world.context.config = config_of(**options, index=True)
    world.open()
    assert built(world) == (1, 2)
    named = [line for line in said if "may bring deleted keys back" in line]
    assert [line.rpartition(": ")[2] for line in named] == ["it keeps first values (insert_once)"] * is_named


def test_a_rebuild_of_keys_that_have_one_partition_each_brings_nothing_back(world):
    said: list[str] = []
    world.context.say = said.append
    world.compacted_after = 1_000
    world.write(OWN)
    world.settle()
    later(world, 2_000)
    world.open()
    assert built(world) == (1, 2)
    assert not any("may bring deleted keys back" in line for line in said)
