"""Visits every state that a few steps can reach, and checks the promises in each.

The job has read a short log, but perhaps for its last record. The steps are the job's (open, read, beat), and
what may go wrong: a failover that takes back the last calls of a lane, a shard that comes back empty, a crash
between any two calls of a batch, a call that Redis delays, a job that was replaced and wakes up, markers of
tombstones that expire. A state that was visited before is not visited again. From each last state the job
must recover: the state is then the fold.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.model.fingerprint import fingerprint
from tests.model.log import Kind
from tests.model.world import Broken, World

if TYPE_CHECKING:
    from collections.abc import Iterator

LOST = 3
"""How many of a lane's calls a failover takes back at most; all, where the shard comes back empty."""
CALLS = 5
"""At most so many calls bring two records into their lanes."""
KINDS = [Kind(partition, is_set) for partition in (0, 1) for is_set in (True, False)]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far to look: steps after the settled state, faults and days among them; records in the log."""

    steps: int
    faults: int
    records: int
    seconds: float = float("inf")
    broken: int = 1
    """How many broken promises are enough."""


@dataclass(slots=True)
class Step:
    """A step: its name, its method's name and arguments, and what it uses up."""

    name: str
    method: str
    arguments: dict[str, Any]
    faults: int = 0


@dataclass(slots=True)
class Report:
    """What was visited. `broken`: of each broken promise the log, the steps, and what is wrong."""

    logs: int = 0
    states: int = 0
    steps: int = 0
    recoveries: int = 0
    is_complete: bool = True
    broken: list[tuple[str, ...]] = field(default_factory=list)


def explore(world: World, bounds: Bounds) -> Report:
    """Visit all states within the bounds, short logs first, until enough promises are broken."""
    report = Report()
    until_s = time.monotonic() + bounds.seconds
    before = world.save()
    logs = itertools.chain.from_iterable(
        itertools.product(KINDS, repeat=count) for count in range(1, bounds.records + 1)
    )
    for kinds, unread in itertools.product(logs, (0, 1)):
        if unread == len(kinds):
            continue
        if time.monotonic() > until_s:
            report.is_complete = False
            break
        world.restore(before)
        report.logs += 1
        trace = ("; ".join(map(str, kinds)) + (", not read yet" if unread else ""),)
        try:
            for kind in kinds[: len(kinds) - unread]:
                world.write(kind)
            world.open()
            world.settle()
            for kind in kinds[len(kinds) - unread :]:
                world.write(kind)
        except Broken as broken:
            report.broken.append((*trace, "settle", str(broken)))
        else:
            _explore_log(world, bounds, report, trace, until_s)
        if len(report.broken) >= bounds.broken:
            break
    return report


def _explore_log(
    world: World, bounds: Bounds, report: Report, trace: tuple[str, ...], until_s: float
) -> None:
    """Visit the states that follow a settled one."""
    seen: dict[Any, int] = {}
    queue = deque([(world.save(), 0, False, trace)])
    while queue:
        saved, faults, has_expired, path = queue.popleft()
        if time.monotonic() > until_s:
            report.is_complete = False
            return
        world.restore(saved)
        for step in list(_steps(world, bounds, faults, has_expired)):
            world.restore(saved)
            report.steps += 1
            try:
                if not getattr(world, step.method)(**step.arguments):
                    continue
                world.check()
                depth, used = len(path), faults + step.faults
                is_last = depth == bounds.steps
                key = fingerprint(world, last_calls=0 if is_last else LOST), None if is_last else used
                if seen.get(key, bounds.steps + 1) <= depth:
                    continue
                seen[key] = depth
                report.states += 1
                if is_last:
                    report.recoveries += 1
                    world.settle()
                else:
                    expired = has_expired or step.method == "expire"
                    queue.append((world.save(), used, expired, (*path, step.name)))
            except Broken as broken:
                report.broken.append((*path, step.name, str(broken)))
                if len(report.broken) >= bounds.broken:
                    return


def _steps(world: World, bounds: Bounds, faults: int, has_expired: bool) -> Iterator[Step]:
    """The steps that are possible."""
    partitions = range(world.partition_count)
    if world.is_settled and not has_expired:
        yield Step("a day goes by", "expire", {})
    if faults < bounds.faults:
        for number in partitions:
            yield from _losses(number)
            if world.query is not None and world.unread(world.query, number) > 0:
                yield from _disturbed_reads(number)
    if world.query is None or faults:
        yield Step("open" if world.query is None else "restart", "open", {})
    if world.query is not None:
        for number in partitions:
            if world.unread(world.query, number) > 0:
                yield Step(f"read from {number}", "read", {"partition": number})
        yield Step("beat", "beat", {})
    for number in partitions:
        yield Step(f"the replaced job reads from {number}", "wake", {"partition": number})


def _losses(number: int) -> Iterator[Step]:
    yield Step(f"shard of lane {number} emptied", "lose", {"number": number, "count": None}, 1)
    for count in range(1, LOST + 1):
        name = f"failover takes {count} calls back from lane {number}"
        yield Step(name, "lose", {"number": number, "count": count}, 1)


def _disturbed_reads(number: int) -> Iterator[Step]:
    for count in range(CALLS):
        name = f"read all from {number}, crash after {count} calls"
        yield Step(name, "read_all", {"partition": number, "crash_after": count}, 1)
        name = f"read all from {number}, call {count} is delayed"
        yield Step(name, "read_all", {"partition": number, "delay_at": count}, 1)
