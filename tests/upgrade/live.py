"""A live upgrade: jobs and servers of two versions on the same Kafka and Redis, forward, back and forward.

All code of a checkout's job and server comes from there, the servers' from here.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tests.servers.own import create_topic, eventually
from tests.servers.standing import StandingServer, ready
from tests.support import jobs
from tests.support import lanes as t
from tests.support.jobs import State, epoch_of
from tests.support.replies import Reply
from tests.torture.mutants import environment_of
from tests.upgrade.traffic import KEPT, LATE, ORDERS, PARTITIONS, STREAMED, TOPICS, Traffic, keys

from keylane.adapters.redis.cluster import Cluster
from keylane_local.process.ports import Ports
from keylane_spark.lanes.lane import lanes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.contract.hosts.checkouts import Checkout
    from tests.support.jobs import RunningJob


def start_job(checkout: Checkout, kafka: str, redis: str, folder: Path, config: str) -> RunningJob:
    """Start the checkout's job with a checkpoint folder of its own."""
    path = environment_of(checkout.root)["PYTHONPATH"]
    return jobs.start(kafka, redis, folder, config, PYTHONPATH=path)


class CheckoutServer(StandingServer):
    """The standing server of a checkout."""

    def __init__(self, checkout: Checkout, variables: Mapping[str, str], log: Path) -> None:
        self.port = Ports().any()
        environment = checkout.server_environment(self.port, dict(variables), requires_tokens=False)
        self._begin(log, checkout.server_command(), environment, checkout.root)

    def ask(  # type: ignore[override]
        self, method: str, path: str, body: str = "", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send one request over a connection of its own."""
        return Reply(*super().ask(method, path, body.encode() or None, **(headers or {})))


OLD, NEW = "old", "new"
TURNS = (OLD, NEW, OLD, NEW)
"""Whose job runs in each phase: an upgrade, a rollback, and the upgrade again."""
MARKED_AFTER = 2
"""After so many phases lanes are marked, as by a new job that is rolled back before it has rebuilt them."""
READY_WITHIN_S = 600
"""A job takes over beside all traffic, on a machine that may have other work."""
REPLACED = 3
"""The exit code of a job that was replaced."""
COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "60000"}
CONFIG = f"""
[job]
heartbeat_ms = 200

[topics.{ORDERS}]

[topics.{KEPT}]
index = true
history_count = 10

[topics.direct]
stripes = 2

[views.counted]
topic = "{KEPT}"

[views.counted.columns]
n = "count()"
"""
ADDED = f"""
[topics.{LATE}]
guarded = true
"""
"""What keylane.toml gets with the upgrade: a state that the new version begins."""


@dataclass(slots=True)
class Phase:
    """What happened while a version's job ran. `oldest_ms`: the highest age of an answer."""

    job: str
    ready_s: float
    oldest_ms: int
    faults: int
    written: int


class LiveUpgrade:
    """One run on running servers. Each phase is `seconds` long once its job is ready."""

    def __init__(
        self, checkouts: Mapping[str, Checkout], kafka: str, redis: str, folder: Path, seconds: float
    ) -> None:
        self._seconds = seconds
        self._checkouts = checkouts
        self._kafka = kafka
        self._redis = redis
        self._folder = folder
        self._jobs: list[RunningJob] = []
        self.phases: list[Phase] = []
        self.faults: list[str] = []
        self.counts: dict[str, int] = {}

    def run(self, seed: int, say: Callable[[str], None]) -> None:
        for topic in TOPICS:
            create_topic(self._kafka, topic, PARTITIONS, config=COMPACTED if topic == KEPT else None)
        with contextlib.ExitStack() as stack:
            variables = {
                "KEYLANE_REDIS_NODES": self._redis,
                "KEYLANE_KAFKA_BOOTSTRAP": self._kafka,
                "KEYLANE_LAYOUT_TTL_S": "5",
                "KEYLANE_PRODUCE_TIMEOUT_MS": "20000",
                "KEYLANE_STATE_TIMEOUT_MS": "5000",
            }
            servers = {
                name: stack.enter_context(
                    ready(CheckoutServer(each, variables, self._folder / f"{name}.log"))
                )
                for name, each in self._checkouts.items()
            }
            stack.callback(self._end_jobs)
            traffic = Traffic(self._kafka, servers, seed)
            traffic.begin()
            job = self._start(TURNS[0])
            self._settle(traffic)
            with traffic:
                for name in TURNS:
                    job = self._phase(name, job, traffic, servers)
                    say(json.dumps(asdict(self.phases[-1])))
                self._end(traffic, servers)
            self.faults = traffic.faults
            self.counts = dict(sorted(traffic.counts.items()))

    def _phase(
        self, name: str, before: RunningJob, traffic: Traffic, servers: Mapping[str, CheckoutServer]
    ) -> RunningJob:
        """Let a version's job take over, and go on for a while; then all keys must be as the log has them."""
        faults, written = len(traffic.faults), traffic.book.count
        traffic.oldest_ms = 0
        begun_s = time.monotonic()
        job = before
        if self.phases:
            job = self._start(name)
            job.wait_for("keylane: ready", READY_WITHIN_S)
        ready_s = time.monotonic() - begun_s
        if job is not before and (code := before.exit_code(READY_WITHIN_S)) != REPLACED:
            traffic.faults.append(f"the job that was replaced ended with {code}")
        if self.phases and LATE not in traffic.served:
            self._serve_late(traffic, servers)
        time.sleep(self._seconds)  # how long the phase lasts
        traffic.pause_writes()
        self._settle(traffic)
        traffic.resume_writes()
        phase = Phase(
            name,
            round(ready_s, 1),
            traffic.oldest_ms,
            len(traffic.faults) - faults,
            traffic.book.count - written,
        )
        self.phases.append(phase)
        if len(self.phases) == MARKED_AFTER:
            self._miss_deletions(job)
        return job

    def _serve_late(self, traffic: Traffic, servers: Mapping[str, CheckoutServer]) -> None:
        """Let readers read the topic that has been added, once both versions do."""

        def is_served() -> bool:
            asked = [
                server.ask("GET", f"/topics/{LATE}/keys/{key}")
                for server in servers.values()
                for key in keys()
            ]
            return all("keylane-age-ms" in reply.headers for reply in asked)

        eventually(is_served, 120)
        traffic.served = TOPICS

    def _start(self, name: str) -> RunningJob:
        folder = self._folder / f"job-{len(self.phases)}-{name}"
        folder.mkdir()
        config = CONFIG + ADDED if self.phases else CONFIG
        self._jobs.append(start_job(self._checkouts[name], self._kafka, self._redis, folder, config))
        return self._jobs[-1]

    def _end_jobs(self) -> None:
        for job in self._jobs:
            job.end()

    def _settle(self, traffic: Traffic) -> None:
        """Wait until the state is the fold of the log."""
        for topic in traffic.served:
            values = {
                key.encode(): None if number is None else json.dumps({"n": number}).encode()
                for key, number in traffic.book.fold(topic).items()
            }
            with contextlib.closing(State(self._redis, topic)) as state:
                try:
                    eventually(lambda state=state, values=values: state.holds(values), 90)
                except AssertionError:
                    traffic.faults.append(f"{topic}: the state is not the fold of the log")

    def _miss_deletions(self, job: RunningJob) -> None:
        """Mark lanes as a job does that is stopped before it has built their topic again."""
        epoch = epoch_of(job)
        with (
            contextlib.closing(Cluster(t.settings(self._redis))) as cluster,
            contextlib.closing(State(self._redis, KEPT)) as state,
        ):
            assert state.layout
            writer = t.writer_over(cluster, epoch)
            writer.mark_missed_deletions(lanes_of(state.layout))
            writer.flush()

    def _end(self, traffic: Traffic, servers: Mapping[str, CheckoutServer]) -> None:
        """Compare the stream and the view with the log; what was marked must have been built again."""
        traffic.pause_writes()
        fold = {
            (topic, key): number for topic in STREAMED for key, number in traffic.book.fold(topic).items()
        }
        try:
            eventually(lambda: {**traffic.streamed, **fold} == traffic.streamed, 60)
        except AssertionError:
            missing = {key: (traffic.streamed.get(key), fold[key]) for key in fold}
            traffic.faults.append(
                f"the stream lacks changes: { {k: v for k, v in missing.items() if v[0] != v[1]} }"
            )
        with contextlib.closing(State(self._redis, KEPT)) as state:
            if any(mark and mark.missed_deletions for mark in state.watermarks().values()):
                traffic.faults.append("the newest job has not built again what may have deleted keys")
        counted = traffic.book.sets(KEPT)
        for name, server in servers.items():

            def is_counted(server: CheckoutServer = server) -> bool:
                reply = server.ask("GET", "/views/counted/keys?limit=500")
                found = json.loads(reply.body).get("windows", [])
                return {each["key"]: each["values"]["n"] for each in found} == counted

            try:
                eventually(is_counted, 60)
            except AssertionError:
                traffic.faults.append(f"{name}: the view has not counted each record once")
