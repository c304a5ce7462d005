"""Child processes of the one that serves reads, which answer requests that would harm it.

Two kinds would. Those of `explore` ask librdkafka's admin client, which may abort its process: that was seen
when a broker came back while clusters were described. Those with large bodies hold Python's interpreter while
they are parsed. So there is an explore process and a body parser. Each is started by the first of its
requests, and again by the next one after its end; `child_main` is what they run.

    to the process      size u32, (number, request, target) pickled
    from the process    size u32, (number, response, calls of a MetricSink) pickled

The socket has no name, so nothing but these two processes can write to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from keylane.model.routes import PRODUCE
from keylane_server.admission import Overloaded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.api.http.request import Request
    from keylane.api.http.response import Response
    from keylane.metrics.meter import MetricSink
    from keylane.model.routes import Target

SIZE = struct.Struct(">I")
PROGRAM = "keylane_server.child_main"
REQUESTS_LIMIT = 32
"""Requests of a kind that run and wait: they are slow, and must not take the places of all others."""
START_EVERY_S = 1.0
"""The process is started at most once in this time."""
_log = logging.getLogger("keylane.serve")


class ChildEnded(Exception):
    """The process ended before it answered: a write may have happened."""


class ChildProcess:
    """Starts the process, and passes requests to it, in the loop's thread.

    `work`: what it does, for the log and the process list. `metrics`: for its numbers.
    """

    def __init__(self, work: str, environment: Mapping[str, str], metrics: MetricSink) -> None:
        self._work = work
        self._environment = environment
        self._metrics = metrics
        self._running: _Process | None = None
        self._starting = asyncio.Lock()
        self._start_at_s = 0.0
        self._requests = 0

    async def respond(self, request: Request, target: Target) -> Response[Any]:
        """Answer a request; a read that was left unanswered is sent to the next process, once.

        Raises Overloaded, and ChildEnded for a write.
        """
        if self._requests >= REQUESTS_LIMIT:
            raise Overloaded(f"{self._requests} requests wait for the process that {self._work}")
        self._requests += 1
        is_write = target.function == PRODUCE
        try:
            if not is_write:
                with contextlib.suppress(ChildEnded):
                    return await (await self._process()).respond(request, target)
            return await (await self._process()).respond(request, target)
        except ChildEnded:
            if is_write:
                raise
            raise Overloaded(f"the process that {self._work} has ended") from None
        finally:
            self._requests -= 1

    async def close(self) -> None:
        """End the process; what it does is not waited for."""
        if self._running is not None:
            await self._running.close()

    async def _process(self) -> _Process:
        async with self._starting:
            if self._running is None or self._running.has_ended:
                now_s = time.monotonic()
                if now_s < self._start_at_s:
                    raise Overloaded(f"the process that {self._work} has ended")
                self._start_at_s = now_s + START_EVERY_S
                self._running = await _start(self._work, self._environment, self._metrics)
            return self._running


class _Process:
    """A process that runs, and the requests that wait for it."""

    def __init__(
        self,
        work: str,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        metrics: MetricSink,
    ) -> None:
        self._work = work
        self._process = process
        self._writer = writer
        self._metrics = metrics
        self._waiting: dict[int, asyncio.Future[Response[Any]]] = {}
        self._number = 0
        self._is_closing = False
        self._reading = asyncio.ensure_future(self._read(reader))

    @property
    def has_ended(self) -> bool:
        """Whether nothing can be sent to it any more; that is known before its last answers are read."""
        return self._writer.is_closing()

    async def respond(self, request: Request, target: Target) -> Response[Any]:
        """Answer a request. Raises ChildEnded."""
        if self.has_ended:
            raise ChildEnded
        self._number += 1
        number = self._number
        answered: asyncio.Future[Response[Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        self._writer.write(packed((number, request, target)))
        try:
            return await answered
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """End the process."""
        self._is_closing = True
        self._writer.close()
        await self._reading

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                number, response, calls = pickle.loads(await reader.readexactly(size))  # noqa: S301 (see the module)
                for name, arguments in calls:
                    getattr(self._metrics, name)(*arguments)
                answered = self._waiting.get(number)
                if answered is not None and not answered.done():
                    answered.set_result(response)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writer.close()
            self._process.kill()
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_exception(ChildEnded())
        code = await asyncio.to_thread(self._process.wait)
        if not self._is_closing:
            _log.error(
                "the process that %s ended with %d: the next request starts it again", self._work, code
            )


async def _start(work: str, environment: Mapping[str, str], metrics: MetricSink) -> _Process:
    own, others = socket.socketpair()
    with others:
        process = _open_process(work, environment, others.fileno())
    reader, writer = await asyncio.open_connection(sock=own)
    return _Process(work, process, reader, writer, metrics)


def _open_process(work: str, environment: Mapping[str, str], descriptor: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", PROGRAM, str(descriptor), work],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        pass_fds=(descriptor,),
        # A terminal sends SIGINT to all processes of a session: this one still has requests to answer.
        start_new_session=True,
    )


def packed(message: object) -> bytes:
    """Return a message with its size before it."""
    data = pickle.dumps(message)
    return SIZE.pack(len(data)) + data
