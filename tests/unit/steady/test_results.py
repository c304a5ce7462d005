"""What `make test-steady` reports, from what pytest really writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.servers.own import eventually
from tests.steady.results import Result, Tally, busy, pytest_arguments, read_xml
from tests.support.project_files import ROOT

LOG = Path("1.log")
A, B = "tests/unit/test_a.py::test_one", "tests/unit/test_b.py::test_two[a b]"
SOURCES = {
    "test_mixed.py": """
import pytest

@pytest.fixture
def broken_end():
    yield
    raise OSError

def test_passes(): pass
def test_fails(): assert 0
@pytest.mark.parametrize("word", ["a b", "$"])
def test_fails_of(word): assert word == "$"
def test_ends_badly(broken_end): pass
def test_has_two_ends(broken_end): assert 0
@pytest.mark.skip
def test_is_skipped(): pass
""",
    "test_unreadable.py": "import nothing_of_that_name",
}


def result(seed: int, *failed: str, tests: int = 10, exit_code: int | None = None) -> Result:
    return Result(seed, bool(failed) * 2 if exit_code is None else exit_code, tests, frozenset(failed), LOG)


def report(*results: Result, wanted: int = 3) -> list[str]:
    return list(Tally(wanted, list(results)).report(busy=2))


def test_failures_errors_and_files_that_cannot_be_collected_are_read_from_what_pytest_writes(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    for name, source in SOURCES.items():
        (tmp_path / "sub" / name).write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--rootdir=.", "-p", "no:cacheprovider", "--junitxml=of.xml"]
    command += ["--continue-on-collection-errors", "--import-mode=importlib"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True)
    assert done.returncode == 1
    tests, failed = read_xml(tmp_path / "of.xml")
    assert failed == {
        "sub/test_mixed.py::test_fails",
        "sub/test_mixed.py::test_fails_of[a b]",
        "sub/test_mixed.py::test_ends_badly",
        "sub/test_mixed.py::test_has_two_ends",
        "sub/test_unreadable.py",
    }
    assert tests == 7


@pytest.mark.parametrize("text", [None, "", "<testsuites><testsuite", "<testsuites/>"], ids=str)
def test_a_run_whose_results_cannot_be_read_has_not_passed(tmp_path: Path, text: str | None):
    file = tmp_path / "of.xml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    found = Result(1, 0, *read_xml(file), LOG)
    assert not found.passed
    assert found.trouble == "it ran no test"
    assert report(found, wanted=1) == ["1 of 1 runs, 0 passed", "  seed 1: it ran no test: 1.log"]


def test_a_run_that_ends_badly_though_no_test_failed_has_not_passed():
    found = result(7, exit_code=3)
    assert not found.passed
    assert "  seed 7: it ended with 3, and no test of it failed: 1.log" in report(found)


def test_a_run_with_a_failed_test_has_not_passed_whatever_its_exit_code():
    assert not result(1, A, exit_code=0).passed


@pytest.mark.parametrize(
    ("results", "passed"),
    [
        ([result(1), result(2)], True),
        ([result(1), result(2, A)], False),
        ([result(1), result(2, tests=0)], False),
        ([result(1)], False),
        ([], False),
    ],
    ids=["all passed", "one failed", "one ran nothing", "one was not run", "none was run"],
)
def test_all_have_passed_only_if_each_that_is_wanted_ran_and_passed(results: list[Result], passed: bool):
    assert Tally(2, results).passed is passed


def test_no_runs_have_not_passed():
    assert not Tally(0).passed


def test_a_report_has_how_often_each_test_failed_and_what_brings_it_back():
    assert report(result(5, B), result(6), result(7, A, B)) == [
        "3 of 3 runs, 1 passed",
        f"  2 of 3: {B}",
        "      make test-steady N=1 SEED=5 BUSY=2 PYTEST_ARGS=tests/unit/test_b.py",
        "      also with seed 7",
        f"  1 of 3: {A}",
        "      make test-steady N=1 SEED=7 BUSY=2 PYTEST_ARGS=tests/unit/test_a.py",
    ]


def test_pytest_gets_its_words_through_make_and_the_shell_as_they_were(tmp_path: Path):
    words = ["-k", "a or b", "tests/x.py::test_y[$HOME 'q']"]
    (tmp_path / "Makefile").write_text('all:\n\t@printf "%s\\n" $(PYTEST_ARGS)\n', encoding="utf-8")
    command = ["make", "--no-print-directory", f"PYTEST_ARGS={pytest_arguments(4, Path('a b.xml'), words)}"]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == ["--order-seed", "4", "--junitxml", "a b.xml", *words]


STARTS_AND_SAYS = """
import os, time
from tests.steady.results import busy
with busy(1, os.getpid()) as [one]:
    print(one.pid, flush=True)
    time.sleep(600)
"""


def test_neighbours_use_the_processor_and_end_with_the_block():
    with busy(2, os.getpid()) as running:
        found = [psutil.Process(process.pid) for process in running]
        eventually(lambda: all(sum(process.cpu_times()[:2]) > 0.2 for process in found))
    assert [process.returncode for process in running] == [-signal.SIGKILL] * 2


def test_neighbours_end_with_a_process_that_was_killed():
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_SAYS], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        neighbour = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        eventually(lambda: not neighbour.is_running() or neighbour.status() == psutil.STATUS_ZOMBIE)
