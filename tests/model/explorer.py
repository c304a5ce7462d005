"""Visits every state that a few steps can reach, and checks the promises in each.

The job has read a short log, but perhaps for its last records. The steps are the job's (open, read, beat,
build, switch, sweep), and what may go wrong: a failover that takes back the last calls of a shard, a shard
that comes back empty, a crash between any two things that a batch sends, of which Redis refuses one, or one
arrives late, or its reply does not, a job that was replaced and wakes up, markers of tombstones that expire,
what retention and compaction remove. A state that was visited before is not visited again: of each only a
fingerprint is kept. From each last state the job must recover: the state is then the fold.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.model.connections import CRASH, LATE, REFUSED, UNHEARD
from tests.model.fingerprint import fingerprint
from tests.model.job import Broken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.model.spaces import Bounds, Space, Start
    from tests.model.world import Snapshot, World

LOST = 3
"""How many of a shard's calls a failover takes back at most; all, where the shard comes back empty."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its name, its method's name and arguments, and what it uses up.

    `counted`: the name of an argument that is 0, 1, 2, ... as long as the step does something.
    """

    name: str
    method: str
    arguments: dict[str, Any] = field(default_factory=dict)
    faults: int = 0
    counted: str = ""

    def variants(self) -> Iterator[Step]:
        """The step with each value of what is counted."""
        if not self.counted:
            yield self
            return
        for at in itertools.count():
            yield Step(f"{self.name} {at}", self.method, {**self.arguments, self.counted: at}, self.faults)


@dataclass(slots=True)
class Report:
    """What was visited. `broken`: of each broken promise the log, the steps, and what is wrong."""

    starts: int = 0
    states: int = 0
    steps: int = 0
    recoveries: int = 0
    is_complete: bool = True
    broken: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(slots=True)
class Limits:
    """When to stop: at a time (monotonic seconds), and after so many broken promises."""

    until_s: float = float("inf")
    broken: int = 1

    def are_reached(self, report: Report) -> bool:
        """Whether to stop; notes in the report that time is over."""
        if time.monotonic() > self.until_s:
            report.is_complete = False
            return True
        return len(report.broken) >= self.broken


def explore(
    world: World, space: Space, bounds: Bounds, starts: Sequence[Start], limits: Limits | None = None
) -> Report:
    """Visit all states of a space within the bounds, from each start."""
    report, limits = Report(), limits or Limits()
    before = world.save()
    for start in starts:
        if limits.are_reached(report):
            break
        world.restore(before)
        space.enter(world)
        report.starts += 1
        try:
            start.arrange(world)
        except Broken as broken:
            report.broken.append((str(start), "settle", str(broken)))
        else:
            further = replace(bounds, steps=bounds.steps + start.further)
            _Visit(world, space, further, limits, report).visit(str(start))
    world.restore(before)
    return report


@dataclass(frozen=True, slots=True)
class _State:
    """A state that is to be visited: how it was reached, and what of the bounds that has used up."""

    saved: Snapshot
    path: tuple[str, ...]
    faults: int = 0
    has_expired: bool = False


@dataclass(slots=True)
class _Visit:
    """The states that follow one start."""

    world: World
    space: Space
    bounds: Bounds
    limits: Limits
    report: Report
    seen: dict[Any, int] = field(default_factory=dict)

    def visit(self, start: str) -> None:
        queue = deque([_State(self.world.save(), (start,))])
        while queue:
            state = queue.popleft()
            self.world.restore(state.saved)
            for step in list(self._steps(state)):
                for variant in step.variants():
                    if self.limits.are_reached(self.report):
                        return
                    self.world.restore(state.saved)
                    self.report.steps += 1
                    try:
                        if not getattr(self.world, variant.method)(**variant.arguments):
                            break
                        self._follow(state, variant, queue)
                    except Broken as broken:
                        self.report.broken.append((*state.path, variant.name, str(broken)))

    def _follow(self, state: _State, step: Step, queue: deque[_State]) -> None:
        """Check the state that a step has led to, and queue it if it is new."""
        world = self.world
        world.check()
        depth, used = len(state.path), state.faults + step.faults
        is_last = depth == self.bounds.steps
        key = fingerprint(world, last_calls=0 if is_last else LOST), None if is_last else used
        if self.seen.get(key, self.bounds.steps + 1) <= depth:
            return
        self.seen[key] = depth
        self.report.states += 1
        if is_last:
            self.report.recoveries += 1
            world.settle()
            return
        expired = state.has_expired or step.method == "expire"
        queue.append(_State(world.save(), (*state.path, step.name), used, expired))

    def _steps(self, state: _State) -> Iterator[Step]:
        world, may_fail = self.world, state.faults < self.bounds.faults
        if world.is_settled and not state.has_expired:
            yield Step("a day goes by", "expire")
        yield from self._kafkas(may_fail=may_fail)
        if may_fail:
            for tag in world.tags:
                yield from self._losses(tag)
        yield from self._openings(state, may_fail=may_fail)
        if world.query is not None:
            yield from self._of_the_query(may_fail=may_fail)
            yield from self._of_generations(may_fail=may_fail)
        if world.cluster.late:
            yield Step("what was late arrives", "arrive")
        yield from self._of_the_zombie()

    def _losses(self, tag: bytes) -> Iterator[Step]:
        shard = f"shard {{{tag.decode()}}}"
        yield Step(f"{shard} emptied", "lose", {"tag": tag, "count": None}, 1)
        for count in range(1, LOST + 1):
            if self.world.can_lose(tag, count):
                name = f"failover takes {count} calls back from {shard}"
                yield Step(name, "lose", {"tag": tag, "count": count}, 1)

    def _kafkas(self, *, may_fail: bool) -> Iterator[Step]:
        if self.space.retention and may_fail:
            for number in range(self.world.partition_count):
                yield Step(f"retention removes a record of {number}", "retain", {"partition": number}, 1)
        if self.space.compaction and (self.world.job is None or self.world.is_settled):
            yield Step("an hour goes by, and compaction", "clean")

    def _openings(self, state: _State, *, may_fail: bool) -> Iterator[Step]:
        world, ways = self.world, []
        if world.job is not None and world.query is None:
            ways.append(("the lanes are opened again", "reopen"))
        if world.job is None or state.faults:
            ways.append(("restart" if world.job else "start", "open"))
        for name, method in ways:
            yield Step(name, method)
            if may_fail and self.space.crashes:
                yield Step(f"{name}, crash at call", method, faults=1, counted="crash_at")

    def _of_the_query(self, *, may_fail: bool) -> Iterator[Step]:
        for number in range(self.world.partition_count):
            if self.world.unread(self.world.query, number) > 0:
                yield Step(f"read from {number}", "read", {"partition": number})
                for kind, name in _DISTURBANCES if may_fail else ():
                    arguments = {"partition": number, "kind": kind}
                    yield Step(f"read all from {number}, {name}", "read_all", arguments, 1, "at")
        yield Step("beat", "beat")

    def _of_generations(self, *, may_fail: bool) -> Iterator[Step]:
        world, ways = self.world, []
        if world.job and world.job.building:
            for number in range(world.partition_count):
                if world.unread(world.job.building, number) > 0:
                    arguments = {"partition": number, "building": True}
                    yield Step(f"the next generation reads from {number}", "read", arguments)
            yield Step("the next generation beats", "beat", {"building": True})
        if world.can_switch:
            ways.append("switch")
        if world.can_sweep:
            ways.append("sweep")
        for name in ways:
            yield Step(name, name)
            if may_fail and self.space.crashes:
                yield Step(f"{name}, crash at call", name, faults=1, counted="crash_at")

    def _of_the_zombie(self) -> Iterator[Step]:
        world = self.world
        query = world.zombie.query if world.zombie else None
        if query is None:
            return
        for number in range(world.partition_count):
            if world.unread(query, number) > 0:
                arguments = {"partition": number}
                yield Step(f"the replaced job reads from {number}", "wake", arguments)
                if world.is_watching(query):
                    name = f"the replaced job reads from {number} over new connections"
                    yield Step(name, "wake", {**arguments, "over_new": True})
        if world.zombie and world.zombie.building:
            yield Step("the replaced job switches", "wake_and_switch")


_DISTURBANCES = (
    (CRASH, "crash at call"),
    (REFUSED, "Redis refuses call"),
    (LATE, "late is call"),
    (UNHEARD, "without the reply to call"),
)
