"""`python -m keylane_local.guard RUN`: stops what a test run started, should the run die before it can.

It waits for the end of its standard input, which comes when the one who started it ends, however that
ends, and then stops every program that has a pid file in the folder RUN.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from keylane_local.processes import process_of, stop

_STOP_TIMEOUT_S = 5.0


def watch(run: Path) -> subprocess.Popen[bytes]:
    """Start the guard of the folder `run`; it acts when the returned process's stdin is closed."""
    return subprocess.Popen(
        [sys.executable, "-m", "keylane_local.guard", str(run)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def stop_all(run: Path) -> None:
    """Stop every program that has a pid file in `run`."""
    for pid_file in sorted(run.glob("*.json")):
        if process := process_of(pid_file):
            stop(process, _STOP_TIMEOUT_S)
        pid_file.unlink(missing_ok=True)


def main(run: Path, lifeline: IO[bytes]) -> None:
    """Wait for the end of `lifeline`, then stop all."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while lifeline.read(1024):
        pass
    stop_all(run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.stdin.buffer)
