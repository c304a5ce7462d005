"""One execution environment: a process of a function, restarted after an invocation that has ended it.

Independent of LocalStack; standard library only.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localstack_process_executor.runtime_api import (
    TOO_LARGE,
    Answer,
    InitError,
    RuntimeApi,
    RuntimeGone,
    failure,
)

MAX_LOG_BYTES = 4 * 1024 * 1024
_KILL_TIMEOUT_S = 5.0
_ATTEMPTS = 3


class Stopped(Exception):
    """The environment was stopped while a caller waited for it."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """An event for a function, with its context."""

    request_id: str
    arn: str
    trace: str
    event: bytes
    timeout_s: float

    def headers(self, began: float) -> dict[str, str]:
        """Return the headers for the runtime; `began` is in seconds since 1970."""
        return {
            "Lambda-Runtime-Aws-Request-Id": self.request_id,
            "Lambda-Runtime-Deadline-Ms": str(int((began + self.timeout_s) * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": self.arn,
            "Lambda-Runtime-Trace-Id": self.trace,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an invocation: the answer, the function's output, its duration and its peak memory.

    `init_ms` is the duration of the process's start, if this is its first invocation.
    """

    answer: Answer
    written: str
    took_ms: float
    memory_mb: int
    init_ms: float | None


class FunctionProcess:
    """Runs `command` in `cwd` with `variables`; its output goes to the file `log`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        variables: Mapping[str, str],
        log: Path,
        init_timeout_s: float,
    ) -> None:
        """Set command and environment; nothing runs yet."""
        self.command = list(command)
        self.cwd = cwd
        self.variables = dict(variables)
        self.log = log
        self.init_timeout_s = init_timeout_s
        self._api: RuntimeApi | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._init_ms: float | None = None
        self._told = 0  # how many bytes of the log have been returned
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The id of the running process, or None."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the process and wait until it asks for work. Raises InitError or Stopped."""
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
        """Run one invocation; a crash or timeout becomes its answer. Raises Stopped only."""
        began = time.monotonic()
        answer = self._answer(invocation)
        took_ms = (time.monotonic() - began) * 1000
        if self._stopped:
            raise Stopped
        init_ms, self._init_ms = self._init_ms, None
        return Outcome(answer, self.written(), took_ms, _peak_memory_mb(self.pid), init_ms)

    def stop(self) -> None:
        """Kill the process and everything that it started; waiting callers get Stopped."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process:
            _kill(process)

    def written(self) -> str:
        """Return the function's output since the last call, at most its last MAX_LOG_BYTES."""
        with contextlib.suppress(FileNotFoundError), self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._told, end - MAX_LOG_BYTES))
            text = log.read(MAX_LOG_BYTES).decode("utf-8", "replace")
            self._told = end
            if end > MAX_LOG_BYTES:
                os.truncate(self.log, 0)  # the process appends, so its next output starts at 0
                self._told = 0
            return text
        return ""

    def _answer(self, invocation: Invocation) -> Answer:
        for _ in range(_ATTEMPTS):
            try:
                if self.pid is None:  # the last invocation timed out or ended the process
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
    """Return the process's peak memory in MiB, or 0 if the system does not report it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        return int(status.split("VmHWM:")[1].split()[0]) // 1024
    return 0
