"""A SIGHUP that comes before the job has read its file, which it then reads in any case."""

from __future__ import annotations

import subprocess
import sys

import pytest

SIGNAL_IN_THE_IMPORTS = """
import importlib.abc, os, signal, sys

class SendsSignal(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "keylane_spark.job":
            os.kill(os.getpid(), signal.SIGHUP)

sys.meta_path.insert(0, SendsSignal())
"""
MODULE = "import runpy; runpy.run_module('keylane_spark', run_name='__main__', alter_sys=True)"
COMMAND = "from keylane_client.cli.__main__ import main; main()"


@pytest.mark.parametrize(("program", "words"), [(MODULE, []), (COMMAND, ["job"])])
def test_a_signal_to_read_again_in_the_imports_does_not_end_the_job(tmp_path, program, words):
    (tmp_path / "keylane.toml").write_text("[topics.a")
    command = [sys.executable, "-c", SIGNAL_IN_THE_IMPORTS + program, *words, "--config", "keylane.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "is not valid TOML" in done.stdout + done.stderr
    assert done.returncode == 2
