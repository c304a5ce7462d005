"""`python -m tests.torture.mutants`: torture must detect the absence of each guard.

For each mutant the checkout is copied, one guard is removed from the copy by exact text replacement (which
raises GuardGone when the text has changed), and torture runs there until a schedule fails. Random schedules
rarely need some guards: `focus` names the event that every schedule of a mutant then has, `topics` the only
topics that are written to. Exit code 1 when a mutant survives.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from keylane_local.tools import project_root, tools_dir

_LANES = "spark/keylane_spark/adapters/library/lanes.lua"
_WATERMARK = "spark/keylane_spark/adapters/library/watermark.lua"
_COLUMNS = "spark/keylane_spark/columns/chunks.py"
_FOLDING = "spark/keylane_spark/columns/fold.py"
_WRITES = "spark/keylane_spark/adapters/library/writes.lua"
_MERGE = "spark/keylane_spark/adapters/library/merge.lua"
_STARTS = "spark/keylane_spark/adapters/lane.py"
_HEARTBEAT = "spark/keylane_spark/stream/heartbeat.py"
_FRESHNESS = "spark/keylane_spark/stream/freshness.py"
_ADMIN = "spark/keylane_spark/adapters/kafka_admin.py"
_CLAIMS = "spark/keylane_spark/adapters/claim_clock.py"
_SOURCES = ("layers", "spark", "infra", "tests")


class GuardGone(Exception):
    """The text of a guard has changed: rewrite the mutant."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Replaces `old`, which occurs once in a file, by `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """The project without one guard."""

    name: str
    replacements: tuple[Replacement, ...]
    focus: str | None = None
    topics: tuple[str, ...] = ()
    configuration: str = "standard"

    @property
    def arguments(self) -> list[str]:
        """What the torture is called with."""
        focus = ["--focus", self.focus] if self.focus else []
        topics = ["--topics", *self.topics] if self.topics else []
        return ["--configuration", self.configuration, *topics, *focus]


MUTANTS = (
    # Records that are in the lane already are applied again, and the watermark moves to the chunk's end.
    Mutant(
        "offset guard",
        (
            Replacement(_LANES, "next_offset < to and 16 or #args + 1, next_offset)", "16, 0)"),
            Replacement(_LANES, "  elseif next_offset < to then\n    if args[7]", "  else\n    if args[7]"),
            Replacement(
                _LANES, "  if next_offset < to then\n    next_offset = to", "  do\n    next_offset = to"
            ),
        ),
        focus=None,
    ),
    # Any writer is accepted, whatever its epoch.
    Mutant(
        "epoch check", (Replacement(_WATERMARK, "if owner > epoch then", "if false then"),), focus="zombie"
    ),
    # A chunk that begins beyond the lane's next offset is accepted: what a failover lost stays lost.
    Mutant(
        "repair", (Replacement(_LANES, "if next_offset < from then", "if false then"),), focus="lose-writes"
    ),
    # Within a chunk all sets come after all tombstones, as in a sink that sends deletes first.
    Mutant(
        "tombstone order",
        (
            Replacement(
                _COLUMNS,
                "return rows.where(repeats.following[start:end] >= end)",
                "pass",
            ),
            Replacement(
                _FOLDING,
                "    last: Mask = repeats.following == len(timestamps_ms)\n",
                "    by_kind = np.lexsort((~tombstones, repeats.codes))\n"
                "    last: Mask = np.zeros(len(tombstones), np.bool_)\n"
                "    ends = np.append(repeats.codes[by_kind][1:] != repeats.codes[by_kind][:-1], True)\n"
                "    last[by_kind[ends]] = True\n",
            ),
        ),
        focus=None,
    ),
    # A lane that failed over since it was opened takes strays, and is marked complete, though it lost some.
    Mutant(
        "lineage",
        (
            Replacement(
                _WATERMARK,
                "return redis.call('GET', key_of(watermark_key, tonumber(prefix), 'l')) ~= lineage()",
                "return false",
            ),
        ),
        focus="lose-writes",
        topics=("mixed",),
    ),
    # A lane that lacks strays which it was given does not get them again.
    Mutant(
        "taken and given",
        (Replacement(_STARTS, "            if has < to:\n", "            if False:\n"),),
        focus="lose-writes",
        topics=("mixed",),
    ),
    # A partition does not note which lanes it gave strays to.
    Mutant(
        "given",
        (Replacement(_LANES, "  in_slices('HSET', given, changed)\n", ""),),
        focus="lose-writes",
        topics=("mixed",),
    ),
    # Between partitions only the numbers of the partitions decide.
    Mutant(
        "order timestamps",
        (Replacement(_MERGE, "elseif order ~= entry.order then", "elseif false then"),),
        topics=("mixed",),
    ),
    # A tombstone leaves nothing: older records from other partitions bring the key back.
    Mutant(
        "tombstone markers",
        (
            Replacement(_MERGE, "elseif rules.marker_ms == '0' then", "elseif true then"),
            Replacement(_WRITES, "if marker_ms == '0' then", "if true then"),
        ),
        topics=("mixed",),
    ),
    # A lane that has strays writes its own records without comparing them.
    Mutant(
        "has strays",
        (
            Replacement(
                _LANES, "if args[9] == '1' or bit.band(flags, HAS_STRAYS) ~= 0 then", "if args[9] == '1' then"
            ),
        ),
        topics=("mixed",),
    ),
    # A lane of a topic with strays is marked as complete as its own partition is.
    Mutant(
        "slowest partition",
        (
            Replacement(
                _FRESHNESS,
                "min(bounds.get(topic, complete_ms), complete_ms)",
                "max(bounds.get(topic, complete_ms), complete_ms)",
            ),
        ),
        topics=("mixed",),
    ),
    # The heartbeat asks for the ends of the log before it looks at the clock.
    Mutant(
        "observe before ask",
        (
            Replacement(
                _HEARTBEAT,
                "before, seen_ms = self._query.positions, self._claim_clock.now_ms()",
                "before = self._query.positions",
            ),
            Replacement(
                _HEARTBEAT,
                "        if self._freshness.observe(seen_ms, ends, before):\n",
                "        seen_ms = self._claim_clock.now_ms()\n"
                "        if self._freshness.observe(seen_ms, ends, before):\n",
            ),
        ),
        focus="pause-broker",
    ),
    # Lanes are complete up to the last stable offset, which hides acknowledged records behind it.
    Mutant(
        "high watermark",
        (
            Replacement(
                _ADMIN, "LATEST, READ_UNCOMMITTED, OffsetQuery", "LATEST, READ_COMMITTED, OffsetQuery"
            ),
            Replacement(
                _ADMIN,
                "AdminSession.list_offsets, queries, READ_UNCOMMITTED",
                "AdminSession.list_offsets, queries, READ_COMMITTED",
            ),
        ),
        focus="hang-transaction",
        topics=("plain",),
    ),
    # The driver's clock alone says as of when a lane is complete.
    Mutant(
        "claim clock",
        (
            Replacement(_WATERMARK, "math.min(complete, time_ms())", "complete"),
            Replacement(_CLAIMS, "return min(wall_ms, math.floor", "return max(wall_ms, math.floor"),
        ),
        focus="clock-jump",
        topics=("plain",),
    ),
)


def make(mutant: Mutant, folder: Path) -> None:
    """Copy the checkout to `folder` and remove the guard. Raises GuardGone."""
    for source in _SOURCES:
        shutil.copytree(
            project_root() / source, folder / source, ignore=shutil.ignore_patterns("__pycache__", ".*")
        )
    for replacement in mutant.replacements:
        path = folder / replacement.path
        text = path.read_text(encoding="utf-8")
        if text.count(replacement.old) != 1:
            raise GuardGone(
                f"{mutant.name}: {replacement.path} does not have this text exactly once: {replacement.old!r}"
            )
        path.write_text(text.replace(replacement.old, replacement.new), encoding="utf-8")


def run(mutant: Mutant, seed: int, bound: int) -> dict[str, Any]:
    """Run at most `bound` schedules, until one fails; returns torture's summary.

    A mutant without replacements is the project itself.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as temporary:
        folder = Path(temporary)
        make(mutant, folder / "checkout")
        summary = folder / "summary.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "tests.torture", "-n", str(bound), "--seed", str(seed)),
                *(
                    "--stop-at-first",
                    "--keep",
                    str(folder / "servers"),
                    "--summary",
                    str(summary),
                    *mutant.arguments,
                ),
            ],
            cwd=folder / "checkout",
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    str(folder / "checkout" / part)
                    for part in ("layers/keylane/python", "spark", "infra/local")
                ),
                "KEYLANE_TOOLS": str(tools_dir()),
            },
            check=False,
        )
        return dict(json.loads(summary.read_text(encoding="utf-8")))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant. `fails_whole`: its seed also fails with the guard, so it proves nothing."""

    mutant: Mutant
    schedules: int
    seed: int | None
    first_fault: str
    fails_whole: bool = False

    @property
    def is_alive(self) -> bool:
        return self.seed is None or self.fails_whole

    @property
    def text(self) -> str:
        if self.seed is None:
            return "ALIVE"
        return f"{self.seed} FAILS WITH IT TOO" if self.fails_whole else f"{self.seed} failed"


def judge(mutant: Mutant, seed: int, bound: int) -> Verdict:
    """Run a mutant, and what it failed on once more with the guard in place."""
    summary = run(mutant, seed, bound)
    failed = summary["failed_seeds"]
    if not failed:
        return Verdict(mutant, summary["schedules"], None, "")
    whole = dataclasses.replace(mutant, replacements=())
    control = run(whole, failed[0], 1)
    return Verdict(
        mutant, summary["schedules"], failed[0], summary["first_fault"], bool(control["failed_seeds"])
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.torture.mutants", description=__doc__)
    parser.add_argument("-n", type=int, default=25, help="schedules for each mutant, at most (default 25)")
    parser.add_argument("--seed", type=int, help="seed of each mutant's first schedule (default: random)")
    parser.add_argument("--only", nargs="+", choices=[mutant.name for mutant in MUTANTS])
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    verdicts = []
    for mutant in MUTANTS:
        if given.only is None or mutant.name in given.only:
            verdicts.append(judge(mutant, seed, given.n))
            print(f"without the {mutant.name}: {verdicts[-1].text}", flush=True)
    print_table(verdicts, seed)
    return 1 if any(verdict.is_alive for verdict in verdicts) else 0


def print_table(verdicts: list[Verdict], seed: int) -> None:
    """Print a row for each mutant."""
    table = Table(title=f"seed {seed}", show_lines=True)
    for column in ("guard removed", "torture", "schedules", "result", "first fault"):
        table.add_column(column)
    for verdict in verdicts:
        arguments = " ".join(verdict.mutant.arguments)
        table.add_row(
            verdict.mutant.name, arguments, str(verdict.schedules), verdict.text, verdict.first_fault[:300]
        )
    Console(width=160, markup=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
