"""The load generator wrk (Debian's package wrk): one in Python would be the bottleneck."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile

FAILED = "failed, %"
DONE = """
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d %d\\n", summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, latency:percentile(50),
    latency:percentile(99)))
end
"""


def require_wrk() -> None:
    """Exit if the load generator is not installed."""
    if shutil.which("wrk") is None:
        sys.exit("this benchmark needs wrk: apt-get install wrk")


def load(url: str, script: str, connections: int, seconds: int) -> dict[str, float]:
    """Run wrk; return good answers a second, percentiles in milliseconds, and the share that failed, if any.

    Failed requests are reported at once, too. Exits if no request succeeded.
    """
    return figures_of(run_wrk(url, script, connections, seconds))


def run_wrk(url: str, script: str, connections: int, seconds: int) -> str:
    """Run wrk; return what it has printed, for `figures_of` and `good_answers`."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script + DONE)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", file.name, url]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def good_answers(printed: str) -> int:
    """Return how many requests succeeded, of what wrk has printed."""
    answers, _, refused, *_ = _counts(printed)
    return answers - refused


def _counts(printed: str) -> list[int]:
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", printed)
    if found is None:
        sys.exit(f"wrk did not finish: {printed}")
    return [int(each) for each in found.groups()]


def figures_of(printed: str) -> dict[str, float]:
    """Return the figures of what wrk has printed; see `load`."""
    answers, taken_us, refused, unanswered, p50_us, p99_us = _counts(printed)
    good, failed = answers - refused, refused + unanswered
    if good <= 0:
        sys.exit(f"no request succeeded: {printed}")
    figures = {"per_s": good / taken_us * 1e6, "p50": p50_us / 1000, "p99": p99_us / 1000}
    if failed:
        figures[FAILED] = 100 * failed / (good + failed)
        print(
            f"{failed} of {good + failed} requests failed ({figures[FAILED]:.3g} %): "
            f"{refused} with a status of 400 or more, {unanswered} without an answer",
            file=sys.stderr,
        )
    return figures
