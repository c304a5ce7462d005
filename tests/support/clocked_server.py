"""`keylane` with a clock that a test moves while its server runs.

`python -m tests.support.clocked_server serve ...`, with the command's arguments. The file that `TEST_CLOCK`
names has the milliseconds by which the wall clock of its processes is ahead of the machine's, as Python's
`time` says it; compiled code, and the monotonic clock, have the machine's.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.clocked_job import VARIABLE

from keylane_client.cli.__main__ import main
from keylane_server import server

if TYPE_CHECKING:
    from keylane_server.worker import ServerProcess


def build() -> ServerProcess:
    """Build the application of a process whose clock moves."""
    from keylane_server import worker  # noqa: PLC0415 (in the process that serves alone)

    file = Path(os.environ[VARIABLE])
    nanoseconds = time.time_ns

    def moved_ns() -> int:
        return nanoseconds() + int(file.read_text()) * 1_000_000

    time.time_ns = moved_ns
    time.time = lambda: moved_ns() / 1e9
    return worker.build()


if __name__ == "__main__":
    server.TARGET = f"{__spec__.name}:build"
    main()
