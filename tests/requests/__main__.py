"""`python -m tests.requests --minutes 30 --seed 1` sends changed requests to the hosts: see `fuzz`.

A find is printed with its request, and kept in a file: `--replay FILE` sends what it has to a new stack.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.requests.fuzz import fuzz, replay


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.requests", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--replay", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="keylane-requests-"))
    if given.replay:
        found = replay(folder, given.replay.read_text(encoding="utf-8").splitlines(), _say)
    else:
        found = fuzz(folder, given.seed, given.minutes, _say)
    for number, each in enumerate(found):
        file = folder / f"find-{number}.jsonl"
        file.write_text("".join(request.to_json() + "\n" for request in each.requests), encoding="utf-8")
        print(f"{each.target}: {each.fault[:500]}\n  --replay {file} (its last line is the request)")
    if found:
        print(f"seed {given.seed} FAILED, see {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
