"""For which topics the generation that serves hands its deletions on."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.support.fakes import FakeTime

from keylane.model.records import Layout, Options
from keylane_spark.serving import carried_deletions
from keylane_spark.serving.carried_deletions import carry_deletions
from keylane_spark.stream.openings import Opening

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

SERVED = Layout("orders", 2, generation=1)
DAY_MS = 86_400_000.0


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
