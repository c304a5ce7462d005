"""The query function in fresh processes: import, then the first request, answered from a real cluster.

Alternating with it: a Python that does nothing, and one that only imports redis-py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import stage
import state
from harness import ROOT, ResultRow, parse, report, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

PASS = "python -c pass: whole process"
REDIS = "import redis"
IMPORT = "query: import"
FIRST = "query: import + first request"
PROCESS = "query: whole process"

# It prints the seconds from the interpreter's start to the end of each step.
# Without OpenTelemetry, which redis-py imports where it is installed: the function's layer has none.
TIMED_REDIS = """
import sys
from time import perf_counter as t
sys.modules["opentelemetry"] = None
b = t()
import redis
print(t() - b)
"""
TIMED_QUERY = """
from time import perf_counter as t
b = t()
import handler
i = t()
class Context:
    aws_request_id = "bench"
    function_name = "query"
    def get_remaining_time_in_millis(self): return 29000
answer = handler.lambda_handler({event!r}, Context())
f = t()
print(i - b, f - b, answer["statusCode"], answer["body"])
"""


def run(code: str, nodes: str) -> tuple[float, list[str]]:
    """Return the duration of the whole process in ms, and the words that it printed."""
    environment = os.environ | state.environment(nodes)
    environment["PYTHONPATH"] = str(ROOT / "layers/keylane/python")
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "functions/query",
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    took_ms = (time.perf_counter() - begun) * 1000
    # The first request writes its metrics, a line before the ones that are wanted.
    wanted = "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith('{"_aws"'))
    return took_ms, wanted.split(maxsplit=3)


def measure(nodes: str, key: bytes, value: bytes, processes: int) -> dict[str, list[float]]:
    """Return milliseconds by row, without the first process of each kind, which writes the bytecode."""
    samples: dict[str, list[float]] = {name: [] for name in (PASS, REDIS, IMPORT, FIRST, PROCESS)}
    query = TIMED_QUERY.format(event=state.get_event(key))
    for number in range(processes + 1):
        nothing_ms, _ = run("pass", nodes)
        _, (redis_s,) = run(TIMED_REDIS, nodes)
        process_ms, (import_s, first_s, status, body) = run(query, nodes)
        state.check({"statusCode": int(status), "body": body}, value)
        if number:
            samples[PASS].append(nothing_ms)
            samples[REDIS].append(float(redis_s) * 1000)
            samples[IMPORT].append(float(import_s) * 1000)
            samples[FIRST].append(float(first_s) * 1000)
            samples[PROCESS].append(process_ms)
    return samples


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--processes", type=int, default=30)
    options.add_argument("--value-bytes", type=int, default=184)
    chosen = parse(options, arguments)
    with stage.cluster() as nodes:
        ((key, value),) = state.fill(nodes, 1, chosen.value_bytes)
        samples = measure(nodes, key, value, chosen.processes)
    report(
        "coldstart",
        "ms",
        [ResultRow(name, spread(taken)) for name, taken in samples.items()],
        reference=REDIS,
        settings=vars(chosen),
        aim="import + first request within 250 ms",
    )


if __name__ == "__main__":
    main()
