"""Carry out conversations over HTTP: one driver blocks, the other is asynchronous.

Here, and nowhere else, are httpx' errors known.
"""

from __future__ import annotations

from contextlib import aclosing, closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from tenacity import AsyncRetrying, Retrying

from keylane_client.errors import InvalidAnswer, KeylaneError, Unreachable, error_of
from keylane_client.events import EventParser
from keylane_client.following import SILENCE_S, Follower
from keylane_client.wire import EVENT_STREAM, ApiRequest, ApiResponse, Conversation, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from keylane_client.events import ServerEvent
    from keylane_client.retries import RetryPolicy

T = TypeVar("T")


@contextmanager
def translate_http_errors(url: httpx.URL) -> Iterator[None]:
    """Raise Unreachable, with what to look at, for an error of the connection."""
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise Unreachable(
            f"{url.host} cannot be reached in time: is the URL right, and no firewall between?"
        ) from error
    except httpx.ConnectError as error:
        raise Unreachable(
            f"{url.host}:{url.port or url.scheme} cannot be reached ({error}): is it up?"
        ) from error
    except httpx.TimeoutException as error:
        raise Unreachable(f"{url.host} did not answer in time ({type(error).__name__})") from error
    except httpx.TransportError as error:
        raise Unreachable(f"the connection to {url.host} broke: {error or type(error).__name__}") from error


def build_request(
    http: httpx.Client | httpx.AsyncClient, request: ApiRequest, *, silence_s: float | None = None
) -> httpx.Request:
    """Return the request as httpx has it. The path is percent-encoded already, and stays as it is.

    `silence_s`: the longest time without a byte, None for the client's own timeout.
    """
    url = str(http.base_url).rstrip("/") + request.path
    timeout = http.timeout
    if silence_s is not None:
        timeout = httpx.Timeout(silence_s, connect=timeout.connect, write=timeout.write, pool=timeout.pool)
    return http.build_request(
        request.method,
        url,
        params=dict(request.query) or None,
        headers=dict(request.headers),
        content=request.body,
        timeout=timeout,
    )


def check_response(request: ApiRequest, response: httpx.Response) -> ApiResponse:
    """Return the response. Raises the error that it describes, if it is one."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    answer = ApiResponse(response.status_code, headers, response.content)
    if response.is_success or response.status_code in request.also_answers:
        return answer
    raise error_of(answer)


def is_stream(response: httpx.Response) -> bool:
    """Return whether the response is a stream of events."""
    return response.is_success and response.headers.get("content-type", "").startswith(EVENT_STREAM)


def check_stream(request: ApiRequest, response: httpx.Response) -> None:
    """Raise the error of a response that is no stream."""
    check_response(request, response)
    raise InvalidAnswer("the answer is no stream of events")


class BlockingDriver:
    """Carries out conversations, one request at a time in each thread."""

    def __init__(self, http: httpx.Client, retries: RetryPolicy) -> None:
        self.http = http
        self._retries = retries

    def run(self, conversation: Conversation[T]) -> T:
        """Carry out a conversation and return its result."""
        try:
            request = next(conversation)
            while True:
                try:
                    response = self._send(request)
                except KeylaneError as error:  # noqa: PERF203 (the conversation may go on)
                    request = conversation.throw(error)
                else:
                    request = conversation.send(response)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def iterate(self, stream: Stream[T]) -> Iterator[T]:
        """Give a stream's items as they are needed."""
        begin: Any | None = stream.start
        live = stream.live
        while begin is not None:
            step = self.run(stream.step(begin))
            yield from step.items
            begin = step.next
            if live is not None and begin is not None:
                follower = Follower(live, begin, self._retries)
                yield from self._follow(follower)
                begin, live = follower.state, None

    def _follow(self, follower: Follower[T]) -> Iterator[T]:
        """Give the items of a stream of events, until the service refuses to stream."""
        sleep = Retrying().sleep
        while True:
            error: KeylaneError | None = None
            try:
                for event in self._events(follower.request()):
                    yield from follower.take(event)
            except KeylaneError as failure:
                if follower.is_refused(failure):
                    return
                error = failure
            sleep(follower.pause_s(error))

    def _events(self, request: ApiRequest) -> Iterator[ServerEvent]:
        built = build_request(self.http, request, silence_s=SILENCE_S)
        parser = EventParser()
        with translate_http_errors(built.url), closing(self.http.send(built, stream=True)) as response:
            if not is_stream(response):
                response.read()
                check_stream(request, response)
            for chunk in response.iter_bytes():
                yield from parser.feed(chunk)

    def _send(self, request: ApiRequest) -> ApiResponse:
        retrying = Retrying(**self._retries.options(request))
        if request.delay_s:
            retrying.sleep(request.delay_s)
        return retrying(self._exchange, request)

    def _exchange(self, request: ApiRequest) -> ApiResponse:
        built = build_request(self.http, request)
        with translate_http_errors(built.url):
            return check_response(request, self.http.send(built))


class AsyncDriver:
    """Carries out conversations in an event loop of asyncio or trio."""

    def __init__(self, http: httpx.AsyncClient, retries: RetryPolicy) -> None:
        self.http = http
        self._retries = retries

    async def run(self, conversation: Conversation[T]) -> T:
        """Carry out a conversation and return its result."""
        try:
            request = next(conversation)
            while True:
                try:
                    response = await self._send(request)
                except KeylaneError as error:  # noqa: PERF203 (the conversation may go on)
                    request = conversation.throw(error)
                else:
                    request = conversation.send(response)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def iterate(self, stream: Stream[T]) -> AsyncIterator[T]:
        """Give a stream's items as they are needed."""
        begin: Any | None = stream.start
        live = stream.live
        while begin is not None:
            step = await self.run(stream.step(begin))
            for item in step.items:
                yield item
            begin = step.next
            if live is not None and begin is not None:
                follower = Follower(live, begin, self._retries)
                async with aclosing(self._follow(follower)) as items:
                    async for item in items:
                        yield item
                begin, live = follower.state, None

    async def _follow(self, follower: Follower[T]) -> AsyncGenerator[T]:
        """Give the items of a stream of events, until the service refuses to stream."""
        sleep: Any = AsyncRetrying().sleep
        while True:
            error: KeylaneError | None = None
            try:
                async with aclosing(self._events(follower.request())) as events:
                    async for event in events:
                        for item in follower.take(event):
                            yield item
            except KeylaneError as failure:
                if follower.is_refused(failure):
                    return
                error = failure
            await sleep(follower.pause_s(error))

    async def _events(self, request: ApiRequest) -> AsyncGenerator[ServerEvent]:
        built = build_request(self.http, request, silence_s=SILENCE_S)
        parser = EventParser()
        with translate_http_errors(built.url):
            response = await self.http.send(built, stream=True)
            async with aclosing(response):
                if not is_stream(response):
                    await response.aread()
                    check_stream(request, response)
                async for chunk in response.aiter_bytes():
                    for event in parser.feed(chunk):
                        yield event

    async def _send(self, request: ApiRequest) -> ApiResponse:
        retrying = AsyncRetrying(**self._retries.options(request))
        if request.delay_s:
            await retrying.sleep(request.delay_s)  # type: ignore[misc]
        return await retrying(self._exchange, request)

    async def _exchange(self, request: ApiRequest) -> ApiResponse:
        built = build_request(self.http, request)
        with translate_http_errors(built.url):
            return check_response(request, await self.http.send(built))
