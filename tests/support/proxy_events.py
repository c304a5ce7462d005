"""HTTP requests as proxy events, functions' responses as HTTP responses: what API Gateway's REST APIs do."""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STAGE = "local"
RESOURCE = "/{proxy+}"
_TEXTUAL = (
    "application/json",
    "application/xml",
    "application/javascript",
    "application/x-www-form-urlencoded",
)
_TEXTUAL_SUFFIXES = ("+json", "+xml")
# Headers of the connection: an HTTP server writes them itself.
_HOP_BY_HOP = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"})
_MIN_STATUS, _MAX_STATUS = 200, 599
# Printable ASCII stays as the client wrote it; only what an HTTP path cannot hold is percent-encoded.
_PATH_SAFE = "".join(map(chr, range(0x21, 0x7F)))
_PRINTABLE = re.compile("[!-~]*")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request. `target` is the raw path and query, percent-encoded; headers keep their order."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    source_ip: str


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response; a header name may occur several times."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class MalformedResponse(ValueError):
    """API Gateway would reject the function's response; the text says why."""


def build_proxy_event(request: HttpRequest, request_id: str, now_s: float | None = None) -> dict[str, Any]:
    """Return the REST API proxy event (payload format 1.0) of `request`; `now_s` is Unix time."""
    raw_path, _, raw_query = request.target.partition("?")
    path = encode_path(raw_path)
    query = parse_qsl(raw_query, keep_blank_values=True, errors="replace") if raw_query else []
    headers = [(name, _decode_header(value)) for name, value in request.headers]
    body, is_base64 = _encode_body(request.body, headers)
    now_s = time.time() if now_s is None else now_s
    return {
        "resource": RESOURCE,
        "path": path,
        "httpMethod": request.method,
        "headers": dict(headers) or None,
        "multiValueHeaders": group_by_name(headers),
        "queryStringParameters": dict(query) or None,
        "multiValueQueryStringParameters": group_by_name(query),
        "pathParameters": {"proxy": unquote(path[1:])} if len(path) > 1 else None,
        "stageVariables": None,
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "keylane",
            "httpMethod": request.method,
            "identity": {"sourceIp": request.source_ip, "userAgent": _find_header(headers, "user-agent")},
            "path": f"/{STAGE}{path}",
            "protocol": "HTTP/1.1",
            "requestId": request_id,
            "requestTime": _request_time(int(now_s)),
            "requestTimeEpoch": int(now_s * 1000),
            "resourceId": "proxy",
            "resourcePath": RESOURCE,
            "stage": STAGE,
        },
        "body": body,
        "isBase64Encoded": is_base64,
    }


def encode_path(path: str) -> str:
    """Return a path as it was sent, with bytes percent-encoded that a path can't hold."""
    if _PRINTABLE.fullmatch(path):
        return path
    return quote(path.encode("utf-8", "surrogateescape"), safe=_PATH_SAFE)


@lru_cache(maxsize=2)
def _request_time(unix_s: int) -> str:
    return time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(unix_s))


def parse_function_response(payload: bytes) -> HttpResponse:
    """Parse a function's response, JSON with `statusCode`, `headers` and `body`; raise MalformedResponse."""
    try:
        response = json.loads(payload)
    except ValueError as error:
        raise MalformedResponse(f"the response is not valid JSON: {error}") from error
    if not isinstance(response, dict):
        raise MalformedResponse("the response is not a JSON object")
    headers = _merge_headers(response)
    if not any(name.lower() == "content-type" for name, _ in headers):
        headers.append(("Content-Type", "application/json"))
    return HttpResponse(_parse_status(response), tuple(headers), _decode_body(response))


def render_message(status: int, text: str) -> HttpResponse:
    """Return a response as API Gateway itself gives it: {"message": text}."""
    return HttpResponse(
        status, (("Content-Type", "application/json"),), json.dumps({"message": text}).encode()
    )


def _decode_header(value: str) -> str:
    """Return a header's value, decoded as Latin-1 (HTTP/1.0's rule) if it is not valid UTF-8."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value


def group_by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]] | None:
    """Return the values of each name; None without any."""
    grouped: dict[str, list[str]] = {}
    for name, value in pairs:
        grouped.setdefault(name, []).append(value)
    return grouped or None


def _find_header(headers: Iterable[tuple[str, str]], wanted: str) -> str | None:
    return next((value for name, value in headers if name.lower() == wanted), None)


def _encode_body(body: bytes, headers: list[tuple[str, str]]) -> tuple[str | None, bool]:
    """Return (body, is base64): a string if the Content-Type is textual and the bytes are valid UTF-8."""
    if not body:
        return None, False
    kind = (_find_header(headers, "content-type") or "").partition(";")[0].strip().lower()
    textual = kind.startswith("text/") or kind in _TEXTUAL or kind.endswith(_TEXTUAL_SUFFIXES)
    if textual and (_find_header(headers, "content-encoding") or "identity") == "identity":
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True


def _parse_status(response: Mapping[str, Any]) -> int:
    status = response.get("statusCode")
    if isinstance(status, str) and status.isdecimal():
        status = int(status)
    if not isinstance(status, int) or not _MIN_STATUS <= status <= _MAX_STATUS:
        raise MalformedResponse(
            f"statusCode is {status!r}, not an integer from {_MIN_STATUS} to {_MAX_STATUS}"
        )
    return status


def _merge_headers(response: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Merge `multiValueHeaders` and `headers`; a value that a name has in both is sent once."""
    merged: dict[str, tuple[str, list[str]]] = {}
    for field in ("multiValueHeaders", "headers"):
        given = response.get(field)
        if given is None:
            continue
        if not isinstance(given, dict):
            raise MalformedResponse(f"{field} is not an object")
        for name, value in given.items():
            values = value if field == "multiValueHeaders" else [value]
            if not isinstance(values, list):
                raise MalformedResponse(f"{field}.{name} is not an array")
            known = merged.setdefault(name.lower(), (name, []))[1]
            known.extend(text for text in map(_render_header_value, values) if text not in known)
    pairs = [(name, value) for name, values in merged.values() for value in values]
    for name, value in pairs:
        if not name.isascii() or any(char in name + value for char in "\r\n\0"):
            raise MalformedResponse(f"the header {name!r} has a character that HTTP does not allow")
    return [(name, value) for name, value in pairs if name.lower() not in _HOP_BY_HOP]


def _render_header_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise MalformedResponse(f"a header's value is {type(value).__name__}, not a string, number or boolean")


def _decode_body(response: Mapping[str, Any]) -> bytes:
    body = response.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        raise MalformedResponse(f"body is {type(body).__name__}, not a string")
    if not response.get("isBase64Encoded"):
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedResponse(f"body is not base64: {error}") from error
