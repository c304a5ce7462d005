"""`python -m tests.torture.mutants`: torture must detect the absence of each guard.

For each mutant the checkout is copied, one guard is removed from the copy by exact text replacement (which
raises GuardGone when the text has changed), and torture runs there until a schedule fails. Random schedules
rarely need some guards: `focus` names the event that every schedule of a mutant then has.
Exit code 1 when a mutant survives.
"""

from __future__ import annotations

import argparse
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

from keylane_local.tools import project_root, tools_dir

_LANES = "spark/keylane_spark/adapters/library/lanes.lua"
_WATERMARK = "spark/keylane_spark/adapters/library/watermark.lua"
_COLUMNS = "spark/keylane_spark/columns/chunks.py"
_FOLDING = "spark/keylane_spark/columns/fold.py"
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
    focus: str | None


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
        focus = ["--focus", mutant.focus] if mutant.focus else []
        subprocess.run(
            [
                *(sys.executable, "-m", "tests.torture", "-n", str(bound), "--seed", str(seed)),
                *("--stop-at-first", "--keep", str(folder / "servers"), "--summary", str(summary), *focus),
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.torture.mutants", description=__doc__)
    parser.add_argument("-n", type=int, default=25, help="schedules for each mutant, at most (default 25)")
    parser.add_argument("--seed", type=int, help="seed of each mutant's first schedule (default: random)")
    parser.add_argument("--only", choices=[mutant.name for mutant in MUTANTS])
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    alive = []
    lines = []
    for mutant in MUTANTS:
        if given.only not in (None, mutant.name):
            continue
        summary = run(mutant, seed, given.n)
        failed = summary["failed_seeds"]
        how = f" --focus {mutant.focus}" if mutant.focus else ""
        if failed:
            # A schedule that also fails with the guard in place proves nothing about the guard.
            control = run(Mutant("control", (), mutant.focus), failed[0], 1)
            if control["failed_seeds"]:
                alive.append(mutant.name)
            verdict = "FAILS WITH IT TOO" if control["failed_seeds"] else "passes with it"
            lines.append(
                f"without the {mutant.name}: seed {failed[0]} failed, number {summary['schedules']} of "
                f"--seed {seed}{how}, and {verdict}: {summary['first_fault']}"
            )
        else:
            alive.append(mutant.name)
            lines.append(f"without the {mutant.name}: ALIVE after {summary['schedules']} of seed {seed}{how}")
    print("\n".join(lines))
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
