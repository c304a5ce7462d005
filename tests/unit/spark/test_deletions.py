"""Keys that were deleted while nobody read the log: which lanes may have them, which of them are carried."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fakes import FakeTime

from keylane.model.records import Layout, Options
from keylane_spark.generations.deletions import DeletionCheck, why_not_carried
from keylane_spark.lanes.lane import LaneStart, LaneTarget
from keylane_spark.serving import carried_deletions
from keylane_spark.serving.carried_deletions import carry_deletions
from keylane_spark.stream.openings import Opening

if TYPE_CHECKING:
    from collections.abc import Iterator

LAYOUT = Layout("orders", 2, generation=1)
LANE = LaneTarget.of(LAYOUT, 0, 0)
DAY_MS = 86_400_000
NOW_MS = 30 * DAY_MS


def missed(
    complete_ago_ms: float | None,
    kept_ms: float | None = DAY_MS,
    *,
    next_offset: int = 5,
    read_ago_ms: float = NOW_MS,
    is_start: bool = True,
) -> str | None:
    """The sentence about a lane that was last complete so long ago (None: never), if there is one."""
    complete_ms = 0 if complete_ago_ms is None else NOW_MS - int(complete_ago_ms)
    start = LaneStart(next_offset, incomplete=False, has_strays=False, complete_as_of_ms=complete_ms)
    check = DeletionCheck(lambda _: kept_ms, {("orders", 0): 0, ("orders", 1): 0}, NOW_MS, is_start)
    return check.missed({LANE: start}, {"orders": NOW_MS - int(read_ago_ms)}).get(LANE)


def test_a_lane_that_was_complete_longer_ago_than_tombstones_last_may_hold_deleted_keys():
    assert missed(DAY_MS * 1.5) == (
        "it was last complete 36.0 hours ago, and compaction removes tombstones after 24.0 hours "
        "(delete.retention.ms)"
    )


def test_a_tenth_of_the_time_is_left_for_reading():
    assert missed(DAY_MS * 0.89) is None
    assert missed(DAY_MS * 0.91)


@pytest.mark.parametrize("kept_ms", [math.inf, None])
def test_where_no_tombstone_goes_or_nobody_knows_nothing_is_missed(kept_ms: float | None):
    assert missed(DAY_MS * 20, kept_ms) is None


def test_a_lane_that_was_never_complete_counts_from_when_its_generation_began_to_be_read():
    assert missed(None, read_ago_ms=DAY_MS / 2) is None
    assert (missed(None, read_ago_ms=DAY_MS * 2) or "").startswith("it was never complete, and")
    assert missed(None, next_offset=0, read_ago_ms=DAY_MS * 2) is None


def test_a_run_that_goes_on_reads_on_and_counts_no_less_than_a_minute():
    assert missed(None, is_start=False) is None
    assert "complete 50.0 s ago, and compaction removes tombstones after 0.1 s" in (missed(50_000, 100) or "")
    assert missed(50_000, 100, is_start=False) is None
    assert missed(70_000, 100, is_start=False)
    assert missed(DAY_MS, is_start=False)


def test_kafka_is_asked_only_about_topics_with_lanes_that_have_read_something():
    asked: list[str] = []

    def ask(topic: str) -> float:
        asked.append(topic)
        return math.inf

    new = LaneStart(0, incomplete=False, has_strays=False, complete_as_of_ms=0)
    DeletionCheck(ask, {("orders", 0): 0}, NOW_MS, is_start=True).missed({LANE: new}, {"orders": 0})
    assert asked == []


@pytest.mark.parametrize(
    ("served", "built", "why"),
    [
        (Options(), Options(index=True), ""),
        (Options(ttl_ms=2), Options(ttl_ms=2), ""),
        (Options(ttl_ms=2), Options(ttl_ms=1), ""),
        (Options(), Options(ttl_ms=1, insert_once=True), ""),
        (Options(ttl_ms=1), Options(ttl_ms=2), "its records expire earlier (ttl)"),
        (Options(ttl_ms=1), Options(), "its records expire earlier (ttl)"),
        (Options(transform="a"), Options(transform="a"), ""),
        (Options(transform="a"), Options(transform="b"), "it leaves out other records (where, transform)"),
        (Options(insert_once=True), Options(insert_once=True), "it keeps first values (insert_once)"),
    ],
)
def test_what_a_generation_lacks_is_deleted_unless_it_may_have_expired_or_never_been_kept(
    served: Options, built: Options, why: str
):
    before, after = (Layout("orders", 2, options=options) for options in (served, built))
    assert why_not_carried(before, after) == why


SERVED = Layout("orders", 2, generation=1)


class FakeCarrier:
    """Looks at keys for 25 s, and carries two deletions."""

    looked_at, carried = 1500, 2

    def __init__(self, _: Any, __: Any, served: Layout, built: Layout) -> None:
        self.generations = served.generation, built.generation

    def steps(self) -> Iterator[None]:
        for _ in range(5):
            FakeCarrier.time.move(5)
            yield

    time: FakeTime


def said(
    monkeypatch: pytest.MonkeyPatch,
    *,
    last_ms: float | None = DAY_MS,
    mixed: str = "orders",
    incomplete: str = "",
    options: Options = SERVED.options,
) -> list[str]:
    """What the job says while it carries deletions from one generation to the next."""
    FakeCarrier.time = FakeTime()
    lines: list[str] = []
    context: Any = SimpleNamespace(
        redis=None,
        clock=FakeCarrier.time.clock,
        say=lines.append,
        broker=SimpleNamespace(tombstones_last_ms=lambda _: last_ms),
    )
    monkeypatch.setattr(carried_deletions, "DeletionCarrier", FakeCarrier)
    monkeypatch.setattr(carried_deletions, "Cluster", lambda _: SimpleNamespace(close=lambda: None))
    serving, building = (
        opening(replace(SERVED, generation=number, options=options), incomplete) for number in (1, 2)
    )
    for _ in carry_deletions(context, serving, building, {mixed}):
        pass
    return lines


def opening(layout: Layout, incomplete: str) -> Opening:
    writer: Any = SimpleNamespace(layouts={"orders": layout}, lanes=lambda *_: None)
    return Opening(writer, {}, [(incomplete, 0)] if incomplete else [], frozenset())


def test_deletions_of_a_compacted_topic_with_strays_are_carried_and_counted(monkeypatch):
    assert said(monkeypatch) == [
        "topic 'orders': looks for deletions, 1,500 keys so far",
        "topic 'orders': generation 2 gets 2 deletions of generation 1, 1,500 keys were looked at in 25.0 s",
    ]


def test_where_every_key_has_one_partition_and_where_no_tombstone_goes_nothing_is_looked_at(monkeypatch):
    assert said(monkeypatch, mixed="flights") == []
    assert said(monkeypatch, last_ms=math.inf) == []


def test_where_nobody_knows_or_retention_has_removed_records_deletions_are_carried(monkeypatch):
    assert said(monkeypatch, last_ms=None)
    assert said(monkeypatch, last_ms=math.inf, incomplete="orders")
    assert not said(monkeypatch, last_ms=math.inf, incomplete="flights")


def test_what_may_be_lacking_for_another_reason_is_not_taken_for_a_deletion(monkeypatch):
    assert said(monkeypatch, options=Options(insert_once=True)) == []
