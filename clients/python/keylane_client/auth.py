"""Credentials of requests: an API key, a bearer token, or AWS' signature."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import httpx

from keylane_client.errors import InvalidArgument, NoCredentials

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_SERVICE = "execute-api"
_REGION_OF_HOST = re.compile(r"\.execute-api\.([a-z0-9-]+)\.")
_UNSIGNED = frozenset({"connection", "user-agent", "accept-encoding", "accept", "content-length"})
"""Headers that proxies may change: a signature that has them would not be valid behind one."""

AuthFlow = Generator[httpx.Request, httpx.Response, None]


class ApiKey(httpx.Auth):
    """A key of API Gateway, or a token of `keylane serve`, in `x-api-key`."""

    def __init__(self, key: str) -> None:
        self._key = key

    def auth_flow(self, request: httpx.Request) -> AuthFlow:
        """Add the key."""
        request.headers["x-api-key"] = self._key
        yield request


class Bearer(httpx.Auth):
    """A bearer token, or a function that returns one: it is called for each request, so it may renew it."""

    def __init__(self, token: str | Callable[[], str]) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> AuthFlow:
        """Add the token."""
        token = self._token if isinstance(self._token, str) else self._token()
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


class SigV4(httpx.Auth):
    """AWS' signature, version 4, for `Authorization=AWS_IAM`. Needs the extra `keylane-client[aws]`.

    `region`: the one in the URL's host, if it is None. `credentials`: those that botocore finds (environment,
    profile, role), if it is None; they are renewed as botocore does it.
    """

    requires_request_body = True

    def __init__(self, region: str | None = None, credentials: Credentials | None = None) -> None:
        """Raises NoCredentials if botocore finds none, ImportError without the extra."""
        self._region = region
        self._credentials: Any = credentials if credentials is not None else _find_credentials()

    def auth_flow(self, request: httpx.Request) -> AuthFlow:
        """Sign the request. Raises InvalidArgument if the region is neither given nor in the URL."""
        from botocore.auth import SigV4Auth  # noqa: PLC0415 (of the extra)
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415

        region = self._region or region_of(request.url.host)
        if region is None:
            raise InvalidArgument(f"the host {request.url.host} does not name a region: give SigV4 one")
        headers = {name: value for name, value in request.headers.items() if name not in _UNSIGNED}
        to_sign = AWSRequest(request.method, str(request.url), headers, request.content)
        SigV4Auth(self._credentials.get_frozen_credentials(), _SERVICE, region).add_auth(to_sign)
        request.headers.update(dict(to_sign.headers.items()))
        yield request


def region_of(host: str) -> str | None:
    """Return the region that the name of API Gateway's host has."""
    found = _REGION_OF_HOST.search(host)
    return found[1] if found else None


def _find_credentials() -> Any:
    from botocore.session import Session  # noqa: PLC0415 (of the extra)

    found = Session().get_credentials()
    if found is None:
        raise NoCredentials("no AWS credentials are found: log in, or set AWS_PROFILE")
    return found
