"""`python -m tests.soak --minutes 60 --to FOLDER` lets the whole stack work at a steady rate, and watches it.

Prints a line each minute, then the slopes of all figures with a verdict each. Exit code 1 for a wrong read, a
change that was not received, or growth that nothing explains. `--again` judges and draws what FOLDER has.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from tests.soak.plan import Plan
from tests.soak.report import report
from tests.soak.run import DATA, run


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    folder = Path(given.to).absolute()
    if not given.again:
        plan = Plan(given.minutes, given.writes, given.reads, seed=given.seed)
        print(f"soak: {given.minutes:g} minutes; everything is in {folder}", flush=True)
        run(plan, folder, lambda line: print(time.strftime("%H:%M:%S"), line, flush=True))
    code = report(folder, Path(given.images).absolute() if given.images else folder)
    if not code and not given.keep:
        shutil.rmtree(folder / DATA, ignore_errors=True)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--to", default=".keylane-soak", metavar="FOLDER", help="for what it finds")
    parser.add_argument("--writes", type=float, default=100, metavar="PER_S")
    parser.add_argument("--reads", type=float, default=100, metavar="PER_S")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--images", metavar="FOLDER", help="for the pictures, instead of the other folder")
    parser.add_argument("--again", action="store_true", help="judge and draw what the folder has")
    parser.add_argument("--keep", action="store_true", help="keep the data of the servers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
