"""How `make test` spreads tests over processes: what shares servers stays together."""

from __future__ import annotations

import os
import subprocess
import sys

GROUPED = """\
import os, pathlib, pytest

pytestmark = pytest.mark.xdist_group("{name}")


@pytest.mark.parametrize("number", range(6))
def test_where_it_runs(number):
    with pathlib.Path(__file__).with_suffix(".txt").open("a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


def test_the_tests_of_a_group_run_in_one_process(tmp_path):
    """Versions of pytest and pytest-xdist that do not fit each other ignore groups, without a word."""
    files = [tmp_path / f"test_{name}.py" for name in ("one", "other")]
    for file in files:
        file.write_text(GROUPED.format(name=file.stem))
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-p", "xdist", f"--rootdir={tmp_path}", tmp_path],
        # Three processes would import hypothesis, schemathesis and others, for most of the time.
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran_in = [file.with_suffix(".txt").read_text().split() for file in files]
    assert [len(processes) for processes in ran_in] == [6, 6]
    assert [len(set(processes)) for processes in ran_in] == [1, 1]
