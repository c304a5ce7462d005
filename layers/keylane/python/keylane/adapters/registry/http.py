"""JSON over HTTP with a deadline: one request, whose every read and write ends in time.

One thing is not bounded: resolving the host name, which Python cannot interrupt. Each request opens a
connection of its own: a function asks for a schema once in its life.
"""

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from keylane.adapters.deadline_sockets import DeadlineSocket, open_socket, remaining_s
from keylane.adapters.registry.circuit import Circuit
from keylane.adapters.registry.login import RegistrySettings
from keylane.adapters.rotated_login import RotatedLogin
from keylane.errors import RegistryUnavailable
from keylane.ports import Deadline

BODY_LIMIT_BYTES = 4 * 1024 * 1024
_UNAUTHORIZED = 401
_READ_BYTES = 64 * 1024
_ACCEPTED_TYPES = "application/vnd.schemaregistry.v1+json, application/json"
_SENT_TYPE = "application/vnd.schemaregistry.v1+json"


class JsonHttp:
    """Requests to one server."""

    def __init__(self, settings: RegistrySettings, circuit: Circuit) -> None:
        parts = urlsplit(settings.url)
        self._host = parts.hostname or ""
        self._port = parts.port
        self._path = parts.path.rstrip("/")
        self._is_tls = parts.scheme == "https"
        self._ca_file = settings.ca_file
        self._context: ssl.SSLContext | None = None
        self._login = RotatedLogin("the Schema Registry", settings)
        self._circuit = circuit

    def request(
        self, path: str, deadline: Deadline, document: dict[str, Any] | None = None
    ) -> tuple[int, Any]:
        """GET the path, or POST a document to it; return the status and the body's JSON, None if it has none.

        Where the registry rejects the login, the request is repeated with one that was read again. Raises
        RegistryUnavailable.
        """
        answer: tuple[int, Any] = (_UNAUTHORIZED, None)
        for settings in self._login.attempts(deadline):
            answer = self._exchange(path, deadline, document, settings)
            if answer[0] != _UNAUTHORIZED:
                break
        return answer

    def _exchange(
        self, path: str, deadline: Deadline, document: dict[str, Any] | None, settings: RegistrySettings
    ) -> tuple[int, Any]:
        method, sent, headers = "GET", None, _headers(settings)
        if document is not None:
            method, sent = "POST", json.dumps(document).encode()
            headers["Content-Type"] = _SENT_TYPE
        with (
            self._circuit.attempt(deadline),
            translate_http_errors(),
            closing(self._connect(deadline)) as sock,
        ):
            connection = self._conversation()
            connection.sock = DeadlineSocket(sock, deadline)
            connection.request(method, self._path + path, sent, headers)
            response = connection.getresponse()
            body = _read_body(response)
        try:
            return response.status, json.loads(body)
        except (ValueError, RecursionError):
            return response.status, None

    def _conversation(self) -> http.client.HTTPConnection:
        if self._is_tls:
            return http.client.HTTPSConnection(self._host, self._port, context=self._context)
        return http.client.HTTPConnection(self._host, self._port)

    def _connect(self, deadline: Deadline) -> socket.socket:
        default_port = http.client.HTTPS_PORT if self._is_tls else http.client.HTTP_PORT
        sock = open_socket(self._host, self._port or default_port, deadline)
        if not self._is_tls:
            return sock
        try:
            if self._context is None:
                self._context = ssl.create_default_context(cafile=self._ca_file)
            sock.settimeout(remaining_s(deadline))
            return self._context.wrap_socket(sock, server_hostname=self._host)
        except BaseException:
            sock.close()
            raise


@contextmanager
def translate_http_errors() -> Iterator[None]:
    """Raise every error of a request as RegistryUnavailable."""
    try:
        yield
    except TimeoutError as error:
        raise RegistryUnavailable("the Schema Registry did not answer in time") from error
    except ssl.SSLCertVerificationError as error:
        # Behind a comma OpenSSL names the host, which clients must not see.
        reason = error.verify_message.partition(",")[0]
        raise RegistryUnavailable(
            f"the Schema Registry's certificate could not be verified: {reason}"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise RegistryUnavailable("the Schema Registry can't be reached") from error


def _headers(settings: RegistrySettings) -> dict[str, str]:
    headers = {"Accept": _ACCEPTED_TYPES}
    if settings.username is not None:
        pair = f"{settings.username}:{settings.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return headers


def _read_body(response: http.client.HTTPResponse) -> bytes:
    body = bytearray()
    while part := response.read(_READ_BYTES):
        body += part
        if len(body) > BODY_LIMIT_BYTES:
            raise RegistryUnavailable(f"the Schema Registry's answer has more than {BODY_LIMIT_BYTES} bytes")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return bytes(body)
