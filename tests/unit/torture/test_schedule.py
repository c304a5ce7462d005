"""The torture's schedules: drawn from a seed, and worth their time."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from tests.torture.configurations import CONFIGURATIONS
from tests.torture.schedule import EVENTS, Event, Produce, Schedule, Shape, Write, draw, kinds_of

from keylane.model.records import WHOLE_KEY

TOPICS = (Shape("plain", 6), Shape("mixed", 6, mixed=True))


def test_equal_seeds_give_equal_schedules_and_others_give_others():
    assert draw(7, TOPICS) == draw(7, TOPICS)
    assert len({draw(seed, TOPICS).steps for seed in range(20)}) == 20


def test_a_focus_is_the_first_event_of_its_schedule():
    for kind in EVENTS:
        assert draw(3, TOPICS, kind).events[0] == kind


@pytest.mark.parametrize("first", [0, 7_331, 999_983, 20_261_124])
def test_any_25_seeds_in_a_row_draw_every_kind_of_event(first):
    drawn = [set(kinds_of(seed)) for seed in range(first, first + 225)]
    for at in range(200):
        assert set().union(*drawn[at : at + 25]) == set(EVENTS), f"from seed {first + at} on"


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda each: each.name)
def test_the_kinds_of_a_seed_are_those_of_its_schedule_in_every_configuration(configuration):
    for seed in (5, 23, 1_000_024):
        assert draw(seed, configuration.shapes).events == kinds_of(seed)


def test_a_kind_of_event_meets_another_each_time_and_some_schedules_have_none():
    assert len({tuple(sorted(kinds_of(seed))) for seed in range(3, 303, 25)}) > 5
    assert any(not kinds_of(seed) for seed in range(24, 324, 25))


def test_among_two_hundred_schedules_every_event_and_every_kind_of_write_occurs():
    schedules = [draw(seed, TOPICS) for seed in range(200)]
    assert {kind for schedule in schedules for kind in schedule.events} == set(EVENTS)
    produced = [step for schedule in schedules for step in schedule.steps if isinstance(step, Produce)]
    assert {step.transaction for step in produced} == {None, "commit", "abort"}
    writes = [write for step in produced for write in step.writes]
    assert {write.size is None for write in writes} == {True, False}
    assert max(Counter((step.topic, write.key) for step in produced for write in step.writes).values()) > 1000


def test_records_of_every_partition_follow_each_event_so_that_it_has_something_to_spoil():
    for seed in range(20):
        steps = draw(seed, TOPICS).steps
        for number, step in enumerate(steps):
            if isinstance(step, Event):
                after = [
                    later.topic for later in steps[number + 1 : number + 5] if isinstance(later, Produce)
                ]
                assert set(after) >= {"plain", "mixed"}


def test_a_serial_names_one_record_and_every_schedule_has_keys_of_its_own():
    one, other = draw(1, TOPICS), draw(2, TOPICS)
    serials = [write.serial for step in one.steps if isinstance(step, Produce) for write in step.writes]
    assert len(serials) == len(set(serials))
    assert not set(one.keys["plain"]) & set(other.keys["plain"])


def test_only_mixed_topics_have_records_in_other_partitions_and_clocks_go_back_at_times():
    plain, mixed = ([], [])
    for seed in range(20):
        for step in draw(seed, TOPICS).steps:
            if isinstance(step, Produce):
                (mixed if step.topic == "mixed" else plain).extend(step.writes)
    assert {write.placed_by for write in plain} == {"murmur2"}
    assert {write.placed_by for write in mixed} == {"murmur2", "crc32", "fnv1a", *range(6)}
    assert any(now.time_ms < before.time_ms for before, now in itertools.pairwise(mixed))


def _writes_of(schedule: Schedule) -> list[Write]:
    return [write for step in schedule.steps if isinstance(step, Produce) for write in step.writes]


def test_a_key_shares_its_partition_with_others_and_some_producers_do_not_know_it():
    shape = Shape("grouped", 6, mixed=True, partition_by="prefix:_")
    schedule = draw(11, (shape,))
    writes = _writes_of(schedule)
    assert 0.1 < sum(write.placed_by == WHOLE_KEY for write in writes) / len(writes) < 0.3
    assert not any(write.placed_by == WHOLE_KEY for write in _writes_of(draw(11, TOPICS)))
    groups: dict[bytes, set[int]] = {}
    for key in map(schedule.key, range(120)):
        groups.setdefault(key.partition(b"_")[0], set()).add(shape.partition_of(key))
    assert all(len(partitions) == 1 for partitions in groups.values())
    assert len(set().union(*groups.values())) > 1
