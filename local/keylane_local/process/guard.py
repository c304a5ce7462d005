"""`python -m keylane_local.process.guard RUN`: stops what a test run started, even if the run is killed.

It waits for the end of its standard input, which the end of its parent process causes in any case. Then it
stops every program that has a pid file in the folder RUN.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from keylane_local.process.processes import find_process, stop

_STOP_TIMEOUT_S = 5.0


@contextlib.contextmanager
def guarded(data: Path) -> Iterator[Path]:
    """Yield `data`. Programs with a pid file in data/run end with the block, even if it is killed."""
    command = [sys.executable, "-m", "keylane_local.process.guard", str(data / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        try:
            yield data
        finally:
            if watcher.stdin:
                watcher.stdin.close()
            watcher.wait(30)


def stop_all(run: Path) -> None:
    """Stop every program that has a pid file in `run`."""
    for pid_file in sorted(run.glob("*.json")):
        if process := find_process(pid_file):
            stop(process, _STOP_TIMEOUT_S)
        pid_file.unlink(missing_ok=True)


def main(run: Path, lifeline: IO[bytes]) -> None:
    """Wait for the end of `lifeline`, then stop all programs."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while lifeline.read(1024):
        pass
    stop_all(run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.stdin.buffer)
