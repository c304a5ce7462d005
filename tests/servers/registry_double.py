"""A Schema Registry whose answers a test sets: for the failures that a real one shows rarely.

Its regular answers follow docs.confluent.io, "Schema Registry API Reference".
"""

from __future__ import annotations

import base64
import contextlib
import json
from typing import TYPE_CHECKING, Any

from tests.support.http_doubles import Exchange, HttpDouble

from keylane.adapters.registry.circuit import Circuit
from keylane.adapters.registry.client import RegistryClient
from keylane.adapters.registry.login import RegistrySettings

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    Answer = tuple[int, bytes]


TIMEOUT_MS = 20_000
"""More than any registry of a test takes that answers."""


def client_of(url: str, timeout_ms: float = TIMEOUT_MS, **settings: Any) -> RegistryClient:
    """A client with a circuit of its own."""
    return RegistryClient(RegistrySettings(url, **settings), Circuit(timeout_ms))


class RegistryDouble(HttpDouble):
    """`answers`: path -> status and body, or a function that writes to the socket itself.

    A path that it lacks is a 404 that is not a registry's. `pause`: is called before each answer.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.pause: Callable[[], object] = lambda: None
        self.answers: dict[str, Answer | Callable[[Any], None]] = {}
        self.asked: list[str] = []
        self.credentials: list[str | None] = []
        self.login: tuple[str, str] | None = None
        """The only user and password that are accepted; None for all requests."""
        super().__init__(self._reply, context=context)

    def has(self, path: str, document: Any, status: int = 200) -> None:
        self.answers[path] = status, json.dumps(document).encode()

    def lacks(self, path: str) -> None:
        self.has(path, {"error_code": 40403, "message": "Schema not found"}, 404)

    def accepts(self, given: str | None) -> bool:
        if self.login is None:
            return True
        return given == f"Basic {base64.b64encode(':'.join(self.login).encode()).decode()}"

    def _reply(self, exchange: Exchange) -> None:
        answer = self._answer(exchange.path, exchange.headers["Authorization"])
        with contextlib.suppress(OSError):
            if callable(answer):
                answer(exchange.wfile)
            else:
                exchange.answer(*answer)

    def _answer(self, path: str, authorization: str | None) -> Answer | Callable[[Any], None]:
        self.asked.append(path)
        self.credentials.append(authorization)
        self.pause()
        if not self.accepts(authorization):
            return 401, b'{"error_code": 401, "message": "Unauthorized"}'
        # What is not deleted is answered with deleted ones, too.
        plain = self.answers.get(path.removesuffix("?deleted=true"), (404, b"<html>not here</html>"))
        return self.answers.get(path, plain)
