"""Execution environments of a function: one process each, one invocation at a time, as on Lambda."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from keylane_local.runtime_api import TOO_LARGE, Answer, InitError, RuntimeApi

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)
REGION = "us-east-1"
_INIT_TIMEOUT_S = 10.0
_EXIT_TIMEOUT_S = 5.0
# Where awslambdaric has no native module, its stand-in comes last on the path.
_FALLBACK = {"darwin": (str(Path(__file__).parent / "fallback"),)}
# What a function is given of the front's own environment: its settings, and what any process needs.
_PASSED = ("PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "VIRTUAL_ENV")


class Throttled(Exception):
    """All environments are busy, and too many requests wait already: Lambda's 429."""


class TimedOut(Exception):
    """The function did not answer in its time; its environment has been ended."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function as a template describes it: code root, handler, layer, bounds, variables."""

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
        """The function's name as its context object shows it."""
        return f"arn:aws:lambda:{REGION}:000000000000:function:{self.name}"

    def environment(self, runtime_api: str) -> dict[str, str]:
        """Return the variables that Lambda sets, and the function's own."""
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


def failure(kind: str, message: str) -> Answer:
    """Return the answer that Lambda gives where the runtime itself could not."""
    return Answer(failed=True, payload=json.dumps({"errorType": kind, "errorMessage": message}).encode())


class Environment:
    """One process of a function, warm once it has asked for its first invocation."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._api = RuntimeApi(function.arn)
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process, once it has been started."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process and wait until it is warm; raise InitError where it does not get there."""
        address = await self._api.open()
        with self.function.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "awslambdaric",
                self.function.handler,
                cwd=self.function.code,
                env=self.function.environment(address),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._watcher = asyncio.create_task(self._watch(self._process))
        try:
            async with asyncio.timeout(_INIT_TIMEOUT_S):
                await asyncio.shield(self._api.ready)
        except TimeoutError:
            await self.stop()
            raise InitError(f"the handler is not loaded after {_INIT_TIMEOUT_S:.0f} s") from None
        except (InitError, asyncio.CancelledError):
            await self.stop()
            raise

    async def invoke(self, event: bytes, request_id: str) -> Answer:
        """Run one invocation; raise TimedOut, and end the process, where it takes too long."""
        try:
            answer = await self._api.invoke(event, self.function.timeout_s, request_id)
        except TimeoutError:
            await self.stop()
            raise TimedOut(f"{self.function.name} took more than {self.function.timeout_s} s") from None
        if answer is TOO_LARGE:
            await self.stop()
        return answer

    async def stop(self) -> None:
        """End the process, and whatever it started, at once."""
        if self._process and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._watcher:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._watcher), _EXIT_TIMEOUT_S)
        else:
            await self._api.close()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        message = f"the runtime of {self.function.name} ended with {reason}"
        self._api.fail(failure("Runtime.ExitError", message), message)
        await self._api.close()


class Pool:
    """The environments of one function: made on demand up to a bound, kept warm, replaced when they end."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._all: set[Environment] = set()
        self._idle: list[Environment] = []
        self._waiting: deque[asyncio.Future[Environment]] = deque()
        self._starting: set[asyncio.Task[None]] = set()

    @property
    def environments(self) -> list[Environment]:
        """The environments that are warm or busy."""
        return list(self._all)

    async def warm(self) -> None:
        """Start one environment ahead of the first request; raise InitError where the handler won't load."""
        environment = Environment(self.function)
        await environment.start()
        self._all.add(environment)
        self._release(environment)

    async def invoke(self, event: bytes, request_id: str) -> Answer:
        """Run one invocation in an idle environment, or the first that becomes so.

        Raises Throttled, TimedOut.
        """
        try:
            environment = await self._acquire()
        except InitError as error:
            return failure("Runtime.InitError", str(error))
        try:
            return await environment.invoke(event, request_id)
        finally:
            self._release(environment)

    async def close(self) -> None:
        """End all environments."""
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(environment.stop() for environment in self._all))

    async def _acquire(self) -> Environment:
        while self._idle:
            environment = self._idle.pop()  # the last used is the warmest
            if environment.alive:
                return environment
            self._all.discard(environment)
        if len(self._waiting) >= self.function.max_waiting:
            raise Throttled(f"{len(self._waiting)} requests wait for {self.function.name} already")
        waiter: asyncio.Future[Environment] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._grow_as_needed()
        try:
            async with asyncio.timeout(self.function.max_wait_s):
                return await waiter
        except BaseException as error:
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiter)
            if waiter.done() and not waiter.cancelled() and not waiter.exception():
                self._release(waiter.result())  # given in the moment it gave up: the next one's
            if isinstance(error, TimeoutError):
                raise Throttled(f"no environment of {self.function.name} became free") from None
            raise

    def _release(self, environment: Environment) -> None:
        if not environment.alive:
            self._all.discard(environment)
            if self._waiting or not (self._all or self._starting):
                self._grow()
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(environment)
                return
        self._idle.append(environment)

    def _grow_as_needed(self) -> None:
        if len(self._waiting) > len(self._starting):
            self._grow()

    def _grow(self) -> None:
        if len(self._all) + len(self._starting) < self.function.max_environments:
            task = asyncio.create_task(self._start())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _start(self) -> None:
        environment = Environment(self.function)
        try:
            await environment.start()
        except InitError as error:
            self._settle()
            _log.error("%s: no environment: %s", self.function.name, error)
            while self._waiting:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_exception(error)
                    break
            self._grow_as_needed()
            return
        self._settle()
        self._all.add(environment)
        self._release(environment)

    def _settle(self) -> None:
        """Count the current task no longer as one that starts an environment."""
        if task := asyncio.current_task():
            self._starting.discard(task)
