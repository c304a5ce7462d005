"""Requests that no client would send, to the server alone: those of tests/e2e/test_raw_requests, and more."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.contract.hosts.case import SERVER, Case
from tests.e2e.test_raw_requests import a_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.hosts.case import Names

COUNT = 300
HEAD = b"Host: localhost\r\nConnection: close\r\n\r\n"
LINES = (
    *(
        b"GET /topics/a b/keys/c HTTP/1.1",
        b"GET HTTP/1.1",
        b"GET / HTTP/1.0",
        b"GET / HTTP/3.0",
        b"GET  / HTTP/1.1",
        b"nonsense",
    ),
    *(
        b"GET http://x/health HTTP/1.1",
        b"GET * HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT x:1 HTTP/1.1",
        b"GET /a#b HTTP/1.1",
    ),
    *(
        b"GET /topics/hosts-flights/keys/N14228 HTTP/1.0",
        b"GET /health#x HTTP/1.1",
        b"GET \xff HTTP/1.1",
        b"/ GET HTTP/1.1",
    ),
    *(
        b"GET /?" + b"a=b&" * 50_000 + b" HTTP/1.1",
        b"GET /" + b"a" * 420_000 + b" HTTP/1.1",
        b"GET /topics?limit=%zz HTTP/1.1",
    ),
)
HEADERS = (
    *(
        b": nameless",
        b"Bad Name: x",
        b"X: \x00",
        b"X: \x7f",
        b"X",
        b"\xff: y",
        b" folded: x",
        b"Prefer:  wait=0  ",
    ),
    *(
        b"Accept: \xff",
        b"If-None-Match: \xff",
        b"Keylane-Min-Position: \xc3\xbc",
        b"Content-Length: 1\r\nContent-Length: 2",
    ),
    *(
        b"Transfer-Encoding: gzip",
        b"Upgrade: websocket\r\nConnection: Upgrade",
        b"Upgrade: h2c",
        b"Connection: keep-alive",
    ),
)


def raw_cases(names: Names) -> Iterator[Case]:
    """`names` are of no use here: all of these read, or are refused."""
    requests = [b"%b\r\n%b" % (line, HEAD) for line in LINES]
    requests += [
        b"GET /topics/hosts-flights/keys/N14228 HTTP/1.1\r\n%b\r\n%b" % (header, HEAD) for header in HEADERS
    ]
    requests += [b"GET /health/live HTTP/1.1\r\n\r\n"]
    source = random.Random(5)
    drawn = (a_request(source) for _ in range(3 * COUNT))
    # What would open a stream, or wait, is in the other modules.
    kept = [each for each in drawn if b"wait" not in each and b"100-continue" not in each]
    for number, raw in enumerate([*requests, *kept[:COUNT]]):
        shown = raw.partition(b"\r\n")[0][:120].decode("latin-1")
        yield Case("RAW", "", hosts=(SERVER,), raw=raw, label=f"raw {number}: {shown!r}")


def own_page_cases(names: Names) -> Iterator[Case]:
    """Pages of the server itself."""
    paths = (
        *(
            "/health/live",
            "/health/ready",
            "/console",
            "/console/",
            "/console/index.html",
            "/console/x.js",
            "/console/../x",
        ),
        *(
            "/console/%2e%2e/x",
            "/console//",
            "/console/.git",
            "/health/live/",
            "/health/live?x=1",
            "/metrics/",
        ),
    )
    for path in paths:
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            yield Case(method, path, hosts=(SERVER,))
    for accept in ("*/*", "application/openmetrics-text", "text/plain", "text/html"):
        yield Case("GET", "/metrics", (("Accept", accept),), hosts=(SERVER,))
        yield Case("HEAD", "/metrics", (("Accept", accept),), hosts=(SERVER,))
