"""Queries that a test moves, without Spark: what a switch asks of those that serve and build."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from keylane_spark.stream.batch_query import STOP_S

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class FakeQuery:
    """A query that is moved by the test."""

    events: list[str]
    name: str
    positions: dict[tuple[str, int], int]
    complete_as_of_ms: int
    ends_its_batch: bool = True
    polls_until_end: int = 0
    on_poll: Callable[[], None] = lambda: None
    failure: Exception | None = None
    fails_at_stop: Exception | None = None
    stopped_within_s: float | None = None
    on_stop: Callable[[], None] = lambda: None
    strays: set[str] = field(default_factory=set)

    def start(self) -> None:
        self.events.append(f"{self.name} starts")

    def check(self) -> None:
        self.raise_failure()

    def finish(self, within_s: float) -> bool:  # noqa: ARG002 (the test says when)
        self.polls_until_end -= 1
        self.on_poll()
        return self.polls_until_end < 0

    def stop(self, within_s: float = STOP_S) -> bool:
        self.stopped_within_s = within_s
        if f"{self.name} stops" not in self.events:
            self.events.append(f"{self.name} stops")
        self.on_stop()
        self.failure = self.failure or self.fails_at_stop
        return self.ends_its_batch

    def raise_failure(self) -> None:
        if self.failure:
            raise self.failure
