"""Many pairs of answers, with and without a scope: `python -m tests.scopes --pairs 100000 --seed 1`."""

from __future__ import annotations

import argparse
import sys
import time

from tests.scopes.pairs import compare_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=100_000, help="how many are compared at least")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begun_s = time.monotonic()
    done = compare_pairs(given.seed, given.pairs)
    taken_s = time.monotonic() - begun_s
    sys.stdout.write(f"{done} pairs of seed {given.seed} without a difference, {taken_s:.0f} s\n")


if __name__ == "__main__":
    main()
