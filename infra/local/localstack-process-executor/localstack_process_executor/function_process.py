"""One execution environment: a process of a function, started anew where an invocation has ended it.

Knows nothing of LocalStack; standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localstack_process_executor.runtime_api import (
    TOO_LARGE,
    Answer,
    InitError,
    RuntimeApi,
    RuntimeGone,
    failure,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_LOG_BYTES = 4 * 1024 * 1024
_KILL_TIMEOUT_S = 5.0
_ATTEMPTS = 3


class Stopped(Exception):
    """It was stopped while somebody waited for it."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """What is handed to a function."""

    request_id: str
    arn: str
    trace: str
    event: bytes
    timeout_s: float

    def headers(self, began: float) -> dict[str, str]:
        """Return what the runtime is told of it; `began` in seconds since 1970."""
        return {
            "Lambda-Runtime-Aws-Request-Id": self.request_id,
            "Lambda-Runtime-Deadline-Ms": str(int((began + self.timeout_s) * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": self.arn,
            "Lambda-Runtime-Trace-Id": self.trace,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """What it came to: the answer, what the function wrote meanwhile, how long it took, memory at most.

    `init_ms` is how long the process took to be ready, where this is the first invocation that it saw.
    """

    answer: Answer
    written: str
    took_ms: float
    memory_mb: int
    init_ms: float | None


class FunctionProcess:
    """`command` in `cwd` with `variables`; what it writes goes to the file `log`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        variables: Mapping[str, str],
        log: Path,
        init_timeout_s: float,
    ) -> None:
        """Describe it; nothing runs yet."""
        self.command = list(command)
        self.cwd = cwd
        self.variables = dict(variables)
        self.log = log
        self.init_timeout_s = init_timeout_s
        self._api: RuntimeApi | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._init_ms: float | None = None
        self._told = 0  # how much of the log was told already
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process that runs, if any."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start it and wait until it asks for work. Raises InitError, or Stopped."""
        with self._lock:
            if self._stopped:
                raise Stopped
            began = time.monotonic()
            self._api = api = RuntimeApi()
            try:
                with self.log.open("ab") as log:
                    process = subprocess.Popen(
                        self.command,
                        cwd=self.cwd,
                        env={**self.variables, "AWS_LAMBDA_RUNTIME_API": api.address},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
            except OSError as error:
                api.end(str(error))
                raise InitError(failure("Runtime.InvalidEntrypoint", str(error)).payload) from error
            self._process = process
        threading.Thread(target=_watch, args=(process, api), name="lambda-process", daemon=True).start()
        try:
            api.ready.result(self.init_timeout_s)
        except TimeoutError:
            _kill(process)
            message = f"the handler is not loaded after {self.init_timeout_s:.0f} s"
            raise InitError(failure("Sandbox.Timedout", message).payload) from None
        except InitError:
            _kill(process)
            if self._stopped:
                raise Stopped from None
            raise
        self._init_ms = (time.monotonic() - began) * 1000

    def invoke(self, invocation: Invocation) -> Outcome:
        """Run one invocation; whatever happens to the process is its answer. Raises Stopped alone."""
        began = time.monotonic()
        answer = self._answer(invocation)
        took_ms = (time.monotonic() - began) * 1000
        if self._stopped:
            raise Stopped
        init_ms, self._init_ms = self._init_ms, None
        return Outcome(answer, self.written(), took_ms, _peak_memory_mb(self.pid), init_ms)

    def stop(self) -> None:
        """End the process, and whatever it started, at once; who waits for it is told."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process:
            _kill(process)

    def written(self) -> str:
        """Return what the function wrote since this was last asked, MAX_LOG_BYTES of it at most."""
        with contextlib.suppress(FileNotFoundError), self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._told, end - MAX_LOG_BYTES))
            text = log.read(MAX_LOG_BYTES).decode("utf-8", "replace")
            self._told = end
            if end > MAX_LOG_BYTES:
                os.truncate(self.log, 0)  # it is opened for appending: what comes next starts at 0
                self._told = 0
            return text
        return ""

    def _answer(self, invocation: Invocation) -> Answer:
        for _ in range(_ATTEMPTS):
            try:
                if self.pid is None:  # the last invocation took too long, or ended the process
                    self.start()
                assert self._api  # noqa: S101 - for the type checker
                headers = invocation.headers(time.time())
                answer = self._api.invoke(
                    invocation.request_id, headers, invocation.event, invocation.timeout_s
                )
            except RuntimeGone:
                continue
            except InitError as error:
                return Answer(failed=True, payload=error.payload)
            except TimeoutError:
                self._end_process()
                message = f"RequestId: {invocation.request_id} Error: Task timed out after"
                return failure("Sandbox.Timedout", f"{message} {invocation.timeout_s:.2f} seconds")
            if answer is TOO_LARGE:
                self._end_process()
            return answer
        return failure("Runtime.ExitError", f"RequestId: {invocation.request_id} Error: Runtime exited")

    def _end_process(self) -> None:
        if self._process:
            _kill(self._process)


def _watch(process: subprocess.Popen[bytes], api: RuntimeApi) -> None:
    code = process.wait()
    status = f"signal: {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    api.end(f"Runtime exited with error: {status}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_TIMEOUT_S)


def _peak_memory_mb(pid: int | None) -> int:
    """Return the most that the process had in memory so far, in MiB; 0 where the system doesn't tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        return int(status.split("VmHWM:")[1].split()[0]) // 1024
    return 0
