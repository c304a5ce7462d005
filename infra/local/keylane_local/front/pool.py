"""The environments of one function: started on demand, kept warm, replaced when they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING

from keylane_local.front.environments import Environment, Function, failure
from keylane_local.front.runtime_api import InitFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane_local.front.runtime_api import FunctionResponse

_log = logging.getLogger(__name__)


class Throttled(Exception):
    """No environment became free in time, or too many requests wait already: a 429 on Lambda."""


class Pool:
    """At most `max_environments` environments; further requests wait, at most `max_waiting` of them.

    `take_line`: see `Environment`.
    """

    def __init__(self, function: Function, take_line: Callable[[bytes], bool] | None = None) -> None:
        self.function = function
        self._take_line = take_line
        self._all: set[Environment] = set()
        self._idle: list[Environment] = []
        self._waiting: deque[asyncio.Future[Environment]] = deque()
        self._starting: set[asyncio.Task[None]] = set()

    @property
    def environments(self) -> list[Environment]:
        """The environments that are warm or busy."""
        return list(self._all)

    async def warm(self) -> None:
        """Start one environment ahead of requests; raise InitFailed if the handler cannot be loaded."""
        environment = Environment(self.function, self._take_line)
        await environment.start()
        self._all.add(environment)
        self._release(environment)

    async def invoke(self, event: bytes, request_id: str) -> FunctionResponse:
        """Run one invocation in an idle environment, or in the first one that becomes idle.

        Raises Throttled, TimedOut.
        """
        try:
            environment = await self._acquire()
        except InitFailed as error:
            return failure("Runtime.InitError", str(error))
        try:
            return await environment.invoke(event, request_id)
        finally:
            self._release(environment)

    async def close(self) -> None:
        """Kill all environments."""
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(environment.stop() for environment in self._all))

    async def _acquire(self) -> Environment:
        while self._idle:
            environment = self._idle.pop()  # the most recently used: its connections are the freshest
            if environment.alive:
                return environment
            self._all.discard(environment)
        if len(self._waiting) >= self.function.max_waiting:
            raise Throttled(f"{self.function.name}: {len(self._waiting)} requests are waiting already")
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
                self._release(waiter.result())  # it got one just as it gave up: pass it on
            if isinstance(error, TimeoutError):
                raise Throttled(
                    f"{self.function.name}: no environment became free in {self.function.max_wait_s:.0f} s"
                ) from None
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
        environment = Environment(self.function, self._take_line)
        try:
            await environment.start()
        except InitFailed as error:
            self._settle()
            _log.error("%s: an environment did not start: %s", self.function.name, error)
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
        """Stop counting the current task as starting an environment: its start has succeeded or failed."""
        if task := asyncio.current_task():
            self._starting.discard(task)
