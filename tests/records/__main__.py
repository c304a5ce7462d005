"""`python -m tests.records --minutes 10 --seed 1` sends random records to a real job: see `fuzz`."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.records.fuzz import fuzz


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.records", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="keylane-fuzz-"))
    shown = sys.stdout

    def say(line: str) -> None:
        print(time.strftime("%H:%M:%S"), line, file=shown, flush=True)

    # The function that is asked prints its metrics, some lines a second.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        faults = fuzz(folder, given.seed, given.minutes, say)
    if faults:
        print(f"seed {given.seed} FAILED, see {folder}:", *(fault[:2_000] for fault in faults[:5]), sep="\n")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
