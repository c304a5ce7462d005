"""`python -m tests.torture.mutants`: torture must detect the absence of each guard.

For each mutant the checkout is copied, one guard is removed from the copy by exact text replacement (which
raises GuardGone when the text has changed), and torture runs there until a schedule fails. Random schedules
rarely need some guards: `focus` names the event that every schedule of a mutant then has, `topics` the only
topics that are written to. What no schedule has noticed must fail the mutant's `test`. A guard against what
hundreds of schedules meet once has that alone; `--tests` runs it alone for all mutants. Exit code 1 when a
mutant survives.
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
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.servers.own import SHORT_LIVED_JVMS
from tests.torture.guards import MUTANTS, Mutant

from keylane_local.tools import project_root, tools_dir

_MADE = frozenset({"build", "dist"})
"""Folders of the checkout that are made, beside those that begin with a dot."""
_TESTS_FAILED = 1
"""pytest's exit code; higher ones say that it could not run them."""


class GuardGone(Exception):
    """The text of a guard has changed: rewrite the mutant."""


def without_guard(mutant: Mutant) -> dict[str, str]:
    """Return the texts of the files that change, by path. Raises GuardGone."""
    texts: dict[str, str] = {}
    for replacement in mutant.replacements:
        path = replacement.path
        text = texts.get(path) or (project_root() / path).read_text(encoding="utf-8")
        if text.count(replacement.old) != 1:
            raise GuardGone(
                f"{mutant.name}: {path} does not have this text exactly once: {replacement.old!r}"
            )
        texts[path] = text.replace(replacement.old, replacement.new)
    return texts


def make(mutant: Mutant, folder: Path) -> None:
    """Copy the checkout to `folder` and remove the guard. Raises GuardGone."""
    texts = without_guard(mutant)
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    folder.mkdir(parents=True, exist_ok=True)
    for source in project_root().iterdir():
        if source.is_file():
            shutil.copy(source, folder)
        elif source.name not in _MADE and not source.name.startswith("."):
            shutil.copytree(source, folder / source.name, ignore=ignored)
    for path, text in texts.items():
        (folder / path).write_text(text, encoding="utf-8")


def environment_of(checkout: Path) -> dict[str, str]:
    """Return the variables of a process that imports every package from `checkout`.

    What the path does not name would be imported from the project itself, where this environment has it. Its
    JVMs get the options that pytest's have, whether pytest has started this or somebody by hand.
    """
    settings = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    folders = settings["tool"]["mypy"]["mypy_path"]
    return {
        **SHORT_LIVED_JVMS,
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(checkout / folder) for folder in folders),
        "KEYLANE_TOOLS": str(tools_dir()),
    }


def run(mutant: Mutant, seed: int, bound: int) -> dict[str, Any]:
    """Run at most `bound` schedules, until one fails; returns torture's summary.

    A mutant without replacements is the project itself.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as temporary:
        folder = Path(temporary)
        make(mutant, folder / "checkout")
        summary = folder / "summary.json"
        _run_module(
            folder / "checkout",
            *("tests.torture", "-n", str(bound), "--seed", str(seed), "--stop-at-first"),
            *("--keep", str(folder / "servers"), "--summary", str(summary), *mutant.arguments),
        )
        if not summary.exists():
            raise SystemExit(f"without the {mutant.name}: the torture has ended without a summary, see above")
        return dict(json.loads(summary.read_text(encoding="utf-8")))


def failure_of_its_test(mutant: Mutant) -> str:
    """Run the mutant's test; returns the first line of its failure, "" where it passes."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        checkout = Path(folder, "checkout")
        make(mutant, checkout)
        ran = _run_module(
            checkout, "pytest", "-qx", "-p", "no:cacheprovider", mutant.test, stdout=subprocess.PIPE
        )
    if ran.returncode > _TESTS_FAILED:
        raise SystemExit(f"without the {mutant.name}: pytest has ended with {ran.returncode}:\n{ran.stdout}")
    if ran.returncode != _TESTS_FAILED:
        return ""
    return next((line[1:].strip() for line in ran.stdout.splitlines() if line.startswith("E ")), "no error")


def _run_module(checkout: Path, *command: str, stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=checkout,
        env=environment_of(checkout),
        stdout=stdout,
        text=True,
        check=False,
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant. `failed`: the seed or test that noticed, "" if none has.

    `fails_whole`: it also fails with the guard, so it proves nothing.
    """

    mutant: Mutant
    schedules: int
    failed: str
    first_fault: str
    fails_whole: bool = False

    @property
    def is_alive(self) -> bool:
        return not self.failed or self.fails_whole

    @property
    def text(self) -> str:
        if not self.failed:
            return "ALIVE"
        return f"{self.failed} FAILS WITH IT TOO" if self.fails_whole else f"{self.failed} failed"


def judge(mutant: Mutant, seed: int, bound: int) -> Verdict:
    """Run at most `bound` schedules of a mutant, then its test; what failed runs with the guard once more."""
    found = Verdict(mutant, 0, "", "")
    if bound and not mutant.is_rare:
        found = _judge_by_schedules(mutant, seed, bound)
    return found if found.failed else _judge_by_test(found)


def _judge_by_schedules(mutant: Mutant, seed: int, bound: int) -> Verdict:
    summary = run(mutant, seed, bound)
    failed = summary["failed_seeds"]
    if not failed:
        return Verdict(mutant, summary["schedules"], "", "")
    control = run(_whole(mutant), failed[0], 1)
    return Verdict(
        mutant, summary["schedules"], str(failed[0]), summary["first_fault"], bool(control["failed_seeds"])
    )


def _judge_by_test(found: Verdict) -> Verdict:
    failure = failure_of_its_test(found.mutant)
    if not failure:
        return found
    fails_whole = bool(failure_of_its_test(_whole(found.mutant)))
    return dataclasses.replace(found, failed="its test", first_fault=failure, fails_whole=fails_whole)


def _whole(mutant: Mutant) -> Mutant:
    return dataclasses.replace(mutant, replacements=())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.torture.mutants", description=__doc__)
    parser.add_argument("-n", type=int, default=25, help="schedules for each mutant, at most (default 25)")
    parser.add_argument("--seed", type=int, help="seed of each mutant's first schedule (default: random)")
    parser.add_argument("--only", nargs="+", choices=[mutant.name for mutant in MUTANTS])
    parser.add_argument("--tests", action="store_true", help="run the mutants' tests, and no schedules")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    verdicts = []
    for mutant in MUTANTS:
        if given.only is None or mutant.name in given.only:
            verdicts.append(judge(mutant, seed, 0 if given.tests else given.n))
            print(f"without the {mutant.name}: {verdicts[-1].text}", flush=True)
    print_table(verdicts, seed)
    return 1 if any(verdict.is_alive for verdict in verdicts) else 0


def print_table(verdicts: list[Verdict], seed: int) -> None:
    """Print a row for each mutant."""
    table = Table(title=f"seed {seed}", show_lines=True)
    for column in ("guard removed", "torture, or test", "schedules", "result", "first fault"):
        table.add_column(column)
    for verdict in verdicts:
        mutant = verdict.mutant
        ran = " ".join(mutant.arguments) if verdict.schedules else mutant.test
        table.add_row(mutant.name, ran, str(verdict.schedules), verdict.text, verdict.first_fault[:300])
    Console(width=160, markup=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
