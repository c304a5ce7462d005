"""The job with a clock that a test moves while it runs.

`python -m tests.support.clocked_job`, with the job's arguments. The file that `TEST_CLOCK` names has the
milliseconds by which its wall clock is ahead of the machine's; its monotonic clock is the machine's.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

from keylane.ports import Clock
from keylane_spark import __main__ as job

VARIABLE = "TEST_CLOCK"


def moved_ms() -> int:
    """The machine's time, moved by what the file says."""
    return Clock().now_ms() + int(Path(os.environ[VARIABLE]).read_text())


def move(file: Path, ahead_ms: int) -> None:
    """Set the clock, at once: readers of the file never see half of it."""
    new = file.with_suffix(".new")
    new.write_text(str(ahead_ms))
    new.replace(file)


if __name__ == "__main__":
    job.Clock = functools.partial(Clock, now_ms=moved_ms)  # type: ignore[assignment, misc]
    sys.exit(job.main())
