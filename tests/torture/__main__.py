"""`python -m tests.torture -n 200 --seed 1` runs 200 schedules, of seeds 1 to 200; `-n 1` replays one.

Prints a line for each schedule that failed and, at the end, a summary as JSON. Exit code 1 if any failed, and
130 after Ctrl-C: then the servers are killed, and the summary is of the schedules that had ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tests.servers.own import shorten_jvm_starts
from tests.torture.configurations import (
    CONFIGURATIONS,
    Configuration,
    configuration_named,
    configuration_of,
)
from tests.torture.history import describe_step, history_file, read_history, shrink, write_history
from tests.torture.run import Outcome, Tormentor
from tests.torture.schedule import EVENTS, Schedule, draw
from tests.torture.stack import running_stack

from keylane_local.process import guard
from keylane_local.process.processes import stop_now

if TYPE_CHECKING:
    from collections.abc import Callable

Planned = tuple[Configuration, Schedule]

PER_STACK = 50
"""Schedules for one set of servers: with a longer log, rebuilding an emptied Redis would take too long."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    shorten_jvm_starts()
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    planned = [_drawn(seed + number, given) for number in range(given.n)]
    if given.replay:
        name, schedule = read_history(Path(given.replay))
        planned, seed = [(configuration_named(name), schedule)], schedule.seed
    folder = Path(given.keep or tempfile.mkdtemp(prefix="torture-"))
    console = Console()
    console.print(f"torture: {len(planned)} schedules, seed {seed}; histories in {folder}")
    began_s = time.monotonic()
    with _progress(console) as progress:
        bar = progress.add_task("torture", total=len(planned), now="starting servers")

        def report(outcome: Outcome, shortened: Planned | None) -> None:
            progress.advance(bar)
            if given.verbose or outcome.faults:
                text = describe(outcome, folder, shortened)
                progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

        def begun(schedule: Schedule) -> None:
            progress.update(bar, now=f"seed {schedule.seed} {' '.join(schedule.events)}")

        shorten = not (given.no_shrink or given.stop_at_first)
        stacks = Stacks(folder, planned[0][1].seed)
        is_whole = _unless_interrupted(
            lambda: torture(
                planned, stacks, begun, report, stop_at_first=given.stop_at_first, shorten=shorten
            )
        )
    summary = _summary(stacks) | {"seed": seed, "seconds": round(time.monotonic() - began_s)}
    console.print_json(json.dumps(summary))
    if given.summary:
        Path(given.summary).write_text(json.dumps(summary), encoding="utf-8")
    if not is_whole:
        end_at_once()
    return 1 if summary["failed"] else 0


def _unless_interrupted(call: Callable[[], None]) -> bool:
    """Call in another thread, so that Ctrl-C ends the wait for it at once; returns whether it has ended.

    A thread that librdkafka keeps sees no signal before it returns, which may take as long as a request.
    """
    ended: Future[None] = Future()

    def run() -> None:
        try:
            ended.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            ended.set_exception(error)

    try:
        threading.Thread(target=run, daemon=True, name="torture").start()
        ended.result()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return False
    return True


def end_at_once() -> None:
    """Kill all servers, and exit without a wait for the threads, which go on until then.

    The guards stay: they stop what an event has started meanwhile.
    """
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if guard.__name__ not in child.cmdline():
                stop_now(child)
    sys.stdout.flush()
    os._exit(INTERRUPTED)


def _drawn(seed: int, given: argparse.Namespace) -> Planned:
    configuration = (
        configuration_named(given.configuration) if given.configuration else configuration_of(seed)
    )
    shapes = tuple(shape for shape in configuration.shapes if not given.topics or shape.name in given.topics)
    return configuration, draw(seed, shapes or configuration.shapes, given.focus)


class Stacks:
    """The stack in use; another one begins for another configuration, or after PER_STACK schedules.

    `outcomes`: those of the schedules so far, without shorter ones.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._seed = seed
        self._number = 0
        self._tormentor: Tormentor | None = None
        self._running = contextlib.ExitStack()
        self.outcomes: list[Outcome] = []
        self.left_wrong: list[str] = []
        self.unplanned = 0
        self.slow = 0

    def run(self, configuration: Configuration, schedule: Schedule) -> Outcome:
        """Run a schedule; a stack that it broke is ended."""
        tormentor = self._tormentor
        if tormentor is not None and (
            tormentor.stack.configuration != configuration or tormentor.schedules >= PER_STACK
        ):
            self.left_wrong += tormentor.check_all()
            self.end()
            tormentor = None
        tormentor = tormentor or self._begin(configuration)
        outcome = tormentor.run(schedule)
        if outcome.broken:
            self.end()
        return outcome

    def _begin(self, configuration: Configuration) -> Tormentor:
        self._number += 1
        stack = self._running.enter_context(
            running_stack(self.folder / f"stack-{self._number}", configuration)
        )
        tormentor = self._tormentor = Tormentor.of(stack, self._seed)
        self._running.callback(tormentor.close)
        return tormentor

    def end(self) -> None:
        if self._tormentor is not None:
            self.unplanned += self._tormentor.unplanned
            self.slow += self._tormentor.slow
        self._tormentor = None
        self._running.close()

    def check_all(self) -> None:
        """Compare every key of the stack in use once more."""
        if self._tormentor is not None:
            self.left_wrong += self._tormentor.check_all()


def torture(
    planned: list[Planned],
    stacks: Stacks,
    begun: Callable[[Schedule], None] = lambda _: None,
    report: Callable[[Outcome, Planned | None], None] = lambda _outcome, _shortened: None,
    *,
    stop_at_first: bool = False,
    shorten: bool = False,
) -> None:
    """Run schedules on stacks, whose folder gets the history of each.

    `report` gets each outcome and, with `shorten`, a shorter schedule that fails too.
    """
    try:
        for configuration, schedule in planned:
            begun(schedule)
            outcome = stacks.run(configuration, schedule)
            stacks.outcomes.append(outcome)
            write_history(stacks.folder, configuration.name, outcome)
            shortened = None
            if outcome.faults and shorten:
                shortened = configuration, _shorten(configuration, schedule, stacks)
            report(outcome, shortened)
            if stop_at_first and outcome.faults:
                break
        stacks.check_all()
    finally:
        stacks.end()


def _shorten(configuration: Configuration, schedule: Schedule, stacks: Stacks) -> Schedule:
    def fails(candidate: Schedule) -> bool:
        outcome = stacks.run(configuration, candidate)
        write_history(stacks.folder, configuration.name, outcome)
        return bool(outcome.faults)

    return shrink(schedule, fails)


def _summary(stacks: Stacks) -> dict[str, Any]:
    outcomes = stacks.outcomes
    events = Counter(kind for outcome in outcomes for kind in outcome.schedule.events)
    seconds = [outcome.seconds for outcome in outcomes]
    return {
        "schedules": len(outcomes),
        "failed": sum(bool(outcome.faults) for outcome in outcomes) + bool(stacks.left_wrong),
        "failed_seeds": [outcome.schedule.seed for outcome in outcomes if outcome.faults],
        "first_fault": next((outcome.faults[0] for outcome in outcomes if outcome.faults), None),
        "wrong_at_the_end": stacks.left_wrong,
        "unplanned_failovers": stacks.unplanned,
        "slow_nodes": stacks.slow,
        "events": {kind: events[kind] for kind in EVENTS},
        "results": dict(sorted(sum((outcome.results for outcome in outcomes), Counter[str]()).items())),
        "records": sum(outcome.records for outcome in outcomes),
        "reads": sum(outcome.reads for outcome in outcomes),
        "reads_by_source": dict(
            sorted(sum((outcome.sources for outcome in outcomes), Counter[str]()).items())
        ),
        "waiting_reads": sum(outcome.waits for outcome in outcomes),
        "seconds_per_schedule": {
            "mean": round(sum(seconds) / max(1, len(seconds)), 1),
            "longest": round(max(seconds, default=0.0), 1),
        },
    }


def describe(outcome: Outcome, folder: Path | None = None, shortened: Planned | None = None) -> str:
    """A line for the schedule, and one for each fault; then where its history is, and a shorter one."""
    schedule = outcome.schedule
    events = ", ".join(schedule.events) or "no event"
    result = "FAILED" if outcome.faults else "passed"
    counts = f"{outcome.records:,} records, {outcome.reads:,} reads, {outcome.waits} waiting"
    lines = [f"seed {schedule.seed}: {result} after {outcome.seconds:.1f} s ({events}; {counts})"]
    lines += [f"    {fault}" for fault in outcome.faults]
    if outcome.faults and folder:
        lines.append(f"    history: {history_file(folder, schedule)}")
    if shortened and folder:
        shorter = shortened[1]
        count, events = len(shorter.steps), ", ".join(shorter.events) or "no event"
        lines.append(
            f"    {count} of its {len(schedule.steps)} steps fail too ({events}): "
            f"--replay {history_file(folder, shorter)}"
        )
        lines += [f"        {describe_step(step)}" for step in shorter.steps]
    return "\n".join(lines)


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
    parser.add_argument(
        "--configuration",
        choices=[configuration.name for configuration in CONFIGURATIONS],
        help="of every schedule (default: by its seed)",
    )
    parser.add_argument(
        "--view", action="store_const", dest="configuration", const="views", help="--configuration views"
    )
    parser.add_argument("--topics", nargs="*", default=[], help="only these topics of the configuration")
    parser.add_argument("--replay", help="run the schedule of a history file instead")
    parser.add_argument("--no-shrink", action="store_true", help="do not shorten schedules that fail")
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
