"""Scenarios of the process itself: twice its capacity, no more descriptors, a clock that jumps."""

from __future__ import annotations

import resource
import sys
import time
from typing import TYPE_CHECKING

from tests.fire.figures import Expectation, answered_with, fact_below, none_failed, p99_below
from tests.fire.outages import count_loads
from tests.fire.stage import ACCESS, CALLER
from tests.fire.trial import AFTER, AFTER_S, BEFORE, DURING, HEALS, READ_MS, open_trial, told
from tests.servers.own import eventually
from tests.servers.standing import StandingServer
from tests.support import clocked_job, clocked_server

if TYPE_CHECKING:
    from tests.fire.figures import Found
    from tests.fire.stage import FireStage

CONNECTIONS, LOADS = 3_000, 2
CAPACITY_CONNECTIONS = 384
OVERLOAD_S, CAPACITY_S = 180, 8
WRITE_PART = 0.3
GAIN_MIB = 200
DESCRIPTORS_LEFT, DESCRIPTORS_WANTED, LIMITED_S = 40, 300, 15
HOUR_MS = 3_600_000
JUMPED_S = 66
"""Longer than grants are used before they are read again."""


def overload(stage: FireStage) -> Found:
    """Twice the server's capacity for three minutes, from 3,000 connections."""
    with open_trial(stage) as trial:
        trial.phase("capacity")
        trial.start_load(
            connections=CAPACITY_CONNECTIONS, per_s=1e6, seconds=CAPACITY_S, write_part=WRITE_PART
        )
        (report,) = trial.end_loads()
        good = sum(count for status, count in report["outcomes"].items() if status in ("200", "201", "404"))
        capacity_per_s = good / report["seconds"]
        trial.phase(DURING)
        for _ in range(LOADS):
            trial.start_load(
                connections=CONNECTIONS // LOADS, per_s=capacity_per_s * 2 / LOADS, seconds=OVERLOAD_S,
                write_part=WRITE_PART,
            )  # fmt: skip
        reports, facts = count_loads(trial), trial.found.facts
        answered = sum(trial.found.load.values())
        facts["capacity of this mix, requests/s"] = round(capacity_per_s)
        facts["sent, requests/s"] = round(answered / OVERLOAD_S)
        facts["answered by 200 or 404, requests/s"] = round(
            sum(trial.found.load.get(name, 0) for name in ("200", "404")) / OVERLOAD_S
        )
        facts["due, and without a free connection"] = told(reports, "without_connection")
        trial.phase("rest", 5)
        trial.rss_mib("at its end")
        found = trial.rest_and_finish()
        found.facts["gain of memory, MiB"] = round(found.rss_mib[AFTER] - found.rss_mib[BEFORE], 1)
        return found


OVERLOAD = (
    Expectation(
        "the load: nothing but 200, 404, 429, 503",
        lambda found: bool(found.load) and set(found.load) <= {"200", "404", "429", "503"},
        lambda found: found.load,
    ),
    answered_with({200, 404, 429, 503}, "read", DURING),
    answered_with({201, 429, 503}, "write", DURING),
    fact_below(GAIN_MIB, "gain of memory, MiB"),
    *HEALS,
)


def descriptors(stage: FireStage) -> Found:
    """The server has 40 descriptors left, and 300 clients connect; the limit stays when they are gone."""
    with open_trial(stage) as trial:
        (worker,) = trial.workers()
        limit = worker.num_fds() + DESCRIPTORS_LEFT
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (limit, limit))
        trial.start_load(connections=DESCRIPTORS_WANTED, per_s=100, seconds=LIMITED_S, write_part=0.0)
        trial.phase("connecting", 3)
        facts, begun_s, cpu_s = trial.found.facts, time.monotonic(), trial.cpu_s()
        trial.phase(DURING, LIMITED_S - 6)
        facts["descriptors, of the limit"] = f"{worker.num_fds()} of {limit}"
        facts["CPU at the limit, cores"] = round((trial.cpu_s() - cpu_s) / (time.monotonic() - begun_s), 2)
        trial.phase("until they are gone")
        count_loads(trial)
        begun_s = time.monotonic()
        eventually(lambda: trial.server.ask("GET", "/health/live")[0] == 200)
        facts["new connection answered after, s"] = round(time.monotonic() - begun_s, 2)
        begun_s, cpu_s = time.monotonic(), trial.cpu_s()
        trial.phase(AFTER, AFTER_S)
        facts["CPU afterwards, cores"] = round((trial.cpu_s() - cpu_s) / (time.monotonic() - begun_s), 2)
        trial.rss_mib(AFTER)
        return trial.finish()


DESCRIPTORS = (
    none_failed("read", DURING),
    none_failed("write", DURING),
    p99_below(READ_MS, "read", DURING),
    fact_below(0.5, "CPU at the limit, cores"),
    fact_below(5, "new connection answered after, s"),
    *HEALS,
)
AHEAD, BACK = "an hour ahead", "an hour back"


def clock_jumps(stage: FireStage) -> Found:
    """The server's wall clock jumps an hour ahead, then two hours back, then to where it was."""
    file = stage.folder / "clock"
    clocked_job.move(file, 0)
    variables = {**stage.variables, "KEYLANE_ACCESS": ACCESS, clocked_job.VARIABLE: str(file)}
    program = (sys.executable, "-m", clocked_server.__name__)
    log = stage.folder / "logs" / "server.log"
    server = StandingServer(log, variables, "--authorization", "tokens", program=program)
    # What an age says is what the two clocks say: the checker's is not the server's.
    with open_trial(stage, server=server, headers=CALLER, checker={"has_ages": False}) as trial:
        for phase, ahead_ms in ((AHEAD, HOUR_MS), (BACK, -HOUR_MS), (AFTER, 0)):
            clocked_job.move(file, ahead_ms)
            trial.phase(phase, AFTER_S if phase == AFTER else JUMPED_S)
        trial.found.facts["age afterwards, ms"] = trial.age_ms()
        trial.rss_mib(AFTER)
        return trial.finish()


CLOCK_JUMPS = tuple(
    each
    for phase in (AHEAD, BACK, AFTER)
    for each in (
        none_failed("read", phase), none_failed("write", phase), none_failed("positioned read", phase),
        p99_below(READ_MS, "read", phase),
    )
)  # fmt: skip
