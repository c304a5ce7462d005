"""Runs the load on a stack of its own for some minutes, and writes what it saw into a folder.

samples.jsonl   every process and server, every five seconds
minutes.jsonl   rates, latencies and ages, each minute
outcome.json    the plan, the machine, counts, and the faults
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.servers.own import CLOCK, guarded, wait_writable
from tests.soak.closing import Closing
from tests.soak.listening import Listeners
from tests.soak.plan import EXPIRING, GROWING, PARTITIONS, STEADY, Plan
from tests.soak.reading import Readers
from tests.soak.sampler import RSS, Sampler
from tests.soak.traffic import Traffic
from tests.soak.writing import Writers
from tests.support.figures import machine
from tests.torture.judge import Judge
from tests.torture.oracle import Log

from keylane_local.stack.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA, SAMPLES, MINUTES, OUTCOME = "stack", "samples.jsonl", "minutes.jsonl", "outcome.json"
VISITS_PER_S = 1.0
HOT_EVERY_S = 2.0
JUDGED_EVERY_S, FORGOTTEN_EVERY_S = 2.0, 300.0
KEPT_OF_A_KEY = 50
"""Records of a key that the log remembers: a read is at most some seconds behind."""
FAULTS_SHOWN = 5
"""Of a minute; the outcome has more."""
JAVA = "JDK_JAVA_OPTIONS"
TOUCHED = "-XX:+AlwaysPreTouch"
"""What a heap has of the system is resident then, so that the rest of a JVM's memory can be seen."""


def run(plan: Plan, folder: Path, report: Callable[[str], None]) -> None:
    """Run it. `report` gets a line each minute. Raises StackError if the stack does not start."""
    # The state of another run would be taken for wrong answers.
    shutil.rmtree(folder / DATA, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "keylane.toml"
    config.write_text(plan.config(), encoding="utf-8")
    os.environ[JAVA] = f"{os.environ.get(JAVA, '')} {TOUCHED}".strip()
    with guarded(folder / DATA) as data, Stack(data, config) as stack:
        wait_writable(stack.kafka)
        with contextlib.closing(Log(stack.kafka_bootstrap, plan.shapes)) as log:
            asyncio.run(_Soak(stack, log, plan, folder, report).run())


class _Soak:
    def __init__(
        self, stack: Stack, log: Log, plan: Plan, folder: Path, report: Callable[[str], None]
    ) -> None:
        self._plan, self._folder, self._report = plan, folder, report
        self._stack, self._log = stack, log
        self._machine = machine()
        self._sampler = Sampler(
            stack, dict.fromkeys((STEADY, GROWING, EXPIRING), PARTITIONS), folder / SAMPLES
        )

    async def run(self) -> None:
        plan = self._plan
        traffic = self._traffic = Traffic(self._stack.http_url)
        judge = Judge(self._log, plan.shapes)
        writers = self._writers = Writers(traffic, judge, plan)
        readers = self._readers = Readers(traffic, judge, writers, plan.seed)
        listeners = self._listeners = Listeners(traffic, writers, plan)
        closing = Closing(traffic, judge, writers, readers, listeners)
        async with traffic.session:
            await self._warm_up(closing)
            await listeners.start()
            visits = asyncio.create_task(traffic.steadily(VISITS_PER_S, listeners.visit))
            loops = [
                asyncio.create_task(traffic.steadily(rate, one))
                for rate, one in (
                    (plan.writes_per_s, writers.one),
                    (plan.reads_per_s, readers.one),
                    (1 / plan.burst_every_s, writers.burst),
                    (1 / HOT_EVERY_S, writers.hot),
                )
            ]
            loops.append(asyncio.create_task(self._judge_reads(closing)))
            self._sampler.start()
            try:
                await self._pass_minutes()
                traffic.over.set()
                await asyncio.gather(*loops)
                visits.cancel()
                await asyncio.gather(visits, return_exceptions=True)
                await asyncio.to_thread(self._sampler.stop)
                self._report("the load has ended; checking every key, listener and window")
                await closing.check(plan)
            finally:
                await asyncio.to_thread(self._sampler.stop)
                await listeners.stop()
                self._write_outcome(closing.found)

    async def _warm_up(self, closing: Closing) -> None:
        """Wait until all topics and views are served, and the job has compiled its queries."""
        paths = [f"/topics/{topic}/keys/none" for topic in (STEADY, GROWING, EXPIRING)]
        paths += ["/views/totals/keys/none", "/views/windows/keys/none"]
        until_s = time.monotonic() + 180
        for path in paths:
            while (reply := await self._traffic.ask("start", "GET", path)).status not in (200, 404) or (
                b"unknown-" in reply.body
            ):
                if time.monotonic() > until_s:
                    raise TimeoutError(f"{path} is not served: {reply}")
                await asyncio.sleep(0.2)
        for write in (self._writers.burst, self._writers.one, self._writers.burst):
            await write()
            await closing.check_applied()
        self._traffic.minute = type(self._traffic.minute)()
        self._traffic.failed.clear()

    async def _judge_reads(self, closing: Closing) -> None:
        forgotten_s = time.monotonic()
        while not self._traffic.over.is_set():
            await asyncio.sleep(JUDGED_EVERY_S)
            await closing.check_reads()
            if time.monotonic() > forgotten_s + FORGOTTEN_EVERY_S:
                forgotten_s = time.monotonic()
                before_ms = CLOCK.now_ms() - round(FORGOTTEN_EVERY_S * 1000)
                await asyncio.to_thread(self._log.forget, KEPT_OF_A_KEY, before_ms)

    async def _pass_minutes(self) -> None:
        begun_s = last_s = time.monotonic()
        end_s = begun_s + self._plan.minutes * 60
        shown = 0
        with (self._folder / MINUTES).open("w", encoding="utf-8") as file:
            while (now_s := time.monotonic()) < end_s:
                await asyncio.sleep(min(60 - (now_s - begun_s) % 60, end_s - now_s))
                self._listeners.check()
                minute, self._traffic.minute = self._traffic.minute, type(self._traffic.minute)()
                seconds, last_s = time.monotonic() - last_s, time.monotonic()
                summary = minute.summary(seconds) | {
                    "minute": round((last_s - begun_s) / 60, 2),
                    "load_1min": os.getloadavg()[0],
                    "keys": {**self._readers.counts, GROWING: len(self._writers.grown)},
                    "faults": self._traffic.fault_count,
                }
                file.write(json.dumps(summary) + "\n")
                file.flush()
                self._report(line_of(summary, self._sampler.latest))
                for fault in self._traffic.faults[shown : shown + FAULTS_SHOWN]:
                    self._report(fault)
                shown = len(self._traffic.faults)

    def _write_outcome(self, found: dict[str, Any]) -> None:
        traffic = self._traffic
        outcome = {
            "plan": asdict(self._plan) | {"ttl_s": self._plan.ttl_s, "window_ms": self._plan.window_ms},
            "machine": self._machine,
            "requests": dict(traffic.sent),
            "failed": dict(traffic.failed),
            "acknowledged": dict(self._writers.acknowledged),
            "uncertain": self._writers.uncertain,
            "changes received": {each.book.name: each.book.received for each in self._listeners.listeners},
            "connections of listeners": sum(each.connections for each in self._listeners.listeners),
            "listeners that came and went": self._listeners.visits,
            "of which saw a key expire": self._listeners.expiries,
            "checked at the end": found,
            "samples left out": dict(Counter(self._sampler.failures)),
            "fault_count": traffic.fault_count,
            "faults": traffic.faults,
        }
        (self._folder / OUTCOME).write_text(json.dumps(outcome, indent=1), encoding="utf-8")


def line_of(summary: dict[str, Any], latest: dict[str, dict[str, float]]) -> str:
    """Return a minute as one line."""
    requests = summary["requests"]
    per_s = sum(kind["per_s"] for kind in requests.values())
    shown = [
        f"{kind} {requests[kind]['p50']:.1f}/{requests[kind]['p99']:.0f} ms"
        for kind in ("put", "read")
        if kind in requests
    ]
    ages = max((ages["p99"] for ages in summary["ages_ms"].values()), default=0)
    rss = sum(figures.get(RSS, 0) for figures in latest.values()) / 2**20
    failed = sum(summary["failed"].values())
    return (
        f"minute {summary['minute']:5.1f}: {per_s:4.0f} requests/s, {', '.join(shown)} (p50/p99),"
        f" age p99 {ages:.0f} ms, {rss:,.0f} MiB, load {summary['load_1min']:.1f},"
        f" {failed} failed, {summary['left_out']} left out, {summary['faults']} faults so far"
    )
