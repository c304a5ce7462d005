"""Batches planned by what each leader answers: the others' partitions are left, and lose nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.fakes import FakeTime

from keylane.errors import LogUnavailable
from keylane_spark.engine.polling import IDLE_AFTER_S
from keylane_spark.stream.leaders import AnsweredEnds
from keylane_spark.stream.plans import BatchPlanner, PlanLimits, shared_out

A, B, C = ("orders", 0), ("orders", 1), ("orders", 2)
IDLE_S = 0.05


@dataclass
class Scene:
    """Leaders whose ends a test sets, the positions of a query, and what it does in the pauses."""

    positions: dict[tuple[str, int], int] = field(default_factory=lambda: {A: 5, B: 7})
    ends: AnsweredEnds = field(default_factory=lambda: AnsweredEnds({A: 5, B: 7}, {}))
    no_further: set[tuple[str, int]] = field(default_factory=set)
    time: FakeTime = field(default_factory=FakeTime)
    committed: list[bool] = field(default_factory=list)
    doubted: int = 0
    compared: int = 0
    is_ending: bool = False

    def __post_init__(self) -> None:
        leaders: Any = self
        self.planner = BatchPlanner(leaders, PlanLimits(100, IDLE_S, committed=True), self.time.clock)

    def answered_ends(self, *, committed: bool) -> AnsweredEnds:
        self.committed.append(committed)
        return self.ends

    def doubt(self) -> None:
        self.doubted += 1

    def plan(self, pauses: int = 3) -> dict[tuple[str, int], int] | None:
        """The next batch; None if there is none after so many pauses, and the query ends."""
        last = len(self.time.pauses) + pauses

        def on_pause() -> None:
            self.is_ending = self.is_ending or len(self.time.pauses) >= last

        self.time.on_pause = on_pause

        def positions() -> dict[tuple[str, int], int]:
            self.compared += 1
            return self.positions

        found = self.planner.wait(positions, lambda: self.no_further, lambda: self.is_ending)
        self.is_ending = False
        return found


def test_a_batch_has_the_partitions_with_new_records_and_no_others():
    scene = Scene(ends=AnsweredEnds({A: 9, B: 7}, {}))
    assert scene.plan() == {A: 9}
    assert scene.committed == [True]


def test_a_leader_that_is_away_does_not_keep_the_others_from_a_batch():
    scene = Scene(ends=AnsweredEnds({B: 8}, {A: "its broker is gone"}))
    assert scene.plan() == {B: 8}


def test_a_log_that_ends_before_the_position_is_not_read_backwards():
    assert Scene(ends=AnsweredEnds({A: 4, B: 7}, {})).plan() is None


def test_partitions_without_a_position_are_not_read():
    assert Scene(ends=AnsweredEnds({A: 5, B: 7, C: 9}, {})).plan() is None


def test_what_goes_no_further_is_not_planned_and_does_not_make_the_query_spin():
    scene = Scene(ends=AnsweredEnds({A: 9, B: 7}, {}), no_further={A})
    assert scene.plan() is None
    assert min(scene.time.pauses) >= 0.1
    scene.no_further = set()
    assert scene.plan() == {A: 9}


def test_a_partition_that_was_left_is_read_a_moment_later():
    scene = Scene(ends=AnsweredEnds({A: 9, B: 7}, {}))
    scene.planner.note_batch([A, B], [A])
    assert scene.doubted == 1
    before_s = scene.time.seconds
    assert scene.plan(pauses=100) == {A: 9}
    assert 0.1 < scene.time.seconds - before_s < 0.5
    scene.planner.note_batch([A], [])
    assert scene.doubted == 1
    scene.planner.note_batch([A], [A])
    scene.planner.note_batch([B], [B])
    assert scene.plan() is None


def test_a_partition_that_can_not_be_read_is_tried_less_and_less_often_and_no_other_waits_for_it():
    scene = Scene(ends=AnsweredEnds({A: 9, B: 7}, {}))
    waited = []
    for _ in range(8):
        before_s = scene.time.seconds
        assert scene.plan(pauses=10_000) == {A: 9}
        waited.append(scene.time.seconds - before_s)
        scene.planner.note_batch([A], [A])
    assert waited == pytest.approx([0, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5], abs=0.06)
    scene.ends = AnsweredEnds({A: 9, B: 8}, {})
    assert scene.plan() == {B: 8}
    scene.planner.note_batch([B], [])
    scene.positions = {A: 5, B: 8}
    assert scene.plan(pauses=10_000) == {A: 9}
    scene.planner.note_batch([A], [])
    scene.planner.note_batch([A], [A])
    before_s = scene.time.seconds
    assert scene.plan(pauses=10_000) == {A: 9}
    assert scene.time.seconds - before_s < 0.3


def test_an_idle_query_looks_less_often_until_a_record_comes():
    scene = Scene()
    assert scene.plan() is None
    assert set(scene.time.pauses) == {0.01}
    assert scene.compared == 1
    scene.time.move(IDLE_AFTER_S)
    scene.time.pauses.clear()
    assert scene.plan() is None
    assert set(scene.time.pauses) == {IDLE_S}
    scene.ends = AnsweredEnds({A: 6, B: 7}, {})
    assert scene.plan() == {A: 6}
    scene.positions = {A: 6, B: 7}
    scene.time.pauses.clear()
    assert scene.plan() is None
    assert set(scene.time.pauses) == {0.01}


def test_a_query_that_ends_plans_nothing_more():
    scene = Scene(ends=AnsweredEnds({A: 9, B: 9}, {}), is_ending=True)
    assert scene.plan() is None
    assert scene.committed == []


def test_nobody_who_answers_for_long_is_an_error_and_anybody_is_none():
    scene = Scene(ends=AnsweredEnds({}, {A: "broker 1 does not answer", B: "nor does 2"}))
    assert scene.plan(pauses=10) is None
    scene.time.move(31)
    with pytest.raises(LogUnavailable, match="no partition has a leader that answers: broker 1"):
        scene.plan()
    scene.ends = AnsweredEnds({B: 7}, {A: "broker 1 does not answer"})
    assert scene.plan(pauses=5000) is None
    for nobody in (AnsweredEnds({}, {}), AnsweredEnds({}, {A: "broker 1 does not answer"})):
        scene.ends = nobody
        assert scene.plan(pauses=10) is None
        scene.time.move(31)


@pytest.mark.parametrize(
    ("ends", "most", "shared"),
    [
        ({A: 10, B: 30}, 40, {A: 10, B: 30}),
        ({A: 10, B: 30}, 20, {A: 5, B: 15}),
        ({A: 1, B: 1000}, 10, {A: 1, B: 9}),
        ({A: 1, B: 1, C: 1}, 1, {A: 1, B: 1, C: 1}),
        ({A: 3, B: 3}, 3, {A: 1, B: 1}),
    ],
)
def test_a_large_backlog_is_shared_out_and_every_partition_gets_on(ends, most, shared):
    begins = dict.fromkeys(ends, 100)
    found = shared_out(begins, {each: 100 + end for each, end in ends.items()}, most)
    assert {each: end - 100 for each, end in found.items()} == shared
