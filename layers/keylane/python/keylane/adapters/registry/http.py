"""A Schema Registry over HTTP: one GET, bounded by a deadline as a whole, whatever the server does.

Not bounded are the resolving of its name, which Python can't, and, of several addresses, all together.
A connection for each request: a schema is asked for once in the life of a function.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import ssl
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from keylane.errors import RegistryUnavailable

if TYPE_CHECKING:
    import socket

    from keylane.ports import Deadline

LIMIT_BYTES = 4 * 1024 * 1024
_READ_BYTES = 64 * 1024
_MEDIA_TYPES = "application/vnd.schemaregistry.v1+json, application/json"
_SENT_TYPE = "application/vnd.schemaregistry.v1+json"
_OK, _NOT_FOUND = 200, 404
_REFUSED = {409, 422}


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How to reach the registry. `url`: http or https, with the path below which its API lies."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None


class RegistryHttp:
    """Requests of a registry's API."""

    def __init__(self, settings: RegistrySettings) -> None:
        parts = urlsplit(settings.url)
        self._host = parts.hostname or ""
        self._port = parts.port
        self._path = parts.path.rstrip("/")
        self._is_tls = parts.scheme == "https"
        self._ca_file = settings.ca_file
        self._context: ssl.SSLContext | None = None
        self._headers = {"Accept": _MEDIA_TYPES}
        if settings.username is not None:
            pair = f"{settings.username}:{settings.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"

    def get(self, path: str, deadline: Deadline) -> dict[str, Any] | None:
        """Give the JSON object at the path, None where the registry says that there is no such thing.

        Raises RegistryUnavailable for everything else.
        """
        found: dict[str, Any] | None = self._get(path, deadline, dict, "no JSON object")
        return found

    def get_list(self, path: str, deadline: Deadline) -> list[Any] | None:
        """Give the JSON array at the path, as `get` an object."""
        found: list[Any] | None = self._get(path, deadline, list, "no JSON array")
        return found

    def post(self, path: str, document: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Send a JSON object, and give the one that comes back.

        Raises ValueError where the registry refuses it (409, 422), RegistryUnavailable for everything else.
        """
        status, body = self._fetch(self._path + path, deadline, json.dumps(document).encode())
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and status == _OK:
            return answer
        if isinstance(answer, dict) and status in _REFUSED and "error_code" in answer:
            raise ValueError(f"the Schema Registry refuses it: {str(answer.get('message'))[:300]}")
        raise RegistryUnavailable(f"the Schema Registry answered with status {status}")

    def _get(self, path: str, deadline: Deadline, kind: type, fault: str) -> Any:
        status, body = self._fetch(self._path + path, deadline)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, kind) and status == _OK:
            return document
        # 40401, 40402, 40403: subject, version, schema not found. Any other 404 is some other server's.
        if isinstance(document, dict) and status == _NOT_FOUND and "error_code" in document:
            return None
        what = f"with something that is {fault}" if status == _OK else f"with status {status}"
        raise RegistryUnavailable(f"the Schema Registry answered {what}")

    def _fetch(self, target: str, deadline: Deadline, sent: bytes | None = None) -> tuple[int, bytes]:
        try:
            with closing(self._connected(deadline)) as connection, closing(connection.sock) as sock:
                connection.sock = _Bounded(sock, deadline)
                method, headers = "GET", self._headers
                if sent is not None:
                    method, headers = "POST", {**self._headers, "Content-Type": _SENT_TYPE}
                connection.request(method, target, sent, headers)
                response = connection.getresponse()
                return response.status, _body_of(response)
        except TimeoutError as error:
            raise RegistryUnavailable("the Schema Registry did not answer in time") from error
        except ssl.SSLCertVerificationError as error:
            raise RegistryUnavailable("the Schema Registry's certificate is not to be trusted") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RegistryUnavailable("the Schema Registry can't be reached") from error

    def _connected(self, deadline: Deadline) -> http.client.HTTPConnection:
        timeout_s = _left_s(deadline)
        if self._is_tls:
            if self._context is None:
                self._context = ssl.create_default_context(cafile=self._ca_file)
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection


def _left_s(deadline: Deadline) -> float:
    if not deadline.remaining_s:
        raise TimeoutError
    return deadline.remaining_s


def _body_of(response: http.client.HTTPResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := response.read(_READ_BYTES):
        parts.append(part)
        size += len(part)
        if size > LIMIT_BYTES:
            raise ValueError(f"more than {LIMIT_BYTES} bytes")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


class _Bounded:
    """A socket whose reads and writes all end by the deadline; a timeout of its own bounds each one alone."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left_s(self._deadline))
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Source(self._sock, self._deadline))

    def close(self) -> None:
        """Not yet: http.client closes its socket before it has read what comes from it."""


class _Source(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left_s(self._deadline))
        return self._sock.recv_into(buffer)
