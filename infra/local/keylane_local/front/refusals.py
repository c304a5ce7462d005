"""Requests that the front's HTTP parser refuses, as problem documents: no function sees them."""

from __future__ import annotations

from typing import NamedTuple

from aiohttp.http_exceptions import LineTooLong

from keylane.api import problems
from keylane.api.problems import Problem
from keylane_serve.proxy_events import HttpResponse

LINE_LIMIT_BYTES = 256 * 1024
"""Room for a percent-encoded key of 64 KiB: longer ones are for the function to reject."""
HEADER_LIMIT_BYTES = 10_240
"""Of one header. API Gateway has this limit for the request line and all headers together."""
MALFORMED = Problem(400, "malformed-request", "The request is not valid HTTP")
URI_TOO_LONG = Problem(414, "uri-too-long", "The request's path and query are too long")
HEADERS_TOO_LARGE = Problem(431, "headers-too-large", "The request's headers are too large")
UNKNOWN_CODING = Problem(501, "unknown-transfer-coding", "The request's transfer coding is not supported")
_TOO_MANY = "Too many headers"


class Refusal(NamedTuple):
    """Why a request is refused."""

    kind: Problem
    detail: str

    def render(self, request_id: str) -> HttpResponse:
        """Render the problem document."""
        found = problems.problem(self.kind, self.detail, request_id)
        return HttpResponse(found.status_code, tuple(found.headers.items()), found.body.encode())


def refusal_of(error: BaseException | None, message: str | None) -> Refusal:
    """Return the refusal for an error of aiohttp's parser; `message` is the parser's own."""
    if isinstance(error, LineTooLong):
        if error.args[1] == LINE_LIMIT_BYTES:
            return Refusal(URI_TOO_LONG, f"path and query have more than {LINE_LIMIT_BYTES} bytes")
        return Refusal(HEADERS_TOO_LARGE, f"a header has more than {HEADER_LIMIT_BYTES} bytes")
    # The lines after the first one show the bytes at fault.
    what = (message or "the request could not be parsed").partition("\n")[0].rstrip(":")
    return Refusal(HEADERS_TOO_LARGE if what.startswith(_TOO_MANY) else MALFORMED, what)


def unknown_coding(transfer_encoding: str) -> Refusal | None:
    """Return the refusal of a body with a transfer coding beside `chunked` (RFC 9112, 6.1); None without."""
    if transfer_encoding.strip().lower() in {"", "chunked"}:
        return None
    shown = transfer_encoding[:100]
    return Refusal(UNKNOWN_CODING, f"Transfer-Encoding is {shown!r}: compress with Content-Encoding: gzip")
