"""Every test runs: the commands of the Makefile collect all files of tests.

pytest collects in processes of its own, for `make test` and for its other targets together: only then is it
known what its settings leave out. That the order of tests does not depend on that of a set is what xdist
checks, whose processes differ in the seeds of their hashes: `make test` ends at once where they have
collected other tests.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.project_files import ROOT, project_files

if TYPE_CHECKING:
    from pathlib import Path

WITHIN_S = 600
"""So much also a machine takes that has much else to do: each collection takes ten seconds of a core."""
pytestmark = pytest.mark.timeout(900)
OWN_TARGETS = {"containers": "docker", "spark-cluster": "cluster", "databases": "databases", "long": "long"}
"""Targets that alone run the tests with a marker, which `make test` leaves out."""
MARKERS = [
    each.partition(":")[0]
    for each in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"][
        "ini_options"
    ]["markers"]
]


@dataclass(frozen=True, slots=True)
class Collection:
    """What a command collects: the tests that run, in their order, and those that are left out."""

    chosen: list[str]
    left_out: list[str]
    markers: dict[str, list[str]]

    @property
    def files(self) -> set[str]:
        """The files that have tests, run or not."""
        return {each.partition("::")[0] for each in self.markers}

    def marked(self, marker: str) -> set[str]:
        """The tests with a marker."""
        return {name for name, markers in self.markers.items() if marker in markers}


def pytest_arguments(target: str) -> list[str]:
    """What a target of the Makefile calls pytest with."""
    recipe = subprocess.run(
        ["make", "--no-print-directory", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.replace("\\\n", " ")
    [call] = [line for line in recipe.splitlines() if " -m pytest" in line]
    return shlex.split(call)[3:]


def collect(arguments: list[str], to: Path) -> Collection:
    """What a command collects, without what takes most of the time and decides nothing here.

    That is rewritten assertions, and the test cases that schemathesis makes, in the document's order.
    """
    command = [sys.executable, "-m", "pytest", *arguments, "--collect-only", "-q", "--assert=plain"]
    command += ["-p", "no:cacheprovider", "-p", "no:schemathesis"]
    command += ["-p", "tests.support.collecting", "--collected-to", str(to)]
    # The workers of xdist sort the tests; these are not its workers, even if this test is in one.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=WITHIN_S
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5_000:]
    found: dict[str, Any] = json.loads(to.read_text(encoding="utf-8"))
    return Collection(**found)


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> tuple[Collection, Collection]:
    """What `make test` collects, and what a command does of the same files that names each marker."""
    folder = tmp_path_factory.mktemp("collected")
    gate = collect(pytest_arguments("test"), folder / "test.json")
    own = set().union(*(gate.marked(marker) for marker in OWN_TARGETS.values()))
    files = sorted({name.partition("::")[0] for name in own})
    return gate, collect(["-m", " or ".join(OWN_TARGETS.values()), *files], folder / "named.json")


@pytest.fixture(scope="module")
def gate(collections: tuple[Collection, Collection]) -> Collection:
    """What `make test` collects."""
    return collections[0]


@pytest.fixture(scope="module")
def own(collections: tuple[Collection, Collection]) -> dict[str, set[str]]:
    """What the targets of OWN_TARGETS run, by their marker: its tests below the target's folder."""
    found = {}
    for target, marker in OWN_TARGETS.items():
        option, expression, folder, *_ = pytest_arguments(target)  # then PYTEST_ARGS
        assert (option, expression) == ("-m", marker)
        marked = collections[1].marked(marker) & {*collections[1].chosen}
        found[marker] = {name for name in marked if name.startswith(f"{folder}/")}
    return found


def test_every_file_of_tests_is_collected_and_has_a_test(gate: Collection):
    files = {
        path.relative_to(ROOT).as_posix() for path in project_files(".py") if path.name.startswith("test_")
    }
    assert files
    assert files - gate.files == set()
    assert gate.files - files == set()


def test_no_test_is_named_after_the_time_at_which_it_was_collected(gate: Collection):
    """Two processes that collect in different seconds would have other tests."""
    just_now_s = 900
    names = [*gate.chosen, *gate.left_out]
    found = {
        name: clock
        for name in names
        for clock in re.findall(r"(?<!\d)(\d{10})(?:\d{3})?(?!\d)", name)
        if abs(int(clock) - time.time()) < just_now_s
    }
    assert names
    assert found == {}


def test_each_test_runs_with_make_test_or_with_a_target_of_its_own(
    gate: Collection, own: dict[str, set[str]]
):
    """Those of a target of their own are left out by their marker, and by nothing else."""
    for marker, chosen in own.items():
        assert gate.marked(marker) == chosen
    assert set(gate.left_out) == {each for chosen in own.values() for each in chosen}


@pytest.mark.parametrize("marker", MARKERS)
def test_each_marker_is_used_by_tests_that_a_target_runs(
    marker: str, gate: Collection, own: dict[str, set[str]]
):
    marked = gate.marked(marker)
    assert marked
    assert marked <= {*gate.chosen, *(each for chosen in own.values() for each in chosen)}
