"""`python -m tests.torture -n 200 --seed 1` runs 200 schedules, of seeds 1 to 200; `-n 1` replays one.

Prints a line for each schedule that failed and, at the end, a summary as JSON. Exit code 1 if any failed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tests.torture.run import SHAPES, Outcome, Tormentor
from tests.torture.schedule import EVENTS, draw
from tests.torture.stack import running_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.torture.schedule import Schedule

PER_STACK = 50
"""Schedules for one set of servers: with a longer log, rebuilding an emptied Redis would take too long."""


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    shapes = tuple(shape for shape in SHAPES if not given.topics or shape.name in given.topics)
    schedules = [draw(seed + number, shapes, given.focus) for number in range(given.n)]
    console = Console()
    console.print(f"torture: {given.n} schedules, seed {seed}")
    began_s = time.monotonic()
    with _progress(console) as progress:
        bar = progress.add_task("torture", total=given.n, now="starting servers")

        def report(outcome: Outcome) -> None:
            progress.advance(bar)
            if given.verbose or outcome.faults:
                progress.console.print(describe(outcome), markup=False, highlight=False, soft_wrap=True)

        def begun(schedule: Schedule) -> None:
            progress.update(bar, now=f"seed {schedule.seed} {' '.join(schedule.events)}")

        folder = Path(given.keep or tempfile.mkdtemp(prefix="torture-"))
        summary = torture(
            schedules, folder, begun, report, stop_at_first=given.stop_at_first, with_view=given.view
        )
    summary |= {"seed": seed, "seconds": round(time.monotonic() - began_s)}
    console.print_json(json.dumps(summary))
    if given.summary:
        Path(given.summary).write_text(json.dumps(summary), encoding="utf-8")
    return 1 if summary["failed"] else 0


def torture(
    schedules: list[Schedule],
    folder: Path,
    begun: Callable[[Schedule], None] = lambda _: None,
    report: Callable[[Outcome], None] = lambda _: None,
    *,
    stop_at_first: bool = False,
    with_view: bool = False,
) -> dict[str, Any]:
    """Run schedules on stacks below `folder`; a new stack after a schedule that broke the one before."""
    outcomes: list[Outcome] = []
    totals: Counter[str] = Counter()
    left = iter(schedules)
    number = 0
    while len(outcomes) < len(schedules) and not (stop_at_first and totals["failed"]):
        number += 1
        with running_stack(folder / f"stack-{number}", with_view=with_view) as stack:
            tormentor = Tormentor.of(stack, schedules[0].seed, with_view=with_view)
            try:
                for outcome in _one_by_one(tormentor, left, begun):
                    outcomes.append(outcome)
                    totals["failed"] += bool(outcome.faults)
                    report(outcome)
                    if outcome.broken or (stop_at_first and outcome.faults):
                        break
                    if tormentor.schedules == PER_STACK:
                        totals["left_wrong"] += len(tormentor.check_all())
                        break
                else:
                    totals["left_wrong"] += len(tormentor.check_all())
            finally:
                totals["unplanned_failovers"] += tormentor.unplanned
                tormentor.close()
    return _summary(outcomes, totals)


def _one_by_one(
    tormentor: Tormentor, schedules: Iterator[Schedule], begun: Callable[[Schedule], None]
) -> Iterator[Outcome]:
    for schedule in schedules:
        begun(schedule)
        yield tormentor.run(schedule)


def _summary(outcomes: list[Outcome], totals: Counter[str]) -> dict[str, Any]:
    events = Counter(kind for outcome in outcomes for kind in outcome.schedule.events)
    seconds = sorted(outcome.seconds for outcome in outcomes)
    return {
        "schedules": len(outcomes),
        "failed": totals["failed"] + bool(totals["left_wrong"]),
        "failed_seeds": [outcome.schedule.seed for outcome in outcomes if outcome.faults],
        "first_fault": next((outcome.faults[0] for outcome in outcomes if outcome.faults), None),
        "keys_wrong_at_the_end": totals["left_wrong"],
        "unplanned_failovers": totals["unplanned_failovers"],
        "events": {kind: events[kind] for kind in EVENTS},
        "records": sum(outcome.records for outcome in outcomes),
        "reads": sum(outcome.reads for outcome in outcomes),
        "waiting_reads": sum(outcome.waits for outcome in outcomes),
        "seconds_per_schedule": {
            "mean": round(sum(seconds) / len(seconds), 1),
            "longest": round(seconds[-1], 1),
        },
    }


def describe(outcome: Outcome) -> str:
    """A line for the schedule, and one for each fault."""
    schedule = outcome.schedule
    events = ", ".join(schedule.events) or "no event"
    head = (
        f"seed {schedule.seed}: {'FAILED' if outcome.faults else 'passed'} after {outcome.seconds:.1f} s "
        f"({events}; {outcome.records:,} records, {outcome.reads:,} reads, {outcome.waits} waiting)"
    )
    return "\n".join([head, *(f"    {fault}" for fault in outcome.faults)])


def _progress(console: Console) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[now]}"))
    return Progress(*columns, console=console)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.torture", description=__doc__)
    parser.add_argument("-n", type=int, default=200, help="schedules (default 200)")
    parser.add_argument(
        "--seed", type=int, help="seed of the first schedule; the others count up (default: random)"
    )
    parser.add_argument("--focus", choices=EVENTS, help="every schedule has this event")
    parser.add_argument("--topics", nargs="*", choices=[shape.name for shape in SHAPES], help="only these")
    parser.add_argument("--view", action="store_true", help="add a view, which must count every record once")
    parser.add_argument(
        "--stop-at-first", action="store_true", help="stop after the first schedule that fails"
    )
    parser.add_argument("--keep", help="folder for the servers' data and logs (default: a temporary one)")
    parser.add_argument("--summary", help="also write the summary to this file")
    parser.add_argument(
        "--verbose", action="store_true", help="print a line for each schedule, failed or not"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
