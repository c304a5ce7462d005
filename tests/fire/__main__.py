"""`python -m tests.fire [SCENARIO ...]`: the standing server under fire, one scenario after the other.

Prints what each has seen and whether that is what was expected, and writes .keylane-bench/under-fire.json,
in which the scenarios that were not run keep their last figures. Exit code 1 if an expectation is broken.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tests.fire import kills, outages, pressure, strangers, takers
from tests.fire.figures import judge
from tests.fire.stage import open_stage
from tests.support.figures import RESULTS, machine, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fire.figures import Expectation, Found, Verdict
    from tests.fire.stage import FireStage

    Scenario = tuple[Callable[[FireStage], Found], Sequence[Expectation]]

SCENARIOS: dict[str, Scenario] = {
    "overload": (pressure.overload, pressure.OVERLOAD),
    "kafka-stops": (outages.kafka_stops, outages.KAFKA_STOPS),
    "late-broker": (outages.late_broker, outages.LATE_BROKER),
    "large-bodies": (strangers.large_bodies, strangers.LARGE_BODIES),
    "slow-bodies": (strangers.slow_bodies, strangers.SLOW_BODIES),
    "slow-streams": (strangers.slow_streams, strangers.SLOW_STREAMS),
    "unread-answers": (takers.unread_answers, takers.EXPECTED),
    "long-texts": (takers.long_texts, takers.EXPECTED),
    "unread-changes": (takers.unread_changes, takers.EXPECTED),
    "positions": (takers.positions, takers.EXPECTED),
    "pages": (takers.pages, takers.EXPECTED),
    "patterns": (takers.patterns, takers.EXPECTED),
    "all-takers": (takers.all_takers, takers.EXPECTED),
    "worker-killed": (kills.only_worker_killed, kills.ONLY_WORKER_KILLED),
    "one-of-two-killed": (kills.one_of_two_killed, kills.ONE_OF_TWO_KILLED),
    "primary-killed": (kills.primary_killed, kills.PRIMARY_KILLED),
    "job-killed": (kills.job_killed, kills.JOB_KILLED),
    "topic-grows": (outages.topic_grows, outages.TOPIC_GROWS),
    "registry-hangs": (outages.registry_hangs, outages.REGISTRY_HANGS),
    "dns-hangs": (outages.dns_hangs, outages.DNS_HANGS),
    "descriptors": (pressure.descriptors, pressure.DESCRIPTORS),
    "clock-jumps": (pressure.clock_jumps, pressure.CLOCK_JUMPS),
}
RESULT = RESULTS / "under-fire.json"
MIN_WIDTH = 130


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="python -m tests.fire", description=__doc__)
    options.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    options.add_argument("--keep", metavar="FOLDER", help="keep logs and data in this new folder")
    chosen = options.parse_args(arguments)
    if unknown := set(chosen.scenarios) - set(SCENARIOS):
        options.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(SCENARIOS)}")
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    broken = 0
    with tempfile.TemporaryDirectory(prefix="keylane-fire-") as temporary:
        folder = Path(chosen.keep).absolute() if chosen.keep else Path(temporary)
        with _progress(console) as progress, open_stage(folder) as stage:
            names = chosen.scenarios or list(SCENARIOS)
            task = progress.add_task("", total=len(names))
            for name in names:
                progress.update(task, description=name)
                broken += not _run(name, stage, console)
                progress.advance(task)
    return 1 if broken else 0


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _run(name: str, stage: FireStage, console: Console) -> bool:
    """Run a scenario; return whether everything was as expected."""
    scenario, expectations = SCENARIOS[name]
    try:
        found = scenario(stage)
    except Exception:  # noqa: BLE001 (the next scenarios go on)
        console.print(f"[bold red]{name} did not come to its end[/]")
        console.print(traceback.format_exc(), markup=False, highlight=False)
        return False
    verdicts = judge(found, expectations)
    _print(name, found, verdicts, console)
    _write(name, (scenario.__doc__ or "").strip(), found, verdicts)
    return all(each.holds for each in verdicts)


def _print(name: str, found: Found, verdicts: Sequence[Verdict], console: Console) -> None:
    summary = found.summary()
    figures = list(
        dict.fromkeys(figure for kinds in summary.values() for row in kinds.values() for figure in row)
    )
    table = Table(title=f"{name} (ms)", title_justify="left")
    for heading in ("phase", "requests"):
        table.add_column(heading, no_wrap=True)
    for figure in figures:
        table.add_column(figure, justify="right", no_wrap=True)
    for phase, kinds in summary.items():
        for kind, row in kinds.items():
            table.add_row(phase, kind, *(_cell(row.get(figure)) for figure in figures))
    console.print(table)
    facts = {"load": found.load, "RSS, MiB": found.rss_mib, "writes without an answer": found.uncertain}
    for fact, value in (facts | found.facts).items():
        console.print(f"{fact}: {value}", highlight=False, markup=False)
    for fault in (*found.faults[:5], *found.lost[:5]):
        console.print(fault, style="red", highlight=False, markup=False)
    for each in verdicts:
        mark = "[green]as expected[/]" if each.holds else "[bold red]BROKEN[/]"
        console.print(f"{mark} {each.text}: {each.shown}", highlight=False)


def _cell(figure: float | None) -> str:
    if figure is None or (isinstance(figure, float) and math.isnan(figure)):
        return ""
    return f"{figure:,.1f}" if isinstance(figure, float) else f"{figure:,}"


def _write(name: str, text: str, found: Found, verdicts: Sequence[Verdict]) -> None:
    document: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    document[name] = {
        "what": text,
        "machine": machine(),
        "requests": found.summary(),
        "load": found.load,
        "acknowledged": found.acknowledged,
        "uncertain": found.uncertain,
        "lost": found.lost,
        "stale": found.faults,
        "stale_count": found.fault_count,
        "rss_mib": found.rss_mib,
        "facts": found.facts,
        "verdicts": [each._asdict() for each in verdicts],
    }
    write_json(RESULT, document)


if __name__ == "__main__":
    sys.exit(main())
