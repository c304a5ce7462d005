"""The environments of one function: made on demand, kept warm, replaced when they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING

from keylane_local.front.environments import Environment, Function, failure
from keylane_local.front.runtime_api import InitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane_local.front.runtime_api import Answer

_log = logging.getLogger(__name__)


class Throttled(Exception):
    """All environments are busy, and too many requests wait already: Lambda's 429."""


class Pool:
    """At most `max_environments`; beyond that requests wait, beyond `max_waiting` they are refused.

    `take`: see `Environment`.
    """

    def __init__(self, function: Function, take: Callable[[bytes], bool] | None = None) -> None:
        self.function = function
        self._take = take
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
        environment = Environment(self.function, self._take)
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
        environment = Environment(self.function, self._take)
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
