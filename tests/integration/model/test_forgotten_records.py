"""Kafka removes records that the job has never read: on a real Redis, with the model's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.model.log import Kind
from tests.model.redis_world import Crash
from tests.model.world import World
from tests.servers.own import own_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN, OTHER, ADDED = Kind(0, True), Kind(1, True), Kind(2, True)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory) -> Iterator[str]:
    """A cluster that holds nothing else."""
    with own_cluster(tmp_path_factory.mktemp("forgotten")) as cluster:
        yield cluster.addresses
        cluster.stop()


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
    world.cluster.crash_after = 2
    with pytest.raises(Crash):
        world.open()
    world.cluster.finish()
    world.cluster.crash_after = None
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
