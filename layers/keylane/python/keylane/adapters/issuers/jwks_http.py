"""Fetches an issuer's keys: one GET, of bounded time and bytes, of the address that the policy names.

Redirects are not followed, so an answer can't lead to another host; nothing of a token is sent.
"""

import http.client
import ssl
from contextlib import closing
from urllib.parse import urlsplit

from keylane.access.policy import Issuer
from keylane.adapters.deadline_sockets import DeadlineSocket, open_socket, remaining_s
from keylane.adapters.issuers.jwk import IssuerKey, read_jwks
from keylane.errors import IssuerUnavailable
from keylane.ports import Clock, Deadline

TIMEOUT_MS = 3_000
BODY_LIMIT_BYTES = 256 * 1024
_OK = 200


def fetch_keys(issuer: Issuer, clock: Clock) -> tuple[IssuerKey, ...]:
    """Return the keys that are at the issuer's `jwks_uri`. Blocks for up to TIMEOUT_MS.

    For longer alone where the host's name can't be resolved. Raises IssuerUnavailable, whose cause says more
    than clients should see.
    """
    try:
        return read_jwks(_get(issuer.jwks_uri or "", Deadline.after_ms(TIMEOUT_MS, clock)))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise IssuerUnavailable("the keys of the token's issuer can't be fetched at the moment") from error


def _get(url: str, deadline: Deadline) -> bytes:
    parts = urlsplit(url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (http.client.HTTPS_PORT if is_tls else http.client.HTTP_PORT)
    with closing(open_socket(host, port, deadline)) as plain:
        sock = plain
        if is_tls:
            plain.settimeout(remaining_s(deadline))
            sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        with closing(sock):
            kind = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
            connection = kind(host, port)
            connection.sock = DeadlineSocket(sock, deadline)
            path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            connection.request("GET", path, headers={"Accept": "application/jwk-set+json, application/json"})
            response = connection.getresponse()
            if response.status != _OK:
                raise ValueError(f"the answer has the status {response.status}")
            body = response.read(BODY_LIMIT_BYTES + 1)
            if len(body) > BODY_LIMIT_BYTES:
                raise ValueError(f"the answer has more than {BODY_LIMIT_BYTES:,} bytes")
            return body
