"""A plugin, in a run of its own: a test that fails has in its report what servers said last during it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.last_logs import LINES, written_since
from tests.support.project_files import ROOT

ALONE = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
SOURCE = """
import pytest

@pytest.fixture(scope="session")
def server(tmp_path_factory):
    return tmp_path_factory.mktemp("server") / "server.log"

@pytest.fixture
def that_fails(server):
    server.write_text("said before the fixture failed")
    raise OSError

def test_passes(server):
    server.write_text("".join(f"line {number}\\n" for number in range(100)))

def test_fails_in_its_fixture(that_fails): pass

def test_fails(server):
    with server.open("a") as log: log.write("said before the test failed")
    assert 0
"""


def test_the_report_of_a_test_that_fails_has_the_ends_of_the_logs_written_during_it(tmp_path: Path):
    (tmp_path / "test_of_servers.py").write_text(SOURCE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--rootdir=.", "-p", "tests.support.last_logs"]
    command += ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | ALONE,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"end of {tmp_path / 'base' / 'server0' / 'server.log'}" in done.stdout
    assert "said before the fixture failed" in done.stdout
    assert "said before the test failed" in done.stdout
    assert "line 0" not in done.stdout


def test_logs_are_those_of_programs_that_have_grown_since(tmp_path: Path):
    logs = [tmp_path / "kafka.log", tmp_path / "server" / "log", tmp_path / "job-3.log"]
    others = [tmp_path / "old.log", tmp_path / "empty.log", tmp_path / "0000000042.log", tmp_path / "a.json"]
    (tmp_path / "server").mkdir()
    for number, path in enumerate([*logs, *others]):
        path.write_text("" if path.stem == "empty" else "said\n" * LINES, encoding="utf-8")
        os.utime(path, (1000 + number, 1000 + number))
    os.utime(tmp_path / "old.log", (999, 999))
    assert written_since(tmp_path, 1000) == logs
