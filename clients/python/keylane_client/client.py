"""The blocking and the asynchronous client, its sessions and views. How methods are made: see `methods`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import httpx

from keylane_client.answers import V
from keylane_client.context import ClientOptions, Context
from keylane_client.drivers import AsyncDriver, BlockingDriver, http_options
from keylane_client.methods import D, WithDriver, items_of, leading_to, result_of
from keylane_client.service_calls import ServiceCalls, ViewCalls
from keylane_client.topics import AsyncTopic, Topic

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


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
