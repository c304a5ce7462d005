"""One scenario's processes: a standing server, the checker beside it, and loads."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
from tests.fire.checker import CLOSE
from tests.fire.figures import Event, Found, none_failed, p99_below
from tests.fire.stage import SHAPES, TOPIC, lost_in_log
from tests.servers.own import eventually
from tests.servers.standing import StandingServer, ready
from tests.support.replies import Reply
from tests.torture.judge import Judge
from tests.torture.oracle import Log

from keylane.model.records import Position
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.fire.stage import FireStage

CHECKER = {"readers": 4, "reads_per_s": 100, "writers": 4, "writes_per_s": 20, "has_ages": True}
CLOSE_WITHIN_S = 600
LOG_WITHIN_S = 300
MOST_FAULTS = 20
BEFORE_S, AFTER_S, REST_S = 8.0, 8.0, 3.0
BEFORE, DURING, AFTER = "before", "during", "after"
READ_MS = 50
HEALS = (none_failed("read", AFTER), none_failed("write", AFTER), p99_below(READ_MS, "read", AFTER))
"""What is expected of every server once its trouble is over."""


class Trial:
    """A server under a checker. Call `phase` for each phase, and `finish` at the end."""

    def __init__(
        self, stage: FireStage, server: StandingServer, headers: Mapping[str, str], checker: Mapping[str, Any]
    ) -> None:
        self.stage, self.server = stage, server
        self.found = Found()
        self._headers = headers
        self._acks: list[tuple[int, int, str, int]] = []
        self._loads: list[subprocess.Popen[str]] = []
        self.plan = {"host": HOST, "port": server.port, "topic": TOPIC}
        self._checker = subprocess.Popen(
            [sys.executable, "-m", "tests.fire.checker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        checked = {**CHECKER, **checker}
        self._has_ages = checked.pop("has_ages")
        self._tell({**self.plan, "headers": dict(headers), **checked})

    def phase(self, name: str, seconds: float = 0) -> None:
        """Begin a phase, and stay in it for a time."""
        self._tell({"mark": name})
        time.sleep(seconds)

    def workers(self) -> list[psutil.Process]:
        """Return the processes that serve; those beside them are their children."""
        return list(psutil.Process(self.server.process.pid).children())

    def rss_mib(self, when: str) -> None:
        """Note what all processes of the server have of the memory."""
        main = psutil.Process(self.server.process.pid)
        found = 0
        for each in (main, *main.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += each.memory_info().rss
        self.found.rss_mib[when] = round(found / 2**20, 1)

    def age_ms(self) -> int:
        """Return the age that a read of the topic reports now."""
        _, headers, _ = self.server.ask("GET", f"/topics/{TOPIC}/keys/none", **self._headers)
        return int(headers["keylane-age-ms"])

    def cpu_s(self) -> float:
        """Return the CPU seconds of the processes that serve."""
        return sum(sum(each.cpu_times()[:2]) for each in self.workers())

    def start_load(self, **plan: Any) -> None:
        """Start a load; `end_loads` waits for it."""
        given = json.dumps({**self.plan, **plan})
        command = [sys.executable, "-m", "tests.fire.load", given]
        self._loads.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

    def end_loads(self) -> list[dict[str, Any]]:
        """Wait for the loads, and count what they saw; return what each of them has printed."""
        reports = []
        for load in self._loads:
            printed, _ = load.communicate()
            if load.returncode:
                raise RuntimeError(f"a load has ended with {load.returncode}")
            report = json.loads(printed.splitlines()[-1])
            reports.append(report)
            self._acks += [tuple(each) for each in report.pop("acks")]
        self._loads.clear()
        return reports

    def rest_and_finish(self, rest_s: float = 0) -> Found:
        """Let everything rest, look at it once more, and finish."""
        if rest_s:
            self.phase("rest", rest_s)
        self.phase(AFTER, AFTER_S)
        self.rss_mib(AFTER)
        return self.finish()

    def finish(self) -> Found:
        """End the checker: it reads everything back. The log judges what it saw, and all writes."""
        lasts = {key: f"{partition}:{offset}" for partition, offset, key, _ in self._acks}
        self._tell({"close": lasts})
        try:
            printed, _ = self._checker.communicate(timeout=CLOSE_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._checker.kill()
            raise
        report, found = json.loads(printed), self.found
        found.events = [Event(*each) for each in report["events"]]
        found.uncertain += report["uncertain"]
        found.acknowledged = len(self._acks) + len(report["acks"])
        found.lost = report["lost"]
        with contextlib.closing(Log(self.stage.kafka.bootstrap, SHAPES)) as log:
            log.read_on(LOG_WITHIN_S)
            self._judge(log, report)
        return found

    def _judge(self, log: Log, report: dict[str, Any]) -> None:
        judge, found = Judge(log, SHAPES), self.found
        for at_ms, partition, offset, _, _ in report["acks"]:
            judge.acknowledged.note(at_ms, [(TOPIC, partition, offset)])
        for phase, reads in itertools.groupby(report["reads"], key=lambda read: read[0]):
            for read in reads:
                _note(judge, *read[1:], has_age=self._has_ages)
            faults = [f"{phase}: {fault}" for fault in judge.check()]
            if phase == CLOSE:
                found.lost += faults
                continue
            found.fault_count += len(faults)
            found.faults = [*found.faults, *faults][:MOST_FAULTS]
        own = (tuple(ack) for _, *ack in report["acks"])
        found.lost += lost_in_log(log, (*self._acks, *own))

    def close(self) -> None:
        """End what still runs."""
        for process in (self._checker, *self._loads):
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _tell(self, command: Mapping[str, Any]) -> None:
        assert self._checker.stdin
        self._checker.stdin.write(json.dumps(command) + "\n")
        self._checker.stdin.flush()


def _note(judge: Judge, key: str, waited_for: str, *answer: Any, has_age: bool) -> None:
    status, headers, body, *times_ms = answer
    reply = Reply(status, headers, body.encode(), *times_ms)
    position = Position.parse(waited_for) if waited_for else None
    judge.note_latest(TOPIC, key.encode(), reply, waited_for=position, has_age=has_age)


@contextlib.contextmanager
def open_trial(
    stage: FireStage,
    *options: str,
    variables: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    checker: Mapping[str, Any] | None = None,
    server: StandingServer | None = None,
) -> Iterator[Trial]:
    """Yield a trial of `keylane serve` with these options, or of the server that is given."""
    log = stage.folder / "logs" / "server.log"
    workers = int(options[options.index("--workers") + 1]) if "--workers" in options else 1
    given = {**stage.variables, **(variables or {})}
    with ready(server or StandingServer(log, given, *options), workers) as running:
        eventually(lambda: _is_served(running, headers or {}), 60)
        with contextlib.closing(Trial(stage, running, headers or {}, checker or {})) as trial:
            trial.phase("start", REST_S)
            trial.rss_mib(BEFORE)
            trial.phase(BEFORE, BEFORE_S)
            yield trial


def _is_served(server: StandingServer, headers: Mapping[str, str]) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        status, _, body = server.ask("GET", f"/topics/{TOPIC}/keys/none", **headers)
        return status == 404 and b"key-absent" in body
    return False


def told(reports: Sequence[dict[str, Any]], name: str) -> float:
    """Return the sum of a figure over the reports of loads."""
    return sum(report[name] for report in reports)
