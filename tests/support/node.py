"""Programs of Node, which runs TypeScript as it is: types are left out, and nothing is compiled."""

from __future__ import annotations

import subprocess
from pathlib import Path

from keylane_build.release.npm_package import node_program

CLIENT = Path("clients") / "typescript"


def run_node(*arguments: str | Path, given: str = "", within_s: float = 250) -> str:
    """Run Node; return what it prints. A program that fails is an AssertionError with what it said."""
    done = subprocess.run(
        [node_program(), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
