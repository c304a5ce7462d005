"""The blocking client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from keylane_client.binding import Blocking, blocking, deriving, iterating
from keylane_client.drivers import BlockingDriver
from keylane_client.options import ClientOptions, http_options
from keylane_client.service_calls import ServiceCalls
from keylane_client.topic_calls import TopicCalls
from keylane_client.view_calls import ViewCalls

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Topic(Blocking[TopicCalls]):
    """One topic. `topic[key]` is the key's record, or raises KeyAbsent, which is a KeyError."""

    __getitem__ = blocking(TopicCalls.read)
    get = blocking(TopicCalls.get)
    get_many = blocking(TopicCalls.get_many)
    put = blocking(TopicCalls.put)
    delete = blocking(TopicCalls.delete)
    push = blocking(TopicCalls.push)
    scan = iterating(TopicCalls.scan)
    keys = iterating(TopicCalls.keys)
    history = iterating(TopicCalls.history)
    watch = iterating(TopicCalls.watch)
    log = iterating(TopicCalls.log)
    tail = iterating(TopicCalls.tail)
    layout = blocking(TopicCalls.layout)
    at = deriving(TopicCalls.at)
    reading = deriving(TopicCalls.reading)
    # A topic has keys without end: without this, `in` and `for` would try 0, 1, 2, ...
    __iter__ = None
    __contains__ = None

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self._calls.name


class View(Blocking[ViewCalls]):
    """One view."""

    windows = iterating(ViewCalls.windows)
    scan = iterating(ViewCalls.scan)
    describe = blocking(ViewCalls.describe)


class _Service(Blocking[ServiceCalls]):
    topics = iterating(ServiceCalls.topics)
    views = blocking(ServiceCalls.views)
    join = blocking(ServiceCalls.join)
    health = blocking(ServiceCalls.health)

    def topic(self, name: str) -> Topic:
        """Return a topic; nothing is sent."""
        return Topic(self._driver, self._calls.topic(name))

    def view(self, name: str) -> View:
        """Return a view; nothing is sent."""
        return View(self._driver, self._calls.view(name))


class Session(_Service):
    """A client whose reads of topics always have its own writes.

    It keeps one position for each key that it wrote, and sends or compares them. Reads of views, joins and
    reads as of a moment do not wait, and neither does a read for a record in the write-ahead log.
    """


class Client(_Service):
    """A client of the API at `url`, for use in a `with` statement, and by any number of threads."""

    def __init__(
        self,
        url: str,
        auth: httpx.Auth | None = None,
        *,
        options: ClientOptions | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Raises ValueError for what is not the URL of an API. Nothing is sent."""
        options = options or ClientOptions()
        http = httpx.Client(**http_options(url, auth, options), transport=transport)
        super().__init__(BlockingDriver(http, options.retries), ServiceCalls(options.context()))

    def session(self) -> Session:
        """Begin a session: its reads always have its own writes."""
        return Session(self._driver, self._calls.in_session())

    def close(self) -> None:
        """Close the connections."""
        self._driver.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
