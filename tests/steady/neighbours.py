"""Processes that keep cores busy beside the tests, and end with what started them, however it ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
