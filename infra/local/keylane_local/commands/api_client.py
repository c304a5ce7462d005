"""Requests to a deployed API: with an API key, an Authorization header or AWS' signature."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from keylane_client import NoCredentials, SigV4
from keylane_local.errors import BadInput, StackError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROBLEM = "urn:keylane:problem:"
_SHOWN = 300


class ApiUnreachable(StackError):
    """No answer came; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """How the API lets a caller in. `region`: sign requests for it with the AWS credentials at hand."""

    api_key: str | None = field(default=None, repr=False)
    authorization: str | None = field(default=None, repr=False)
    region: str | None = None


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A status, headers by their names in lower case, and the body's bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The body as a JSON object; an empty one where it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def problem(self) -> str:
        """The name of the problem's type, "" where the answer is not of the functions."""
        kind = str(self.document.get("type", ""))
        return kind.removeprefix(_PROBLEM) if kind.startswith(_PROBLEM) else ""

    @property
    def detail(self) -> str:
        """What the body says, in one line."""
        document = self.document
        said = document.get("detail") or document.get("message") or self.body.decode(errors="replace")
        return " ".join(str(said).split())[:_SHOWN]


class ApiClient:
    """One server, and the path below which its routes are."""

    def __init__(self, url: str, access: ApiAccess) -> None:
        """Raises BadInput for what is not an http or https URL."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise BadInput("the URL must be http or https with a host, as in the stack's output ApiUrl")
        self._parts = parts
        self._host = parts.hostname
        self._access = access

    def request(
        self, method: str, path: str, timeout_s: float, body: bytes | None = None, **headers: str
    ) -> ApiAnswer:
        """Send one request. Underscores in the headers' names are hyphens. Raises ApiUnreachable."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._access.api_key:
            given["x-api-key"] = self._access.api_key
        if self._access.authorization:
            given["Authorization"] = self._access.authorization
        path = self._parts.path.rstrip("/") + path
        if self._access.region:
            given = self._signed(method, path, body, given)
        connection = self._connection(timeout_s)
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return ApiAnswer(answer.status, found, answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise ApiUnreachable(_why(error, self._host, timeout_s)) from error
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(self._host, self._parts.port, timeout=timeout_s)
        return http.client.HTTPConnection(self._host, self._parts.port, timeout=timeout_s)

    def _signed(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> dict[str, str]:
        """The headers with AWS' signature (version 4). Raises BadInput without credentials."""
        url = f"{self._parts.scheme}://{self._parts.netloc}{path}"
        request = httpx.Request(method, url, headers=dict(headers), content=body)
        try:
            return dict(next(SigV4(self._access.region).auth_flow(request)).headers.items())
        except NoCredentials as error:
            raise BadInput(str(error)) from error


def _why(error: Exception, host: str, timeout_s: float) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {host} is not valid: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return (
            f"{host} did not answer within {timeout_s:.0f} s: is the API private, or a firewall on the way?"
        )
    if isinstance(error, ConnectionRefusedError):
        return f"{host} refuses connections: is the port right, and is the stack up?"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return f"{host} can't be reached ({error}): is the URL that of the stack's output ApiUrl?"
    return f"the connection to {host} broke: {error}"
