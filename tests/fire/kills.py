"""Scenarios in which a process is killed (SIGKILL): of the server (one or two), of Redis, or the job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.fire.figures import answered_with, fact_below, gap_below, none_failed, p99_below
from tests.fire.trial import DURING, HEALS, READ_MS, open_trial
from tests.servers.own import eventually, primary_and_replica, repair
from tests.servers.standing import READY

from keylane import routing

if TYPE_CHECKING:
    from tests.fire.figures import Found
    from tests.fire.stage import FireStage

AGAIN_WITHIN_S = 12.0
AWAY_S, FRESH_MS = 60.0, 2_000
"""How long the job is away; and an age without an outage: that of a busy topic is about half a second."""
OFF, FRESH = "ages, furthest from growing with the clock, ms", "from the job's start until an age is fresh, s"
AGAIN, AGAIN_SOON = "serves again after, s", "... killed again at once: serves again after, s"
"""A process that dies is not started sooner than 5 s after its last start."""


def only_worker_killed(stage: FireStage) -> Found:
    """The only process that serves is killed, and the one after it at once, while clients read and write."""
    return _worker_killed(stage, 1)


def one_of_two_killed(stage: FireStage) -> Found:
    """One of two processes that serve is killed, and the one after it at once."""
    return _worker_killed(stage, 2)


def _worker_killed(stage: FireStage, count: int) -> Found:
    with open_trial(stage, "--workers", str(count)) as trial:
        trial.phase(DURING)
        for number, name in enumerate((AGAIN, AGAIN_SOON), 1):
            newest = max(trial.workers(), key=lambda each: each.create_time())
            killed_s, wanted = time.monotonic(), count + number
            newest.kill()
            eventually(lambda wanted=wanted: trial.server.log.count(READY) == wanted, 60)
            trial.found.facts[name] = round(time.monotonic() - killed_s, 1)
        return trial.rest_and_finish(2)


_STARTS_AGAIN = fact_below(AGAIN_WITHIN_S, AGAIN_SOON)
ONLY_WORKER_KILLED = (_STARTS_AGAIN, gap_below(AGAIN_WITHIN_S, "read", DURING), *HEALS)
ONE_OF_TWO_KILLED = (
    _STARTS_AGAIN,
    gap_below(1.0, "read", DURING),
    answered_with({200, 404, 0}, "read", DURING),
    *HEALS,
)


def primary_killed(stage: FireStage) -> Found:
    """A Redis primary that has some of the keys is killed, and comes back."""
    with open_trial(stage) as trial:
        slot = routing.slot_for(0, 0, 6, 1)
        primary, replica = primary_and_replica(stage.redis, slot)
        trial.phase(DURING)
        killed_s = time.monotonic()
        primary.kill()
        eventually(lambda: replica.running and replica.facts()["role"] == "master", 60)
        trial.found.facts["replica promoted after, s"] = round(time.monotonic() - killed_s, 1)
        time.sleep(5)
        repair(stage.redis)
        return trial.rest_and_finish(5)


PRIMARY_KILLED = (
    none_failed("read", DURING), none_failed("write", DURING), gap_below(2.0, "read", DURING), *HEALS,
)  # fmt: skip


def job_killed(stage: FireStage) -> Found:
    """The job is killed, and another one starts after a minute: reads go on, and report their age."""
    with open_trial(stage) as trial:
        trial.phase(DURING)
        stage.job.kill()
        killed_s, first_ms, off_ms = time.monotonic(), trial.age_ms(), 0.0
        while (away_s := time.monotonic() - killed_s) < AWAY_S:
            off_ms = max(off_ms, abs(trial.age_ms() - first_ms - away_s * 1000))
            time.sleep(1)
        started_s = time.monotonic()
        stage.job.start()
        stage.job.wait_ready()
        eventually(lambda: trial.age_ms() < FRESH_MS)
        trial.found.facts |= {OFF: round(off_ms), FRESH: round(time.monotonic() - started_s, 1)}
        return trial.rest_and_finish(5)


JOB_KILLED = (
    none_failed("read", DURING),
    none_failed("write", DURING),
    p99_below(READ_MS, "read", DURING),
    fact_below(1_000, OFF),
    *HEALS,
)
