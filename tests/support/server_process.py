"""A process of the server in a loop of its own, which is asked without a socket.

Its answers say whether they took the fast path of plain look-ups.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from keylane_local.process.ports import HOST
from keylane_server.lookups import PlainLookups
from keylane_server.options import ServerOptions
from keylane_server.worker import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from keylane_server.app import ServerApp

OTHER_WAY = {"x-api-key": "0"}
"""A header that changes no answer where anyone may ask, and is not plain."""
UNLIKE = {"x-amzn-requestid", "keylane-age-ms"}
"""Headers that differ from one answer to the next."""


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    is_fast: bool

    @property
    def lasting(self) -> tuple[int, list[tuple[str, str]], Any]:
        """What two answers to one question have in common."""
        headers = [pair for pair in self.headers if pair[0].lower() not in UNLIKE]
        body: Any = self.body
        if self.status >= 400:
            body = {name: value for name, value in json.loads(self.body).items() if name != "instance"}
        return self.status, headers, body


class Process:
    """A process of the server."""

    def __init__(self, variables: dict[str, str], **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._process = ServerProcess(ServerOptions(HOST, 0, **options), variables)
        self._loop.add_signal_handler = lambda *_: None  # type: ignore[assignment,method-assign]  # a thread has none
        self.run(self._process._open())
        self.fast = 0

    @property
    def app(self) -> ServerApp:
        assert self._process._app is not None
        return self._process._app

    @property
    def metrics(self) -> str:
        """The page of all metrics, what is noted included."""
        self._process._flush_meters()
        return self._process._pages.metrics.render_page("")[0].decode()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answer:
        return self.ask(method, path, headers or {})

    def ask(self, method: str, path: str, headers: dict[str, str], *parts: bytes) -> Answer:
        """Send a request; a body comes in these parts."""
        path, _, query = path.partition("?")
        pairs = {"host": "localhost", **headers}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "client": ("127.0.0.1", 1),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in pairs.items()],
        }
        left, sent = list(parts) or [b""], list[dict[str, Any]]()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            if not left:
                await asyncio.Event().wait()  # nothing more comes: the client stays
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

        before = self.fast
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PlainLookups, "answer", self._counted(PlainLookups.answer))
            self.run(self.app.answer(scope, receive, send))
        start, *bodies = sent
        headers_of = [(name.decode(), value.decode()) for name, value in start["headers"]]
        body = b"".join(each["body"] for each in bodies)
        return Answer(start["status"], headers_of, body, self.fast > before)

    def close(self) -> None:
        self.run(self._process._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _counted(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*arguments: Any) -> Any:
            found = await answer(*arguments)
            self.fast += found is not None
            return found

        return counted


def with_tokens(variables: dict[str, str], token: str, **grant: list[str]) -> dict[str, str]:
    """The variables of a server in which the token has the grant."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return variables | {"KEYLANE_ACCESS": json.dumps({digest: {"name": "caller", **grant}})}
