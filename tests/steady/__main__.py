"""`make test-steady N=6`: all tests of `make test`, several times, beside busy processes.

Each run has a seed, and with it an order of the tests of each file. After each run it prints which tests have
failed so far, how often, and what brings each back. Exit code 1: one has, or a run proves nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from tests.steady.results import Result, Tally, busy, pytest_arguments, read_xml

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 60
OF_MAKE = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "N", "SEED", "PYTEST_ARGS"}
"""Variables by which the make that started this would change the one below."""


def main() -> int:
    options = _options()
    seed = options.seed if options.seed is not None else random.randrange(1_000_000)
    folder = ROOT / "build" / "steady" / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, _interrupt)
    print(
        f"{options.runs} runs from seed {seed}, beside {options.busy} busy processes; logs: {folder}",
        flush=True,
    )
    tally = Tally(options.runs)
    with busy(options.busy, os.getpid()), contextlib.suppress(KeyboardInterrupt):
        for number in range(options.runs):
            result = _run(seed + number, folder, options.workers, options.pytest)
            tally.results.append(result)
            print(
                f"\nrun {number + 1}, seed {result.seed}: {result.tests} tests, {len(result.failed)} failed,"
                f" {result.seconds / 60:.1f} minutes: {result.log}"
            )
            print("\n".join(tally.report(options.busy)), flush=True)
    if len(tally.results) < options.runs:
        print(f"\ninterrupted after {len(tally.results)} of {options.runs} runs")
    return 0 if tally.passed else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.steady", description=__doc__)
    parser.add_argument("-n", dest="runs", type=int, default=6, help="how often all tests run")
    parser.add_argument("--busy", type=int, default=2, help="how many processes keep a core busy beside them")
    parser.add_argument("--seed", type=int, help="of the first run; each later one has the next")
    parser.add_argument("--workers", default="2", help="WORKERS of `make test`")
    parser.add_argument("pytest", nargs="*", help="behind --: what else pytest is given, as PYTEST_ARGS")
    return parser.parse_args()


def _run(seed: int, folder: Path, workers: str, more: list[str]) -> Result:
    """Run `make test` once; its process and all below end with this one's."""
    log, xml = folder / f"{seed}.log", folder / f"{seed}.xml"
    command = ["make", "test", f"WORKERS={workers}", f"PYTEST_ARGS={pytest_arguments(seed, xml, more)}"]
    variables = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    begun_s = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            exit_code = process.wait()
        except BaseException:
            _end(process)
            raise
    tests, failed = read_xml(xml)
    return Result(seed, exit_code, tests, failed, log, time.monotonic() - begun_s)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt pytest as Ctrl-C does, which stops its servers; kill what has not ended then."""
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(ENDS_WITHIN_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
