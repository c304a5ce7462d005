"""The asynchronous client: as the blocking one, with `await` and `async for`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from keylane_client.binding import NonBlocking, async_iterating, awaiting, deriving
from keylane_client.drivers import AsyncDriver
from keylane_client.options import ClientOptions, http_options
from keylane_client.service_calls import ServiceCalls
from keylane_client.topic_calls import TopicCalls
from keylane_client.view_calls import ViewCalls

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class AsyncTopic(NonBlocking[TopicCalls]):
    """One topic. `await topic[key]` is the key's record, or raises KeyAbsent, which is a KeyError."""

    __getitem__ = awaiting(TopicCalls.read)
    get = awaiting(TopicCalls.get)
    get_many = awaiting(TopicCalls.get_many)
    put = awaiting(TopicCalls.put)
    delete = awaiting(TopicCalls.delete)
    push = awaiting(TopicCalls.push)
    scan = async_iterating(TopicCalls.scan)
    keys = async_iterating(TopicCalls.keys)
    history = async_iterating(TopicCalls.history)
    watch = async_iterating(TopicCalls.watch)
    log = async_iterating(TopicCalls.log)
    tail = async_iterating(TopicCalls.tail)
    layout = awaiting(TopicCalls.layout)
    at = deriving(TopicCalls.at)
    reading = deriving(TopicCalls.reading)
    # A topic has keys without end: without this, `in` and `for` would try 0, 1, 2, ...
    __iter__ = None
    __contains__ = None

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self._calls.name


class AsyncView(NonBlocking[ViewCalls]):
    """One view."""

    windows = async_iterating(ViewCalls.windows)
    scan = async_iterating(ViewCalls.scan)
    describe = awaiting(ViewCalls.describe)


class _AsyncService(NonBlocking[ServiceCalls]):
    topics = async_iterating(ServiceCalls.topics)
    views = awaiting(ServiceCalls.views)
    join = awaiting(ServiceCalls.join)
    health = awaiting(ServiceCalls.health)

    def topic(self, name: str) -> AsyncTopic:
        """Return a topic; nothing is sent."""
        return AsyncTopic(self._driver, self._calls.topic(name))

    def view(self, name: str) -> AsyncView:
        """Return a view; nothing is sent."""
        return AsyncView(self._driver, self._calls.view(name))


class AsyncSession(_AsyncService):
    """A client whose reads of topics always have its own writes.

    It keeps one position for each key that it wrote, and sends or compares them. Reads of views, joins and
    reads as of a moment do not wait, and neither does a read for a record in the write-ahead log.
    """


class AsyncClient(_AsyncService):
    """A client of the API at `url`, for use in an `async with` statement, in one event loop."""

    def __init__(
        self,
        url: str,
        auth: httpx.Auth | None = None,
        *,
        options: ClientOptions | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises ValueError for what is not the URL of an API. Nothing is sent."""
        options = options or ClientOptions()
        http = httpx.AsyncClient(**http_options(url, auth, options), transport=transport)
        super().__init__(AsyncDriver(http, options.retries), ServiceCalls(options.context()))

    def session(self) -> AsyncSession:
        """Begin a session: its reads always have its own writes."""
        return AsyncSession(self._driver, self._calls.in_session())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._driver.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
