"""Carry out conversations over HTTP: one driver blocks, the other is asynchronous.

Here, and nowhere else, are httpx' errors known.
"""

import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, closing, contextmanager, nullcontext, suppress
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpx

from keylane_client.batching import AsyncBatches, BlockingBatches
from keylane_client.context import ClientOptions
from keylane_client.errors import InvalidAnswer, InvalidArgument, KeylaneError, Unreachable, error_of
from keylane_client.wire import (
    ApiRequest,
    ApiResponse,
    Conversation,
    Exchange,
    Items,
    Listening,
    Stream,
    Together,
    advance,
    stream_of,
)

T = TypeVar("T")
H = TypeVar("H", bound="httpx.Client | httpx.AsyncClient")
CONNECT_TIMEOUT_S = 5.0
ACCEPT = "application/vnd.keylane+json, application/json, */*;q=0.5"
"""The first type asks for Keylane's own documents where the service has others for clients of REST Proxy."""


def http_options(url: str, auth: httpx.Auth | None, options: ClientOptions) -> dict[str, Any]:
    """Return what httpx' two clients both take. Raises InvalidArgument for what is not the URL of an API."""
    if not _is_api(url):
        raise InvalidArgument(f"{url!r} is not the URL of an API: write http or https, a host, and no query")
    return {
        "base_url": url.rstrip("/"),
        "auth": auth,
        "timeout": httpx.Timeout(options.timeout_s, connect=min(CONNECT_TIMEOUT_S, options.timeout_s)),
        "headers": {"User-Agent": "keylane-client", "Accept": ACCEPT},
        # To load certificate authorities takes longer than a request: not where there is no TLS.
        "verify": urlsplit(url).scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    }


def _is_api(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port, or of an address in brackets
        return False
    is_plain = url.isprintable() and not parts.query and not parts.fragment
    return has_host and is_plain and parts.scheme in ("http", "https")


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
    except (httpx.TransportError, httpx.DecodingError) as error:
        raise Unreachable(f"the connection to {url.host} broke: {error or type(error).__name__}") from error


def check_response(request: ApiRequest, response: httpx.Response) -> ApiResponse:
    """Return the response. Raises the error that it describes, if it is one."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    answer = ApiResponse(response.status_code, headers, response.content)
    if response.is_success or response.status_code in request.also_answers:
        return answer
    raise error_of(answer.status, answer.headers, answer.body)


def is_listened_to(listening: Listening, response: httpx.Response) -> bool:
    """Return whether the response is what is to be read as it comes."""
    return response.is_success and response.headers.get("content-type", "").startswith(listening.media_type)


class _Driver(Generic[H]):
    def __init__(self, open_http: Callable[[], H], options: ClientOptions) -> None:
        self._open_http = open_http
        self._opened = [(os.getpid(), open_http())]
        self._retries = options.retries
        self._hooks = options.hooks

    @property
    def address(self) -> str:
        """The API's URL, without credentials that it may have."""
        return str(self._opened[-1][1].base_url.copy_with(userinfo=b"")).rstrip("/")

    @contextmanager
    def _exchange(self, request: ApiRequest) -> Iterator[Exchange]:
        """One attempt of a request, within the hooks. Errors of the connection are translated."""
        exchange = Exchange(request.method, request.path, dict(request.headers))
        with ExitStack() as entered:
            for hook in self._hooks:
                entered.enter_context(hook(exchange))
            begun_s = time.monotonic()
            try:
                with translate_http_errors(self.http.base_url):
                    yield exchange
            except BaseException as error:
                exchange.error = error if isinstance(error, Exception) else None
                raise
            finally:
                exchange.took_s = time.monotonic() - begun_s

    @property
    def http(self) -> H:
        """Return this process' connections.

        A process that was forked has its parent's, and would take answers from them that are not its own. It
        keeps those without a use: to close them would end the parent's TLS sessions.
        """
        process, http = self._opened[-1]
        if process != os.getpid():
            http = self._open_http()
            self._opened.append((os.getpid(), http))
        return http

    def _build(
        self, request: ApiRequest, headers: Mapping[str, str], *, silence_s: float | None = None
    ) -> httpx.Request:
        """Return the request as httpx has it. The path is percent-encoded already, and stays as it is.

        `silence_s`: the longest time without a byte, None for the client's own timeout.

        Raises InvalidArgument for what no request can have.
        """
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable()):
                raise InvalidArgument(f"{name} has characters that a header can't have")
        timeout = self.http.timeout
        if silence_s is not None:
            timeout = httpx.Timeout(
                silence_s, connect=timeout.connect, write=timeout.write, pool=timeout.pool
            )
        try:
            return self.http.build_request(
                request.method,
                str(self.http.base_url).rstrip("/") + request.path,
                params=dict(request.query) or None,
                headers=dict(headers),
                content=request.body,
                timeout=timeout,
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise InvalidArgument(f"no request can have this key, name or condition: {error}") from error


class Halt:
    """Ends a blocking iteration from another thread: a pause at once, and a read of a body as it comes."""

    def __init__(self) -> None:
        self._is_set = threading.Event()
        self._response: httpx.Response | None = None

    @property
    def is_set(self) -> bool:
        """Return whether the iteration is to end."""
        return self._is_set.is_set()

    def set(self) -> None:
        """End the iteration. What waits for the beginning of an answer ends by its timeout."""
        self._is_set.set()
        if self._response is not None:
            _shut_down(self._response)

    def pause(self, delay_s: float) -> None:
        """Wait, unless the iteration is to end."""
        self._is_set.wait(delay_s)

    @contextmanager
    def reading(self, response: httpx.Response) -> Iterator[None]:
        """Let `set` end the reads of this body."""
        self._response = response
        try:
            if self.is_set:
                _shut_down(response)
            yield
        finally:
            self._response = None


def _shut_down(response: httpx.Response) -> None:
    """End the reads of a response's connection. To close it would not: a read in another thread goes on."""
    stream = response.extensions.get("network_stream")  # none of a transport without a network
    connection = None if stream is None else stream.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):  # it has ended meanwhile
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # below TLS


class BlockingDriver(_Driver[httpx.Client]):
    """Carries out conversations, one request at a time in each thread."""

    def __init__(self, open_http: Callable[[], httpx.Client], options: ClientOptions) -> None:
        super().__init__(open_http, options)
        self._batches = BlockingBatches(self.run)

    def run(self, conversation: Conversation[T]) -> T:
        """Carry out a conversation and return its result."""
        [result] = self.iterate(stream_of(conversation))
        return result

    def iterate(self, stream: Stream[T], halt: Halt | None = None) -> Iterator[T]:
        """Give a stream's items as they are needed, until `halt` is set."""
        steps, outcome, listening = self._retries.repeat(stream), None, None
        with ExitStack() as opened:
            while halt is None or not halt.is_set:
                try:
                    step = advance(steps, outcome)
                except StopIteration:
                    return
                if isinstance(step, Items):
                    yield from step.items
                    outcome = None
                elif isinstance(step, ApiRequest):
                    outcome = self._send(step, halt)
                elif isinstance(step, Together):
                    outcome = self._batches.ask(step)
                else:
                    if step is not listening:
                        opened.close()
                        listening, chunks = step, opened.enter_context(closing(self._listen(step, halt)))
                    outcome = next(chunks)

    def _send(self, request: ApiRequest, halt: Halt | None) -> ApiResponse | KeylaneError:
        _pause(request.delay_s, halt)
        try:
            with self._exchange(request) as exchange:
                response = self.http.send(self._build(request, exchange.headers))
                exchange.status = response.status_code
                return check_response(request, response)
        except KeylaneError as error:
            return error

    def _listen(
        self, listening: Listening, halt: Halt | None
    ) -> Generator[ApiResponse | KeylaneError, None, None]:
        _pause(listening.request.delay_s, halt)
        try:
            with ExitStack() as opened:
                with self._exchange(listening.request) as exchange:
                    built = self._build(listening.request, exchange.headers, silence_s=listening.silence_s)
                    response = opened.enter_context(closing(self.http.send(built, stream=True)))
                    exchange.status = response.status_code
                    if not is_listened_to(listening, response):
                        response.read()
                        check_response(listening.request, response)
                        raise InvalidAnswer(f"the answer is not {listening.media_type}")
                with translate_http_errors(built.url), halt.reading(response) if halt else nullcontext():
                    for chunk in response.iter_bytes():
                        yield ApiResponse(response.status_code, {}, chunk)
                    yield ApiResponse(response.status_code, {}, b"")
        except KeylaneError as error:
            yield error


def _pause(delay_s: float, halt: Halt | None) -> None:
    if delay_s > 0:
        time.sleep(delay_s) if halt is None else halt.pause(delay_s)


class AsyncDriver(_Driver[httpx.AsyncClient]):
    """Carries out conversations in an event loop of asyncio or trio."""

    def __init__(self, open_http: Callable[[], httpx.AsyncClient], options: ClientOptions) -> None:
        super().__init__(open_http, options)
        self._batches = AsyncBatches(self.run)

    async def run(self, conversation: Conversation[T]) -> T:
        """Carry out a conversation and return its result."""
        [result] = [each async for each in self.iterate(stream_of(conversation))]
        return result

    async def iterate(self, stream: Stream[T]) -> AsyncIterator[T]:
        """Give a stream's items as they are needed."""
        steps, outcome, listening = self._retries.repeat(stream), None, None
        async with AsyncExitStack() as opened:
            while True:
                try:
                    step = advance(steps, outcome)
                except StopIteration:
                    return
                if isinstance(step, Items):
                    for item in step.items:
                        yield item
                    outcome = None
                elif isinstance(step, ApiRequest):
                    outcome = await self._send(step)
                elif isinstance(step, Together):
                    outcome = await self._batches.ask(step)
                else:
                    if step is not listening:
                        await opened.aclose()
                        chunks = await opened.enter_async_context(aclosing(self._listen(step)))
                        listening = step
                    outcome = await anext(chunks)

    async def _send(self, request: ApiRequest) -> ApiResponse | KeylaneError:
        await _pause_async(request.delay_s)
        try:
            with self._exchange(request) as exchange:
                response = await self.http.send(self._build(request, exchange.headers))
                exchange.status = response.status_code
                return check_response(request, response)
        except KeylaneError as error:
            return error

    async def _listen(self, listening: Listening) -> AsyncGenerator[ApiResponse | KeylaneError, None]:
        await _pause_async(listening.request.delay_s)
        try:
            async with AsyncExitStack() as opened:
                with self._exchange(listening.request) as exchange:
                    built = self._build(listening.request, exchange.headers, silence_s=listening.silence_s)
                    response = await self.http.send(built, stream=True)
                    await opened.enter_async_context(aclosing(response))
                    exchange.status = response.status_code
                    if not is_listened_to(listening, response):
                        await response.aread()
                        check_response(listening.request, response)
                        raise InvalidAnswer(f"the answer is not {listening.media_type}")
                with translate_http_errors(built.url):
                    async for chunk in response.aiter_bytes():
                        yield ApiResponse(response.status_code, {}, chunk)
                    yield ApiResponse(response.status_code, {}, b"")
        except KeylaneError as error:
            yield error


async def _pause_async(delay_s: float) -> None:
    if delay_s > 0:
        import anyio  # noqa: PLC0415 (httpx imports it for asynchronous requests alone)

        await anyio.sleep(delay_s)
