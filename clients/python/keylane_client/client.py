"""The blocking and the asynchronous client. Each method is stated once, and made for both.

`get = result_of(TopicCalls.get)` takes what `TopicCalls.get` takes. `Topic.get` returns the conversation's
result, `AsyncTopic.get` an awaitable of it: `Method` says so to type checkers, `help` shows it.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload

import httpx

from keylane_client.answers import V
from keylane_client.calls import ServiceCalls, TopicCalls, ViewCalls
from keylane_client.context import ClientOptions, Context
from keylane_client.drivers import AsyncDriver, BlockingDriver, http_options
from keylane_client.finding import FindCalls
from keylane_client.snapshots import SnapshotCalls
from keylane_client.synced_topics import AsyncSyncedTopic, SyncedTopic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
    from types import TracebackType

    from typing_extensions import Self

    from keylane_client.answers import Absent, FoundPage, HistoryEntry, Position, Record, TopicVector
    from keylane_client.conditions import Conditions, Wanted
    from keylane_client.synced_records import OnChange
    from keylane_client.wire import AskedKey, Conversation, Key, Moment, Stream

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


class _FindMethods(WithDriver[D, FindCalls]):
    # As with the methods of topics: what it gives depends on the model.
    if not TYPE_CHECKING:
        page = result_of(FindCalls.page)
    count = result_of(FindCalls.count)
    prefix = deriving(FindCalls.prefix)
    order_by = deriving(FindCalls.order_by)
    limit = deriving(FindCalls.limit)
    page_size = deriving(FindCalls.page_size)
    min_position = deriving(FindCalls.min_position)


class Find(_FindMethods[BlockingDriver], Generic[V]):
    """Records that are found by their fields: `for record in topic.find(...)` reads all pages."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Record[V]]: ...
        def page(self, cursor: str | None = None) -> FoundPage[V]: ...

    else:
        __iter__ = items_of(FindCalls.records)


class AsyncFind(_FindMethods[AsyncDriver], Generic[V]):
    """Records that are found by their fields: `async for record in topic.find(...)` reads all pages."""

    if TYPE_CHECKING:

        def __aiter__(self) -> AsyncIterator[Record[V]]: ...
        def page(self, cursor: str | None = None) -> Awaitable[FoundPage[V]]: ...

    else:
        __aiter__ = items_of(FindCalls.records)


class _SnapshotMethods(WithDriver[D, SnapshotCalls]):
    @property
    def at(self) -> TopicVector | None:
        """Return where the records are, once the last one is read; before that where the reading began."""
        return self._calls.reader.at

    @property
    def is_over(self) -> bool:
        """Return whether all records have been read."""
        return self._calls.reader.is_over

    @property
    def lanes(self) -> int:
        """Return how many lanes there are; 0 before the first one is read."""
        return self._calls.reader.lanes

    @property
    def lanes_read(self) -> int:
        """Return how many lanes have been read."""
        return self._calls.reader.lanes_read

    @property
    def next_offset(self) -> int:
        """Return up to where the lane of the last record is read: it has all of its partition below this."""
        return self._calls.reader.next_offset

    parts = items_of(SnapshotCalls.parts)
    part = deriving(SnapshotCalls.part)


class Snapshot(_SnapshotMethods[BlockingDriver], Generic[V]):
    """All records of a topic: `for record in topic.snapshot()` reads them, then `at` says where they are."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Record[V]]: ...

    else:
        __iter__ = items_of(SnapshotCalls.records)


class AsyncSnapshot(_SnapshotMethods[AsyncDriver], Generic[V]):
    """All records of a topic, as `Snapshot` has them, with `async for`."""

    if TYPE_CHECKING:

        def __aiter__(self) -> AsyncIterator[Record[V]]: ...

    else:
        __aiter__ = items_of(SnapshotCalls.records)


class _TopicMethods(WithDriver[D, TopicCalls]):
    # What these give depends on the topic's model, which `Method` cannot say: Topic and AsyncTopic do.
    if not TYPE_CHECKING:
        __getitem__ = result_of(TopicCalls.read)
        get = result_of(TopicCalls.get)
        get_many = result_of(TopicCalls.get_many)
        scan = items_of(TopicCalls.scan)
        find = leading_to(TopicCalls.find, Find, AsyncFind)
        history = items_of(TopicCalls.history)
        watch = items_of(TopicCalls.watch)
        snapshot = leading_to(TopicCalls.snapshot, Snapshot, AsyncSnapshot)
        sync = leading_to(TopicCalls.sync, SyncedTopic, AsyncSyncedTopic)
    contains = result_of(TopicCalls.contains)
    put = result_of(TopicCalls.put)
    delete = result_of(TopicCalls.delete)
    push = result_of(TopicCalls.push)
    keys = items_of(TopicCalls.keys)
    count = result_of(TopicCalls.count)
    log = items_of(TopicCalls.log)
    tail = items_of(TopicCalls.tail)
    layout = result_of(TopicCalls.layout)
    at = deriving(TopicCalls.at)
    reading = deriving(TopicCalls.reading)
    # A topic has keys without end: without this, `for` would try 0, 1, 2, ...
    __iter__ = None

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self._calls.name


class Topic(_TopicMethods[BlockingDriver], Generic[V]):
    """One topic. `topic[key]` is the key's record, or raises KeyAbsent, which is a KeyError.

    V: what its values are, the `model` with which it was made.
    """

    def __contains__(self, key: AskedKey) -> bool:
        """Return whether the key has a record, without reading its value."""
        return self.contains(key)

    if TYPE_CHECKING:

        def __getitem__(self, key: AskedKey) -> Record[V]: ...
        def get(
            self,
            key: AskedKey,
            *,
            min_position: Position | None = None,
            wait_s: float | None = None,
            if_match: Record[V] | Position | None = None,
            known: Record[V] | None = None,
        ) -> Record[V] | None: ...
        def get_many(
            self, keys: Iterable[AskedKey], *, atomic: bool = False
        ) -> dict[Key, Record[V] | None]: ...
        def scan(
            self,
            *,
            prefix: Key | None = None,
            start: Key | None = None,
            stop: Key | None = None,
            page_size: int | None = None,
        ) -> Iterator[Record[V]]: ...
        def find(self, conditions: Conditions | None = None, /, **fields: Wanted) -> Find[V]: ...
        def history(
            self,
            key: AskedKey,
            *,
            start: Moment | None = None,
            stop: Moment | None = None,
            page_size: int | None = None,
        ) -> Iterator[HistoryEntry[V]]: ...
        def watch(self, key: AskedKey, *, wait_s: float = 20.0) -> Iterator[Record[V] | Absent]: ...
        def snapshot(self, *, prefix: Key | None = None, where: Conditions | None = None) -> Snapshot[V]: ...
        def sync(
            self,
            *,
            prefix: Key | None = None,
            where: Conditions | None = None,
            on_change: OnChange | None = None,
        ) -> SyncedTopic[V]: ...


class AsyncTopic(_TopicMethods[AsyncDriver], Generic[V]):
    """One topic. `await topic[key]` is the key's record, or raises KeyAbsent, which is a KeyError.

    V: what its values are, the `model` with which it was made.
    """

    # `in` cannot be awaited: `await topic.contains(key)` can.
    __contains__ = None

    if TYPE_CHECKING:

        def __getitem__(self, key: AskedKey) -> Awaitable[Record[V]]: ...
        def get(
            self,
            key: AskedKey,
            *,
            min_position: Position | None = None,
            wait_s: float | None = None,
            if_match: Record[V] | Position | None = None,
            known: Record[V] | None = None,
        ) -> Awaitable[Record[V] | None]: ...
        def get_many(
            self, keys: Iterable[AskedKey], *, atomic: bool = False
        ) -> Awaitable[dict[Key, Record[V] | None]]: ...
        def scan(
            self,
            *,
            prefix: Key | None = None,
            start: Key | None = None,
            stop: Key | None = None,
            page_size: int | None = None,
        ) -> AsyncIterator[Record[V]]: ...
        def find(self, conditions: Conditions | None = None, /, **fields: Wanted) -> AsyncFind[V]: ...
        def history(
            self,
            key: AskedKey,
            *,
            start: Moment | None = None,
            stop: Moment | None = None,
            page_size: int | None = None,
        ) -> AsyncIterator[HistoryEntry[V]]: ...
        def watch(self, key: AskedKey, *, wait_s: float = 20.0) -> AsyncIterator[Record[V] | Absent]: ...
        def snapshot(
            self, *, prefix: Key | None = None, where: Conditions | None = None
        ) -> AsyncSnapshot[V]: ...
        def sync(
            self,
            *,
            prefix: Key | None = None,
            where: Conditions | None = None,
            on_change: OnChange | None = None,
        ) -> AsyncSyncedTopic[V]: ...


class _ViewMethods(WithDriver[D, ViewCalls]):
    windows = items_of(ViewCalls.windows)
    scan = items_of(ViewCalls.scan)
    describe = result_of(ViewCalls.describe)


class View(_ViewMethods[BlockingDriver]):
    """One view."""


class AsyncView(_ViewMethods[AsyncDriver]):
    """One view, with `await` and `async for`."""


class _ServiceMethods(WithDriver[D, ServiceCalls]):
    topics = items_of(ServiceCalls.topics)
    views = result_of(ServiceCalls.views)
    join = result_of(ServiceCalls.join)
    health = result_of(ServiceCalls.health)
    # As with the methods of topics: what it gives depends on the model.
    if not TYPE_CHECKING:
        topic = leading_to(ServiceCalls.topic, Topic, AsyncTopic)
    view = leading_to(ServiceCalls.view, View, AsyncView)


class _BlockingTopics:
    if TYPE_CHECKING:

        @overload
        def topic(self, name: str) -> Topic[Any]: ...
        @overload
        def topic(self, name: str, model: type[V]) -> Topic[V]: ...
        def topic(self, name: str, model: type | None = None) -> Topic[Any]: ...


class _AsyncTopics:
    if TYPE_CHECKING:

        @overload
        def topic(self, name: str) -> AsyncTopic[Any]: ...
        @overload
        def topic(self, name: str, model: type[V]) -> AsyncTopic[V]: ...
        def topic(self, name: str, model: type | None = None) -> AsyncTopic[Any]: ...


class Batching(_ServiceMethods[BlockingDriver], _BlockingTopics):
    """A client, or a session, whose threads ask together what they ask within a millisecond."""


class AsyncBatching(_ServiceMethods[AsyncDriver], _AsyncTopics):
    """A client, or a session, whose tasks ask together what they ask at once."""


class Session(_ServiceMethods[BlockingDriver], _BlockingTopics):
    """A client whose reads of topics always have its own writes.

    It keeps one position for each key that it wrote, and sends or compares them. Reads of views, joins and
    reads as of a moment do not wait, and neither does a read for a record in the write-ahead log.
    """

    batching = leading_to(ServiceCalls.batching, Batching, AsyncBatching)


class AsyncSession(_ServiceMethods[AsyncDriver], _AsyncTopics):
    """As `Session`, with `await` and `async for`."""

    batching = leading_to(ServiceCalls.batching, Batching, AsyncBatching)


class _ClientMethods(_ServiceMethods[D]):
    session = leading_to(ServiceCalls.session, Session, AsyncSession)
    batching = leading_to(ServiceCalls.batching, Batching, AsyncBatching)


class Client(_ClientMethods[BlockingDriver], _BlockingTopics):
    """A client of the API at `url`, for use in a `with` statement, and by any number of threads."""

    def __init__(
        self,
        url: str,
        auth: httpx.Auth | None = None,
        *,
        options: ClientOptions | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Raises InvalidArgument for what is not the URL of an API. Nothing is sent."""
        options = options or ClientOptions()
        given = http_options(url, auth, options)
        driver = BlockingDriver(lambda: httpx.Client(**given, transport=transport), options)
        super().__init__(driver, ServiceCalls(Context(options)))

    def close(self) -> None:
        """Close the connections."""
        self._driver.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_ClientMethods[AsyncDriver], _AsyncTopics):
    """A client of the API at `url`, for use in an `async with` statement, in one event loop."""

    def __init__(
        self,
        url: str,
        auth: httpx.Auth | None = None,
        *,
        options: ClientOptions | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises InvalidArgument for what is not the URL of an API. Nothing is sent."""
        options = options or ClientOptions()
        given = http_options(url, auth, options)
        driver = AsyncDriver(lambda: httpx.AsyncClient(**given, transport=transport), options)
        super().__init__(driver, ServiceCalls(Context(options)))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._driver.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
