"""Public methods from the methods that build conversations: with their signatures, and without their bodies.

`get = blocking(TopicCalls.get)` is a method of a class that has a driver: it takes what `TopicCalls.get`
takes, and returns the conversation's result.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeVar

from typing_extensions import ParamSpec

from keylane_client.drivers import AsyncDriver, BlockingDriver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from keylane_client.wire import Conversation, Stream

C = TypeVar("C")
D = TypeVar("D")
T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound="Callable[..., Any]")
B = TypeVar("B", bound="Bound[Any, Any]")


class Bound(Generic[D, C]):
    """Calls, and the driver that carries them out."""

    def __init__(self, driver: D, calls: C) -> None:
        self._driver = driver
        self._calls = calls

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self._calls, 'name', '')!r})"


class Blocking(Bound[BlockingDriver, C]):
    """Something whose calls are carried out by a blocking driver."""


class NonBlocking(Bound[AsyncDriver, C]):
    """Something whose calls are carried out by an asynchronous driver."""


def blocking(
    method: Callable[Concatenate[C, P], Conversation[T]],
) -> Callable[Concatenate[Blocking[C], P], T]:
    """Return a method that carries out the conversation."""

    @wraps(method)
    def run(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._driver.run(method(self._calls, *args, **kwargs))

    return _document(run, "{}")


def iterating(
    method: Callable[Concatenate[C, P], Stream[T]],
) -> Callable[Concatenate[Blocking[C], P], Iterator[T]]:
    """Return a method that gives the stream's items."""

    @wraps(method)
    def run(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._driver.iterate(method(self._calls, *args, **kwargs))

    return _document(run, "Iterator[{}]")


def awaiting(
    method: Callable[Concatenate[C, P], Conversation[T]],
) -> Callable[Concatenate[NonBlocking[C], P], Awaitable[T]]:
    """Return a method that carries out the conversation once it is awaited."""

    @wraps(method)
    def run(self: NonBlocking[C], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self._driver.run(method(self._calls, *args, **kwargs))

    return _document(run, "Awaitable[{}]")


def async_iterating(
    method: Callable[Concatenate[C, P], Stream[T]],
) -> Callable[Concatenate[NonBlocking[C], P], AsyncIterator[T]]:
    """Return a method that gives the stream's items to `async for`."""

    @wraps(method)
    def run(self: NonBlocking[C], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._driver.iterate(method(self._calls, *args, **kwargs))

    return _document(run, "AsyncIterator[{}]")


def deriving(method: Callable[Concatenate[C, P], C]) -> Callable[Concatenate[B, P], B]:
    """Return a method that gives something like this, with other calls, and sends nothing."""

    @wraps(method)
    def derive(self: B, /, *args: P.args, **kwargs: P.kwargs) -> B:
        return type(self)(self._driver, method(self._calls, *args, **kwargs))

    return derive


def _document(run: F, shape: str) -> F:
    """Let the function's signature, which `help` shows, name what it returns."""
    signature = inspect.signature(run)
    result = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    run.__signature__ = signature.replace(return_annotation=shape.format(result))  # type: ignore[attr-defined]
    return run
