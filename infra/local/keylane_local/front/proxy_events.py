"""Between HTTP and Lambda, as API Gateway's REST APIs: requests to proxy events, answers to responses."""

from __future__ import annotations

import base64
import binascii
import json
import time
from dataclasses import dataclass
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
# The connection's own matter: the front's HTTP server writes them.
_HOP_BY_HOP = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"})
_MIN_STATUS, _MAX_STATUS = 200, 599
# All printable ASCII stays as the client wrote it; only what an HTTP path cannot hold is encoded.
_PATH_SAFE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request: `target` is raw (path and query still percent-encoded), headers in their order."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    source_ip: str


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response; a header may come several times."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Malformed(ValueError):
    """The function's answer is not one that API Gateway takes; the text says what is wrong with it."""


def proxy_event(request: Request, request_id: str, now_s: float | None = None) -> dict[str, Any]:
    """Return the REST API proxy event (payload format 1.0) of `request`; `now_s` is Unix time."""
    raw_path, _, raw_query = request.target.partition("?")
    path = quote(raw_path.encode("utf-8", "surrogateescape"), safe=_PATH_SAFE)
    query = parse_qsl(raw_query, keep_blank_values=True, errors="replace")
    headers = [(name, _clean(value)) for name, value in request.headers]
    body, is_base64 = _event_body(request.body, headers)
    now_s = time.time() if now_s is None else now_s
    return {
        "resource": RESOURCE,
        "path": path,
        "httpMethod": request.method,
        "headers": dict(headers) or None,
        "multiValueHeaders": _grouped(headers),
        "queryStringParameters": dict(query) or None,
        "multiValueQueryStringParameters": _grouped(query),
        "pathParameters": {"proxy": unquote(path[1:])} if len(path) > 1 else None,
        "stageVariables": None,
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "keylane",
            "httpMethod": request.method,
            "identity": {"sourceIp": request.source_ip, "userAgent": _one(headers, "user-agent")},
            "path": f"/{STAGE}{path}",
            "protocol": "HTTP/1.1",
            "requestId": request_id,
            "requestTime": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now_s)),
            "requestTimeEpoch": int(now_s * 1000),
            "resourceId": "proxy",
            "resourcePath": RESOURCE,
            "stage": STAGE,
        },
        "body": body,
        "isBase64Encoded": is_base64,
    }


def response_of(payload: bytes) -> Response:
    """Return the HTTP response of a function's answer (JSON); raise Malformed where it is none."""
    try:
        answer = json.loads(payload)
    except ValueError as error:
        raise Malformed(f"the answer is not JSON: {error}") from error
    if not isinstance(answer, dict):
        raise Malformed("the answer is not a JSON object")
    headers = _answer_headers(answer)
    if not any(name.lower() == "content-type" for name, _ in headers):
        headers.append(("Content-Type", "application/json"))
    return Response(_status(answer), tuple(headers), _answer_body(answer))


def message(status: int, text: str) -> Response:
    """Return a response of API Gateway's own: {"message": text}."""
    return Response(status, (("Content-Type", "application/json"),), json.dumps({"message": text}).encode())


def _clean(value: str) -> str:
    """Return a header's value with each byte that is not UTF-8 read as Latin-1, as HTTP's elders had it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]] | None:
    grouped: dict[str, list[str]] = {}
    for name, value in pairs:
        grouped.setdefault(name, []).append(value)
    return grouped or None


def _one(headers: Iterable[tuple[str, str]], wanted: str) -> str | None:
    return next((value for name, value in headers if name.lower() == wanted), None)


def _event_body(body: bytes, headers: list[tuple[str, str]]) -> tuple[str | None, bool]:
    """Return (body, is base64): text where the request says that it is text and it is."""
    if not body:
        return None, False
    kind = (_one(headers, "content-type") or "").partition(";")[0].strip().lower()
    textual = kind.startswith("text/") or kind in _TEXTUAL or kind.endswith(_TEXTUAL_SUFFIXES)
    if textual and (_one(headers, "content-encoding") or "identity") == "identity":
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True


def _status(answer: Mapping[str, Any]) -> int:
    status = answer.get("statusCode")
    if isinstance(status, str) and status.isdecimal():
        status = int(status)
    if not isinstance(status, int) or not _MIN_STATUS <= status <= _MAX_STATUS:
        raise Malformed(f"statusCode is {status!r}")
    return status


def _answer_headers(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Merge `headers` and `multiValueHeaders`; a name in both has the values of the latter, once each."""
    merged: dict[str, tuple[str, list[str]]] = {}
    for field in ("multiValueHeaders", "headers"):
        given = answer.get(field)
        if given is None:
            continue
        if not isinstance(given, dict):
            raise Malformed(f"{field} is not an object")
        for name, value in given.items():
            values = value if field == "multiValueHeaders" else [value]
            if not isinstance(values, list):
                raise Malformed(f"{field}.{name} is not a list")
            known = merged.setdefault(name.lower(), (name, []))[1]
            known.extend(text for text in map(_header_value, values) if text not in known)
    pairs = [(name, value) for name, values in merged.values() for value in values]
    for name, value in pairs:
        if not name.isascii() or any(char in name + value for char in "\r\n\0"):
            raise Malformed(f"header {name!r} cannot be sent")
    return [(name, value) for name, value in pairs if name.lower() not in _HOP_BY_HOP]


def _header_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise Malformed(f"a header's value is {type(value).__name__}")


def _answer_body(answer: Mapping[str, Any]) -> bytes:
    body = answer.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        raise Malformed(f"body is {type(body).__name__}, not a string")
    if not answer.get("isBase64Encoded"):
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed(f"body is not base64: {error}") from error
