"""How a client connects: its URL, and what it is made with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import urlsplit

import httpx

from keylane_client.context import Context
from keylane_client.retries import RetryPolicy

if TYPE_CHECKING:
    from keylane_client.parsing import Loads

CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """`timeout_s`: for one answer; a read may wait for 20 s, and API Gateway answers within 29 s.

    `idempotent_writes`: each write has an idempotency key of its own, so it can be sent again.

    The service needs an idempotency store for that. `loads` parses JSON: with
    `functools.partial(json.loads, parse_float=decimal.Decimal)` no digit of a number is lost.
    """

    timeout_s: float = 35.0
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    idempotent_writes: bool = False
    loads: Loads = json.loads

    def context(self) -> Context:
        """Return what all requests have in common."""
        return Context(self.loads, self.idempotent_writes)


class HttpOptions(TypedDict):
    """What httpx' two clients both take."""

    base_url: str
    auth: httpx.Auth | None
    timeout: httpx.Timeout
    headers: dict[str, str]


def http_options(url: str, auth: httpx.Auth | None, options: ClientOptions) -> HttpOptions:
    """Return httpx' options. Raises ValueError for what is not the URL of an API."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is not the URL of an API: write http or https, a host, and no query")
    return {
        "base_url": url.rstrip("/"),
        "auth": auth,
        "timeout": httpx.Timeout(options.timeout_s, connect=min(CONNECT_TIMEOUT_S, options.timeout_s)),
        "headers": {"User-Agent": "keylane-client", "Accept": "application/json, */*;q=0.5"},
    }
