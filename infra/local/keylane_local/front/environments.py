"""Execution environments of a function, as on Lambda: one process each, one invocation at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from keylane_local.front.output import copy_output
from keylane_local.front.runtime_api import TOO_LARGE, FunctionResponse, InitFailed, RuntimeApiServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REGION = "us-east-1"
_INIT_TIMEOUT_S = 10.0
_EXIT_TIMEOUT_S = 5.0
# awslambdaric's native module is built for Linux alone; elsewhere a replacement comes last on the path.
_FALLBACK = {"darwin": (str(Path(__file__).parent / "fallback"),)}
# Variables of the front's own environment that any process needs, and so every function gets.
_PASSED = ("AWS_LAMBDA_LOG_FORMAT", "PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "VIRTUAL_ENV")


class TimedOut(Exception):
    """The function exceeded its timeout; its environment has been killed."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function as a template describes it: code, layer, handler, variables and limits."""

    name: str
    code: Path
    layer: Path
    log: Path
    handler: str = "handler.lambda_handler"
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 29.0
    memory_mb: int = 512
    max_environments: int = 8
    max_waiting: int = 256
    max_wait_s: float = 10.0

    @property
    def arn(self) -> str:
        """The ARN that the function's context object shows."""
        return f"arn:aws:lambda:{REGION}:000000000000:function:{self.name}"

    def environment(self, runtime_api: str) -> dict[str, str]:
        """Return the variables that Lambda sets, with the function's own over them."""
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return {
            **{name: os.environ[name] for name in _PASSED if name in os.environ},
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "PYTHONPATH": os.pathsep.join([str(self.layer), *_FALLBACK.get(sys.platform, ())]),
            "PYTHONUNBUFFERED": "1",
            "LAMBDA_TASK_ROOT": str(self.code),
            "_HANDLER": self.handler,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{python}",
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory_mb),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": "local",
            "AWS_LAMBDA_RUNTIME_API": runtime_api,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            **self.variables,
        }


def failure(kind: str, message: str) -> FunctionResponse:
    """Return the answer that Lambda gives where the runtime itself could not."""
    return FunctionResponse(
        failed=True, payload=json.dumps({"errorType": kind, "errorMessage": message}).encode()
    )


class Environment:
    """One process of a function. It is warm once the runtime has asked for its first invocation.

    Its output goes to the function's log, except for the lines for which `take_line` returns True.
    """

    def __init__(self, function: Function, take_line: Callable[[bytes], bool] | None = None) -> None:
        self.function = function
        self._take_line = take_line
        self._api = RuntimeApiServer(function.arn)
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process and wait until it is warm; raise InitFailed if the handler cannot be loaded."""
        address = await self._api.open()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "awslambdaric",
            self.function.handler,
            cwd=self.function.code,
            env=self.function.environment(address),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._watcher = asyncio.create_task(self._watch(self._process))
        try:
            async with asyncio.timeout(_INIT_TIMEOUT_S):
                await asyncio.shield(self._api.ready)
        except TimeoutError:
            await self.stop()
            raise InitFailed(f"the handler was not loaded within {_INIT_TIMEOUT_S:.0f} s") from None
        except (InitFailed, asyncio.CancelledError):
            await self.stop()
            raise

    async def invoke(self, event: bytes, request_id: str) -> FunctionResponse:
        """Run one invocation; on a timeout, kill the process and raise TimedOut."""
        try:
            answer = await self._api.invoke(event, self.function.timeout_s, request_id)
        except TimeoutError:
            await self.stop()
            raise TimedOut(
                f"{self.function.name} did not answer within {self.function.timeout_s} s"
            ) from None
        if answer is TOO_LARGE:
            await self.stop()
        return answer

    async def stop(self) -> None:
        """Kill the process and everything that it started."""
        if self._process and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._watcher:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._watcher), _EXIT_TIMEOUT_S)
        else:
            await self._api.close()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout  # noqa: S101 - for the type checker: it is a pipe
        printed = asyncio.create_task(copy_output(process.stdout, self.function.log, self._take_line))
        code = await process.wait()
        # The pipe stays open if a child process outlives this one, so the wait for the rest is bounded.
        await asyncio.wait([printed], timeout=_EXIT_TIMEOUT_S / 2)
        printed.cancel()
        reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        message = f"the runtime of {self.function.name} ended with {reason}"
        self._api.fail(failure("Runtime.ExitError", message), message)
        await self._api.close()
