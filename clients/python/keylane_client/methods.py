"""Methods that are stated once, and made for the blocking and the asynchronous driver.

`get = result_of(TopicCalls.get)` takes what `TopicCalls.get` takes. `Topic.get` returns the conversation's
result, `AsyncTopic.get` an awaitable of it: `Method` says so to type checkers, `help` shows it.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload

from keylane_client.drivers import AsyncDriver, BlockingDriver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from keylane_client.wire import Conversation, Stream

    Result = tuple[str, Callable[[Any, Any], Any]]

D = TypeVar("D", bound="BlockingDriver | AsyncDriver")
C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")
A = TypeVar("A")
W = TypeVar("W", bound="WithDriver[Any, Any]")


class WithDriver(Generic[D, C]):
    """Calls, and the driver that carries them out."""

    def __init__(self, driver: D, calls: C) -> None:
        self._driver = driver
        self._calls = calls

    def __init_subclass__(cls) -> None:
        """Make the methods, in a class that says which driver it has."""
        super().__init_subclass__()
        named = [driver for base in vars(cls).get("__orig_bases__", ()) for driver in get_args(base)]
        for driver in {BlockingDriver, AsyncDriver}.intersection(named):
            for name in dir(cls):
                if isinstance(method := getattr(cls, name), Method):
                    setattr(cls, name, method.made_for(driver))

    def __repr__(self) -> str:
        named = [self._calls.name] if hasattr(self._calls, "name") else []
        return f"{type(self).__name__}({', '.join(map(repr, [*named, self._driver.address]))})"


class Method(Generic[C, P, B, A]):
    """A method that returns a B with the blocking driver, and an A with the asynchronous one.

    For each: the result as `help` shows it, and what makes it of the driver and what the source returns.
    """

    def __init__(
        self, source: Callable[Concatenate[C, P], Any], blocking: Result, asynchronous: Result
    ) -> None:
        self._source = source
        self._results = {BlockingDriver: blocking, AsyncDriver: asynchronous}

    def made_for(self, driver: type[BlockingDriver | AsyncDriver]) -> Callable[..., Any]:
        """Return it as a function, with the source's docstring and signature."""
        source, (shape, finish) = self._source, self._results[driver]

        @wraps(source)
        def method(self: WithDriver[Any, C], /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return finish(self._driver, source(self._calls, *args, **kwargs))

        signature = inspect.signature(source)
        result = signature.return_annotation.partition("[")[2].removesuffix("]")
        method.__signature__ = signature.replace(  # type: ignore[attr-defined]
            return_annotation=shape.format(result)
        )
        return method

    if TYPE_CHECKING:

        @overload
        def __get__(
            self, instance: None, owner: type[WithDriver[BlockingDriver, C]]
        ) -> Callable[Concatenate[WithDriver[BlockingDriver, C], P], B]: ...
        @overload
        def __get__(
            self, instance: None, owner: type[WithDriver[AsyncDriver, C]]
        ) -> Callable[Concatenate[WithDriver[AsyncDriver, C], P], A]: ...
        @overload
        def __get__(self, instance: WithDriver[BlockingDriver, C], owner: object) -> Callable[P, B]: ...
        @overload
        def __get__(self, instance: WithDriver[AsyncDriver, C], owner: object) -> Callable[P, A]: ...
        def __get__(self, instance: Any, owner: Any) -> Any: ...


def result_of(source: Callable[Concatenate[C, P], Conversation[T]]) -> Method[C, P, T, Awaitable[T]]:
    """Return a method that carries out the conversation."""
    return Method(source, ("{}", BlockingDriver.run), ("Awaitable[{}]", AsyncDriver.run))


def items_of(source: Callable[Concatenate[C, P], Stream[T]]) -> Method[C, P, Iterator[T], AsyncIterator[T]]:
    """Return a method that gives the stream's items."""
    return Method(
        source, ("Iterator[{}]", BlockingDriver.iterate), ("AsyncIterator[{}]", AsyncDriver.iterate)
    )


def leading_to(
    source: Callable[Concatenate[C, P], Any], blocking: type[B], asynchronous: type[A]
) -> Method[C, P, B, A]:
    """Return a method that gives further calls to the same driver, and sends nothing."""
    return Method(source, (blocking.__name__, blocking), (asynchronous.__name__, asynchronous))


def deriving(source: Callable[Concatenate[C, P], C]) -> Callable[Concatenate[W, P], W]:
    """Return a method that gives something like this, with other calls, and sends nothing."""

    @wraps(source)
    def derive(self: W, /, *args: P.args, **kwargs: P.kwargs) -> W:
        return type(self)(self._driver, source(self._calls, *args, **kwargs))

    return derive
