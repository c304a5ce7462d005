"""One call at a time for all requests that want its result: those that come meanwhile wait for it."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from keylane_server.greenlets import Suspension, begin

T = TypeVar("T")


class SharedCall(Generic[T]):
    """One call at a time for all requests that want its result at the same time.

    It runs as a request of its own, so that no one of them must wait for it longer than it has time.
    """

    def __init__(self) -> None:
        self._running: _Flight[T] | None = None
        self._next: _Flight[T] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no call runs."""
        return self._running is None

    def join(self, call: Callable[[], T], timeout_s: float) -> T:
        """Return the result of the call that runs, or make it. Raises TimeoutError."""
        if self._running is None:
            self._start(_Flight(call))
        return self._running.wait(timeout_s)  # type: ignore[union-attr]  # _start set it

    def join_next(self, call: Callable[[], T], timeout_s: float) -> T:
        """Return the result of a call that begins from now on: a running one may have read before.

        Raises TimeoutError.
        """
        if self._running is None or not self._running.has_begun:
            return self.join(call, timeout_s)
        if self._next is None:
            self._next = _Flight(call)
        return self._next.wait(timeout_s)

    def _start(self, flight: "_Flight[T]") -> None:
        self._running = flight
        asyncio.get_running_loop().call_soon(self._begin, flight)

    def _begin(self, flight: "_Flight[T]") -> None:
        flight.has_begun = True
        begin(flight.call, self._end)

    def _end(self, result: T | None, error: BaseException | None) -> None:
        ended, self._running = self._running, None
        following, self._next = self._next, None
        if following is not None:
            self._start(following)
        if ended is not None:
            ended.end(result, error)


class _Flight(Generic[T]):
    """A shared call: its result, and those who wait for it."""

    __slots__ = ("_error", "_result", "_waiting", "call", "has_begun")

    def __init__(self, call: Callable[[], T]) -> None:
        self.call = call
        self.has_begun = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._waiting: set[Suspension[bool]] = set()

    def wait(self, timeout_s: float) -> T:
        suspension: Suspension[bool] = Suspension()
        self._waiting.add(suspension)
        timer = asyncio.get_running_loop().call_later(max(timeout_s, 0), suspension.resume, False)
        try:
            is_in_time = suspension.wait()
        finally:
            timer.cancel()
            self._waiting.discard(suspension)
        if not is_in_time:
            raise TimeoutError
        if self._error is not None:
            raise again(self._error)
        result: T = self._result
        return result

    def end(self, result: T | None, error: BaseException | None) -> None:
        self._result, self._error = result, error
        for suspension in list(self._waiting):
            suspension.resume(True)


def again(error: BaseException) -> BaseException:
    """Return an error like this one, for another request: one raised twice would collect both traces."""
    copy = error.__class__.__new__(error.__class__)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__ or error
    return copy
