"""Requests as greenlets: synchronous code that waits in an asyncio loop.

The handlers, use cases and adapters of the layer are synchronous. Here each request runs in a greenlet of its
own. What would block calls `Suspension.wait`, which switches to the loop; when the loop has the result, it
switches back. SQLAlchemy's asyncio extension does the same (`sqlalchemy.util.concurrency`). Between two
suspensions a request runs alone, so only state that a request reads before one and uses after it can change.

All of this is for the loop's thread.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

T = TypeVar("T")
End: TypeAlias = Callable[[T | None, BaseException | None], None]
"""Takes the result of a request, or its error."""
BeforeWaiting: TypeAlias = Callable[[float], float]


class RequestBounds(NamedTuple):
    """What bounds a request, and its parts that run at the same time.

    `before_waiting` is called each time before it waits for what others have to do, with a time, and returns
    for how long it waits; what it raises ends the request. `replies`: the RequestReplies of one that reads
    many records, else None.
    """

    before_waiting: BeforeWaiting | None = None
    replies: Any = None


NO_BOUNDS = RequestBounds()

IDLE_GREENLETS = 256
"""How many are kept for the next requests, 16 KiB each."""


class RequestCancelled(Exception):
    """The request's client has gone, and nobody waits for the answer."""


class RequestGreenlet(greenlet):  # type: ignore[misc]  # greenlet has no types
    """Runs requests, one after the other: a new greenlet would map and unmap memory for its stack."""

    def __init__(self) -> None:
        super().__init__(self._run_requests)
        self.is_cancelled = False
        self.pausing: Suspension[None] | None = None
        self.bounds = NO_BOUNDS

    def cancel(self) -> None:
        """End the request at its pause, or at its next one: its client has gone. For reads that wait."""
        self.is_cancelled = True
        if self.pausing is not None:
            self.pausing.resume(None)

    def _run_requests(self, function: Callable[[], Any], end: End[Any], *, is_cancellable: bool) -> None:
        while True:
            try:
                result = function()
            except GreenletExit:
                if not self.is_cancelled:
                    raise  # the greenlet is deleted
                end(None, RequestCancelled())
            except BaseException as error:  # noqa: BLE001 (whatever it is, somebody waits for it)
                end(None, error)
            else:
                end(result, None)
            if is_cancellable or len(_idle) >= IDLE_GREENLETS:
                return  # a late `cancel` must not meet the next request
            function = end = result = None  # type: ignore[assignment]  # it may be idle for long
            self.bounds = NO_BOUNDS
            _idle.append(self)
            assert self.parent is not None  # noqa: S101 - for the type checker
            function, end = self.parent.switch()


_idle: list[RequestGreenlet] = []
"""Greenlets without a request."""


class Suspension(Generic[T]):
    """One wait of a request: `wait` suspends it until `resume` or `fail`."""

    __slots__ = ("_error", "_greenlet", "_is_over", "_result")

    def __init__(self) -> None:
        self._greenlet: greenlet | None = None
        self._is_over = False
        self._result: T
        self._error: BaseException | None = None

    def wait(self) -> T:
        """Return the result, or raise the error, that ends the wait."""
        if not self._is_over:
            self._greenlet = current_request()
            loop_greenlet = self._greenlet.parent
            assert loop_greenlet is not None  # noqa: S101 - for the type checker
            while not self._is_over:
                loop_greenlet.switch()
        if self._error is not None:
            raise self._error
        return self._result

    @property
    def is_over(self) -> bool:
        """Whether there is a result, or an error."""
        return self._is_over

    def resume(self, result: T) -> None:
        """End the wait. From a callback of the loop, the request continues at once."""
        if not self._is_over:
            self._result = result
            self._end()

    def fail(self, error: BaseException) -> None:
        """End the wait by an error."""
        if not self._is_over:
            self._error = error
            self._end()

    def _end(self) -> None:
        self._is_over = True
        waiting = self._greenlet
        if waiting is None:
            return
        if isinstance(getcurrent(), RequestGreenlet):
            # A request that switched to another one would never be switched to again.
            asyncio.get_running_loop().call_soon(waiting.switch)
        else:
            waiting.switch()


class Arrival:
    """One wait of a coroutine, which `await`s the future until `resume`, as a request its suspension."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def resume(self, _: None) -> None:
        """End the wait."""
        if not self.future.done():
            self.future.set_result(None)


def current_request() -> RequestGreenlet:
    """Return the greenlet of the request that calls."""
    found = getcurrent()
    if not isinstance(found, RequestGreenlet):
        raise TypeError("only a request can wait: this code runs in the event loop, or in a thread")
    return found


def bounds_of_request() -> RequestBounds:
    """Return the bounds of the request that calls; none of other code."""
    found = getcurrent()
    return found.bounds if isinstance(found, RequestGreenlet) else NO_BOUNDS


def begin(
    function: Callable[[], T],
    end: End[T],
    *,
    is_cancellable: bool = False,
    bounds: RequestBounds = NO_BOUNDS,
) -> RequestGreenlet:
    """Run a function as a request; call `end` with its result or its error. From the loop alone.

    The greenlet goes on to other requests, unless this one `is_cancellable`.
    """
    begun = _idle.pop() if _idle and not is_cancellable else None
    if begun is not None and begun.parent is getcurrent():
        begun.bounds = bounds
        begun.switch(function, end)
        return begun
    begun = RequestGreenlet()  # none is idle in this thread
    begun.bounds = bounds
    begun.switch(function, end, is_cancellable=is_cancellable)
    return begun


def begin_awaited(
    function: Callable[[], T],
    *,
    is_cancellable: bool = False,
    bounds: RequestBounds = NO_BOUNDS,
) -> tuple[RequestGreenlet, asyncio.Future[T]]:
    """Run a function as a request; return its greenlet, as `begin`, and the future of its result."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def end(result: Any, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    begun = begin(function, end, is_cancellable=is_cancellable, bounds=bounds)
    return begun, future


async def run_request(function: Callable[[], T]) -> T:
    """Run a function as a request and wait for its result."""
    _, result = begin_awaited(function)
    return await result


def pause_s(seconds: float) -> None:
    """Suspend the request for a time; in a thread, block. Raises GreenletExit once its client has gone."""
    request = getcurrent()
    if not isinstance(request, RequestGreenlet):
        time.sleep(seconds)
        return
    if request.is_cancelled:
        raise GreenletExit
    suspension: Suspension[None] = Suspension()
    timer = asyncio.get_running_loop().call_later(seconds, suspension.resume, None)
    request.pausing = suspension
    try:
        suspension.wait()
    finally:
        request.pausing = None
        timer.cancel()
    if request.is_cancelled:
        raise GreenletExit


def await_s(seconds: float) -> None:
    """As `pause_s`, for what others have to do. Raises what `before_waiting` raises, too."""
    request = getcurrent()
    if isinstance(request, RequestGreenlet) and request.bounds.before_waiting is not None:
        seconds = request.bounds.before_waiting(seconds)
    pause_s(seconds)


def give_way() -> None:
    """Suspend the request until its turn: in a tick of the loop one request goes on, whoever else gives way.

    So a read of one key waits for a part of a page, and not for 16 pages of large values.
    """
    if not isinstance(getcurrent(), RequestGreenlet):
        return
    turn: Suspension[None] = Suspension()
    if not _giving_way:
        asyncio.get_running_loop().call_soon(_go_on)
    _giving_way.append(turn)
    turn.wait()


def _go_on() -> None:
    turn = _giving_way.popleft()
    if _giving_way:
        asyncio.get_running_loop().call_soon(_go_on)
    turn.resume(None)


_giving_way: deque[Suspension[None]] = deque()
"""Those who wait for their turn. As long as there are any, `_go_on` is to come."""


def call_in_thread(executor: Executor, function: Callable[..., T], *arguments: Any) -> T:
    """Call what blocks in a thread of the executor, and suspend the request until it returns."""
    suspension: Suspension[asyncio.Future[T]] = Suspension()
    future = asyncio.get_running_loop().run_in_executor(executor, function, *arguments)
    future.add_done_callback(suspension.resume)
    return suspension.wait().result()


def call_all(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make calls at the same time, each as a request of its own; return what they return."""
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []
    left = len(calls)
    all_ended: Suspension[None] = Suspension()

    def begin_one(index: int) -> None:
        def end(result: T | None, error: BaseException | None) -> None:
            nonlocal left
            results[index] = result
            if error is not None:
                errors.append(error)
            left -= 1
            if not left:
                asyncio.get_running_loop().call_soon(all_ended.resume, None)

        begin(calls[index], end, bounds=bounds)

    bounds = bounds_of_request()
    loop = asyncio.get_running_loop()
    for index in range(len(calls)):
        loop.call_soon(begin_one, index)
    if calls:
        all_ended.wait()
    if errors:
        raise errors[0]
    return results
