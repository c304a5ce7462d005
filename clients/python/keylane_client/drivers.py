"""Carry out conversations over HTTP: one driver blocks, the other is asynchronous.

Here, and nowhere else, are httpx' errors known.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from tenacity import AsyncRetrying, Retrying

from keylane_client.errors import KeylaneError, Unreachable, error_of
from keylane_client.wire import ApiRequest, ApiResponse, Conversation, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

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


def build_request(http: httpx.Client | httpx.AsyncClient, request: ApiRequest) -> httpx.Request:
    """Return the request as httpx has it. The path is percent-encoded already, and stays as it is."""
    url = str(http.base_url).rstrip("/") + request.path
    return http.build_request(
        request.method,
        url,
        params=dict(request.query) or None,
        headers=dict(request.headers),
        content=request.body,
    )


def check_response(request: ApiRequest, response: httpx.Response) -> ApiResponse:
    """Return the response. Raises the error that it describes, if it is one."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    answer = ApiResponse(response.status_code, headers, response.content)
    if response.is_success or response.status_code in request.also_answers:
        return answer
    raise error_of(answer)


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
        while begin is not None:
            step = self.run(stream.step(begin))
            yield from step.items
            begin = step.next

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
        while begin is not None:
            step = await self.run(stream.step(begin))
            for item in step.items:
                yield item
            begin = step.next

    async def _send(self, request: ApiRequest) -> ApiResponse:
        retrying = AsyncRetrying(**self._retries.options(request))
        if request.delay_s:
            await retrying.sleep(request.delay_s)  # type: ignore[misc]
        return await retrying(self._exchange, request)

    async def _exchange(self, request: ApiRequest) -> ApiResponse:
        built = build_request(self.http, request)
        with translate_http_errors(built.url):
            return check_response(request, await self.http.send(built))
