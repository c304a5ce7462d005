"""Programs that run detached from the one who starts them, found again by their pid file."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

from keylane_local.errors import PartFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

# A start time is read with the system's clock ticks; a pid is not reused within this time.
_SAME_START_S = 2.0
_POLL_S = 0.02
_KILL_TIMEOUT_S = 5.0
_TAIL_BYTES = 64 * 1024


def tail(log: Path, lines: int = 20) -> str:
    """Return the last `lines` lines of `log`, or "" when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def wait_until(condition: Callable[[], bool], timeout_s: float, poll_s: float = _POLL_S) -> bool:
    """Poll `condition` until it holds; tell whether it did within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True


def process_of(pid_file: Path) -> psutil.Process | None:
    """Return the running process that `pid_file` names, or None.

    A process that was given the same pid later is not it: its start time differs.
    """
    try:
        saved = json.loads(pid_file.read_text())
        process = psutil.Process(int(saved["pid"]))
        if abs(process.create_time() - float(saved["started"])) > _SAME_START_S:
            return None
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except (FileNotFoundError, psutil.NoSuchProcess, ValueError, KeyError, TypeError):
        return None


def has_ended(process: psutil.Process) -> bool:
    """Tell whether it has ended, be it that its parent has not asked for its exit code yet."""
    with contextlib.suppress(psutil.TimeoutExpired):
        process.wait(0)  # this asks, where the parent is us
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def stop(process: psutil.Process, timeout_s: float) -> None:
    """End `process` and its descendants: SIGTERM to it, and SIGKILL to what is left after `timeout_s`."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = [*process.children(recursive=True), process]
        process.terminate()
        wait_until(lambda: has_ended(process), timeout_s)
        _kill(family)


def stop_now(process: psutil.Process) -> None:
    """End `process` and its descendants with SIGKILL."""
    with contextlib.suppress(psutil.NoSuchProcess):
        _kill([process, *process.children(recursive=True)])


def _kill(family: list[psutil.Process]) -> None:
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    wait_until(lambda: all(map(has_ended, family)), _KILL_TIMEOUT_S)


class Program:
    """One detached program of the stack, with a pid file and a log."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        pid_file: Path,
        log: Path,
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
        stop_timeout_s: float = 15.0,
    ) -> None:
        """Describe it; `env` is added to this process's own environment, None takes a variable away."""
        self.name = name
        self.command = [str(word) for word in command]
        self.pid_file = pid_file
        self.log = log
        self.cwd = cwd
        self.env = dict(env or {})
        self.stop_timeout_s = stop_timeout_s

    @property
    def process(self) -> psutil.Process | None:
        """The running process, or None."""
        return process_of(self.pid_file)

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.process is not None

    def start(self) -> None:
        """Start it, unless it runs; raise PartFailed where the program cannot be executed."""
        if self.running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            log_from = log.tell()
            try:
                child = subprocess.Popen(
                    self.command,
                    cwd=self.cwd,
                    env={
                        name: value
                        for name, value in ({**os.environ, **self.env}).items()
                        if value is not None
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise PartFailed(self.name, f"{self.command[0]} cannot be started: {error}") from error
        # It outlives this object on purpose; psutil waits for it, so Popen has nothing left to warn of.
        child.returncode = 0
        started = psutil.Process(child.pid).create_time()
        temporary = self.pid_file.with_suffix(".new")
        saved = {"pid": child.pid, "started": started, "log_from": log_from, "command": self.command}
        temporary.write_text(json.dumps(saved), encoding="utf-8")
        temporary.replace(self.pid_file)

    def stop(self) -> None:
        """End it with SIGTERM, or with SIGKILL where that takes longer than `stop_timeout_s`."""
        if process := self.process:
            stop(process, self.stop_timeout_s)
        self.pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it at once with SIGKILL, as a crash would."""
        if process := self.process:
            stop_now(process)
        self.pid_file.unlink(missing_ok=True)

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `ready`; raise PartFailed where it ends before, or takes longer than `timeout_s`."""
        settled = wait_until(lambda: ready() or not self.running, timeout_s)
        if not settled:
            raise self.failure(f"it is not ready after {timeout_s:.0f} s")
        if not self.running:
            raise self.failure("it ended while it started")

    def said(self, words: str) -> bool:
        """Tell whether a line of the log starts with `words` since the program was started."""
        try:
            log_from = int(json.loads(self.pid_file.read_text(encoding="utf-8"))["log_from"])
            with self.log.open("rb") as log:
                log.seek(log_from)
                return any(line.startswith(words.encode()) for line in log)
        except (FileNotFoundError, ValueError, KeyError):
            return False

    def failure(self, reason: str) -> PartFailed:
        """Return the error for `reason`, with the end of the log."""
        return PartFailed(self.name, reason, self.log, tail(self.log))
