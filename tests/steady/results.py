"""What a run of the tests says of each, from pytest's JUnit XML, and what all runs say together."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# The kernel gives an orphan another parent.
PROGRAM = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    sum(range(100_000))
"""


@contextlib.contextmanager
def busy(count: int, parent: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep so many cores busy during the block. `parent`: this process's own id."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        running.extend(
            subprocess.Popen([sys.executable, "-c", PROGRAM, str(parent)], start_new_session=True)
            for _ in range(count)
        )
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


_FAILED = {"failure", "error"}


@dataclass(frozen=True, slots=True)
class Result:
    """One run. `failed`: ids of tests, those of files that could not be collected among them."""

    seed: int
    exit_code: int
    tests: int
    failed: frozenset[str]
    log: Path
    seconds: float = 0.0

    @property
    def trouble(self) -> str:
        """Why the run proves nothing, though no test of it is known to have failed; "" if it does."""
        if self.tests == 0:
            return "it ran no test"
        if self.exit_code != 0 and not self.failed:
            return f"it ended with {self.exit_code}, and no test of it failed"
        return ""

    @property
    def passed(self) -> bool:
        return self.exit_code == 0 and not self.failed and not self.trouble


def read_xml(file: Path) -> tuple[int, frozenset[str]]:
    """Return how many tests ran, and the ids of those that failed; (0, none) without such a file.

    A test that was skipped did not run. One that fails in its teardown is there twice.
    """
    try:
        cases = list(ET.parse(file).iter("testcase"))  # noqa: S314 (pytest has written it)
    except (FileNotFoundError, ET.ParseError):
        return 0, frozenset()
    ran = {_id_of(case) for case in cases if case.find("skipped") is None}
    return len(ran), frozenset(_id_of(case) for case in cases if _FAILED & {child.tag for child in case})


def _id_of(case: ET.Element) -> str:
    """The test as pytest's command line takes it; a file that was not collected has its module's name."""
    module, name = case.get("classname", ""), case.get("name", "")
    if not module:
        return f"{name.replace('.', '/')}.py"
    return f"{module.replace('.', '/')}.py::{name}"


@dataclass(slots=True)
class Tally:
    """All runs so far of those that are wanted."""

    wanted: int
    results: list[Result] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all that are wanted have run, and nothing failed."""
        return len(self.results) == self.wanted > 0 and all(result.passed for result in self.results)

    def seeds_by_test(self) -> list[tuple[str, list[int]]]:
        """Each test that has failed, with the seeds of its runs, the most frequent first."""
        found: dict[str, list[int]] = defaultdict(list)
        for result in self.results:
            for test in sorted(result.failed):
                found[test].append(result.seed)
        return sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))

    def report(self, busy: int) -> Iterator[str]:
        """Yield the lines that say what failed, how often, and what brings it back."""
        done = len(self.results)
        yield f"{done} of {self.wanted} runs, {sum(result.passed for result in self.results)} passed"
        for result in self.results:
            if result.trouble:
                yield f"  seed {result.seed}: {result.trouble}: {result.log}"
        for test, seeds in self.seeds_by_test():
            yield f"  {len(seeds)} of {done}: {test}"
            yield f"      {again(test, seeds[0], busy)}"
            if seeds[1:]:
                yield f"      also with seed {', '.join(map(str, seeds[1:]))}"


def again(test: str, seed: int, busy: int) -> str:
    """The command that runs the file of a test as the run with this seed did."""
    words = ["make", "test-steady", "N=1", f"SEED={seed}", f"BUSY={busy}"]
    return shlex.join([*words, f"PYTEST_ARGS={test.partition('::')[0]}"])


def pytest_arguments(seed: int, xml: Path, more: Sequence[str]) -> str:
    """The words that a run adds to those of `make test`, as make's PYTEST_ARGS has them."""
    return shlex.join(["--order-seed", str(seed), "--junitxml", str(xml), *more]).replace("$", "$$")
