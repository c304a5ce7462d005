"""The switch from one generation to the next: its order, and what it is given up for."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fakes import FakeTime
from tests.support.queries import FakeQuery

from keylane.errors import Fenced, LaneBehind, StateUnavailable, TopicChanged
from keylane.model.records import Layout
from keylane.state.lanes import lane_at
from keylane_spark.lanes.parked_slots import ParkedSlots
from keylane_spark.lanes.record_copies import SLOTS as RECORD_SLOTS
from keylane_spark.lanes.topic_record import Owner, TopicRecord
from keylane_spark.log.kafka_admin import TopicShape
from keylane_spark.serving import parking, switch
from keylane_spark.serving.switch import Serving
from keylane_spark.stream.batch_query import FAILED_STOP_S
from keylane_spark.stream.openings import Opening, Openings
from keylane_spark.telemetry.metrics import JobMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

OLD = Layout("orders", 2, generation=1)
NEXT = replace(OLD, stripes=2, generation=2)
SLOT = lane_at(OLD, 0, 0).slot
OWNER = Owner("host", 7, 0, 3)


@dataclass
class FakeWriter:
    """A begun writer that notes which lanes are marked."""

    events: list[str]
    layouts: dict[str, Layout]
    redis: Any = None
    epoch: int = 3

    def lanes(self, *_: Any) -> FakeWriter:
        return self

    def supersede(self, lanes: Any) -> None:
        self.events.append("marks " + " ".join(map(str, lanes)))


@dataclass
class FakeOwnership:
    """One topic's record and layout."""

    events: list[str]
    record: TopicRecord = TopicRecord("id", (0, 0), OWNER, NEXT)  # noqa: RUF009 (it is frozen)

    def switch(self, topic: str, old: int, layout: Layout) -> None:
        self.record = self.record.switched(old)
        self.events.append(f"{topic} is generation {layout.generation}")


@dataclass
class FakeStop:
    """Time passes where it is waited for; `on_wait` is what happens meanwhile."""

    time: FakeTime
    on_wait: Callable[[], None] = lambda: None
    waits: int = 0
    is_stopped: bool = False

    def is_set(self) -> bool:
        return self.is_stopped

    def wait(self, seconds: float) -> bool:
        self.waits += 1
        assert self.waits < 10_000, "it waits for ever"
        self.time.move(seconds)
        self.on_wait()
        return self.is_stopped


@dataclass
class Scene:
    """A job of one topic at the end of a build."""

    events: list[str] = field(default_factory=list)
    time: FakeTime = field(default_factory=FakeTime)

    def __post_init__(self) -> None:
        now_ms = self.time.now_ms
        self.old = FakeQuery(self.events, "old", {("orders", 0): 50, ("orders", 1): 70}, now_ms)
        self.next = FakeQuery(self.events, "next", {("orders", 0): 50, ("orders", 1): 69}, now_ms)
        self.ownership = FakeOwnership(self.events)
        self.stop = FakeStop(self.time)
        self.parked = ParkedSlots()
        self.said: list[str] = []
        self.carried: list[set[str]] = []
        self.on_carry: Callable[[], None] = lambda: None

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            switch, "TopicQuery", lambda *_, building=False, **__: self.next if building else self.old
        )
        monkeypatch.setattr(switch, "Cluster", lambda _: FakeCluster())
        monkeypatch.setattr(switch, "carry_deletions", self.carry)
        openings = Openings(self.opening(OLD), self.opening(NEXT), {"orders": TopicShape("id", 2)})
        context: Any = FakeContext(self.time, self.said)
        metrics = JobMetrics(self.time.clock)
        ownership: Any = self.ownership
        totals: Any = None
        stop: Any = self.stop
        Serving(context, ownership, openings, totals, metrics).until_stopped(stop)

    def carry(self, _: Any, serving: Opening, building: Opening, mixed: set[str]) -> Iterator[None]:
        served, built = (each.writer.layouts["orders"].generation for each in (serving, building))
        self.events.append(f"carries from {served} to {built}")
        self.carried.append(mixed)
        for _ in range(3):
            self.on_carry()
            yield

    def opening(self, layout: Layout) -> Opening:
        writer: Any = FakeWriter(self.events, {"orders": layout})
        return Opening(writer, {}, [], frozenset(), parked=self.parked)

    @property
    def is_switched(self) -> bool:
        return any(event.startswith(("marks", "orders is")) for event in self.events)


class FakeCluster:
    def close(self) -> None:
        pass


class FakeContext:
    def __init__(self, time: FakeTime, said: list[str]) -> None:
        self.clock = self.claim_clock = time.clock
        self.say = said.append
        self.redis = None


def test_a_switch_stops_the_old_waits_for_the_next_marks_all_lanes_and_names_it_last(monkeypatch):
    scene = Scene()

    def the_next_catches_up() -> None:
        if scene.stop.waits == 5:
            scene.events.append("next catches up")
            scene.next.positions["orders", 1] = 70

    scene.stop.on_wait = the_next_catches_up
    scene.run(monkeypatch)
    assert scene.events == [
        "old starts",
        "next starts",
        "carries from 1 to 2",
        "old stops",
        "next catches up",
        "next stops",
        "marks orders/0.0 orders/1.0",
        "orders is generation 2",
    ]
    assert scene.ownership.record == TopicRecord("id", (0, 0), OWNER, None, (1,))


def test_a_generation_that_is_not_complete_or_was_so_long_ago_is_not_switched_to(monkeypatch):
    for complete_ms in (0, FakeTime().now_ms - 5_000):
        scene = Scene()
        scene.next.complete_as_of_ms = complete_ms
        scene.old.failure = None

        def the_old_breaks(scene: Scene = scene) -> None:
            if scene.stop.waits == 50:
                scene.old.failure = LaneBehind("orders/0.0", 1, 2)

        scene.stop.on_wait = the_old_breaks
        with pytest.raises(LaneBehind):
            scene.run(monkeypatch)
        assert not scene.is_switched


def test_there_is_no_switch_while_a_lane_is_parked_and_all_are_opened_when_it_takes_writes_again(monkeypatch):
    scene = Scene()
    scene.next.positions["orders", 1] = 70
    scene.parked.park([SLOT], "its node is away")
    asked_s: list[float] = []

    def writable_slots(_: object, __: object, slots: Collection[int]) -> set[int]:
        asked_s.append(scene.time.seconds)
        return set(slots) if len(asked_s) > 5 else set()

    monkeypatch.setattr(parking, "writable_slots", writable_slots)
    with pytest.raises(TopicChanged, match="take writes again"):
        scene.run(monkeypatch)
    assert not scene.is_switched
    pauses = [round(after - before) for before, after in itertools.pairwise(asked_s[:6])]
    assert pauses == [2, 4, 8, 15, 15]


def test_lanes_are_not_opened_again_while_two_copies_of_the_records_take_no_writes(monkeypatch):
    scene = Scene()
    scene.parked.park([SLOT], "its node is away")
    away = set([*RECORD_SLOTS.values()][:2])
    monkeypatch.setattr(parking, "writable_slots", lambda _, __, slots: set(slots) - away)

    def the_old_breaks() -> None:
        if scene.stop.waits == 500:
            scene.old.failure = LaneBehind("orders/0.0", 1, 2)

    scene.stop.on_wait = the_old_breaks
    with pytest.raises(LaneBehind):
        scene.run(monkeypatch)


def test_a_next_generation_that_does_not_catch_up_is_left_for_another_time(monkeypatch):
    scene = Scene()
    with pytest.raises(TopicChanged, match="does not catch up"):
        scene.run(monkeypatch)
    assert not scene.is_switched
    assert 30 <= scene.time.seconds - FakeTime().seconds < 32


def test_a_batch_that_serves_is_waited_for_however_long_it_takes_and_the_lanes_stop_only_then(monkeypatch):
    scene = Scene()
    scene.old.polls_until_end, scene.old.on_poll = 900, lambda: scene.time.move(0.1)

    def the_next_catches_up() -> None:
        if scene.old.polls_until_end < 0:
            scene.next.positions["orders", 1] = 70

    scene.stop.on_wait = the_next_catches_up
    scene.run(monkeypatch)
    assert scene.is_switched


def test_a_job_that_is_stopped_while_a_batch_is_waited_for_does_not_switch(monkeypatch):
    scene = Scene()
    scene.old.polls_until_end = 9

    def stop() -> None:
        scene.stop.is_stopped = True

    scene.old.on_poll = stop
    scene.run(monkeypatch)
    assert not scene.is_switched


def test_a_generation_as_complete_as_the_serving_one_is_switched_to_though_a_transaction_holds_up_both(
    monkeypatch,
):
    scene = Scene()
    scene.old.complete_as_of_ms -= 60_000
    scene.next.complete_as_of_ms -= 64_000
    scene.next.positions["orders", 1] = 70
    scene.run(monkeypatch)
    assert scene.is_switched


def test_a_query_that_fails_ends_the_other_and_no_batch_is_waited_for(monkeypatch):
    scene = Scene()
    scene.old.failure = TopicChanged("topic 'orders' was deleted")
    with pytest.raises(TopicChanged, match="was deleted"):
        scene.run(monkeypatch)
    assert (scene.old.stopped_within_s, scene.next.stopped_within_s) == (FAILED_STOP_S, FAILED_STOP_S)


def test_a_fence_is_raised_even_if_another_error_came_first(monkeypatch):
    scene = Scene()
    scene.next.complete_as_of_ms = 0
    scene.old.failure = LaneBehind("orders/0.0", 1, 2)
    scene.next.fails_at_stop = Fenced("orders/0.0", 3, 4)
    with pytest.raises(Fenced):
        scene.run(monkeypatch)


def test_deletions_are_carried_once_for_topics_in_which_either_query_has_met_strays(monkeypatch):
    """They take so long that the next generation is behind by then: the switch waits for it."""
    scene = Scene()
    scene.old.strays, scene.next.strays = {"orders"}, {"flights"}
    scene.next.positions["orders", 1] = 70
    complete_ms = scene.next.complete_as_of_ms

    def three_seconds_go_by() -> None:
        scene.time.move(3)
        scene.old.complete_as_of_ms = scene.time.now_ms

    def the_next_catches_up() -> None:
        scene.old.complete_as_of_ms = scene.time.now_ms
        if scene.stop.waits == 40:
            scene.next.complete_as_of_ms = scene.time.now_ms

    scene.on_carry, scene.stop.on_wait = three_seconds_go_by, the_next_catches_up
    scene.run(monkeypatch)
    assert scene.is_switched
    assert scene.stop.waits >= 40
    assert scene.next.complete_as_of_ms - complete_ms > 9_000
    assert scene.carried == [{"orders", "flights"}]


def test_while_deletions_can_not_be_carried_there_is_no_switch_and_it_is_tried_again(monkeypatch):
    scene = Scene()
    scene.next.positions["orders", 1] = 70

    def a_slot_migrates() -> None:
        if len(scene.carried) < 4:
            assert not scene.is_switched
            raise StateUnavailable("slot 7 is migrating")

    scene.on_carry = a_slot_migrates
    scene.run(monkeypatch)
    assert scene.is_switched
    assert len(scene.carried) == 4
    delayed = [line for line in scene.said if "can't be carried yet: slot 7 is migrating" in line]
    assert len(delayed) == 1


def test_a_job_that_is_stopped_while_deletions_are_carried_switches_nothing(monkeypatch):
    scene = Scene()
    scene.next.positions["orders", 1] = 70
    scene.on_carry = lambda: setattr(scene.stop, "is_stopped", True)
    scene.run(monkeypatch)
    assert not scene.is_switched
    assert len(scene.carried) == 1


BROKEN = LaneBehind("orders/0.0", 1, 2)


def its_batch_does_not_end(scene: Scene) -> None:
    scene.next.ends_its_batch = False


def the_old_fails_as_it_is_stopped(scene: Scene) -> None:
    scene.old.fails_at_stop = BROKEN


def the_next_fails_as_it_is_stopped(scene: Scene) -> None:
    scene.next.fails_at_stop = BROKEN


def the_next_breaks_while_a_batch_is_waited_for(scene: Scene) -> None:
    scene.old.polls_until_end = 9
    scene.old.on_poll = lambda: scene.old.polls_until_end == 5 and setattr(scene.next, "failure", BROKEN)


def the_old_breaks_while_deletions_are_carried(scene: Scene) -> None:
    scene.on_carry = lambda: setattr(scene.old, "failure", BROKEN)


def a_lane_is_parked_while_deletions_are_carried(scene: Scene) -> None:
    scene.on_carry = lambda: scene.parked.park([SLOT], "its node is away")


def a_lane_is_parked_by_the_last_batch(scene: Scene) -> None:
    """One of two stripes: the partition's position moves on, without that lane's records."""
    scene.next.on_stop = lambda: scene.parked.park([SLOT], "127.0.0.1:7000 is full")


def a_lane_is_parked_while_it_catches_up(scene: Scene) -> None:
    scene.next.positions["orders", 1] = 69

    def the_next_catches_up() -> None:
        if scene.stop.waits == 5:
            scene.parked.park([SLOT], "127.0.0.1:7000 is full")
            scene.next.positions["orders", 1] = 70

    scene.stop.on_wait = the_next_catches_up


@pytest.mark.parametrize(
    ("trouble", "error", "words"),
    [
        (its_batch_does_not_end, TopicChanged, "did not end"),
        (the_old_fails_as_it_is_stopped, LaneBehind, "orders/0.0"),
        (the_next_fails_as_it_is_stopped, LaneBehind, "orders/0.0"),
        (the_next_breaks_while_a_batch_is_waited_for, LaneBehind, "orders/0.0"),
        (the_old_breaks_while_deletions_are_carried, LaneBehind, "orders/0.0"),
        (a_lane_is_parked_while_deletions_are_carried, TopicChanged, "take writes again"),
        (a_lane_is_parked_by_the_last_batch, TopicChanged, "lanes have been parked"),
        (a_lane_is_parked_while_it_catches_up, TopicChanged, "lanes have been parked"),
    ],
)
def test_there_is_no_switch_where(monkeypatch, trouble, error: type[Exception], words: str):
    scene = Scene()
    scene.next.positions["orders", 1] = 70
    trouble(scene)
    if words == "take writes again":
        monkeypatch.setattr(parking, "writable_slots", lambda _, __, slots: set(slots))
    with pytest.raises(error, match=words):
        scene.run(monkeypatch)
    assert not scene.is_switched
