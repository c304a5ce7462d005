"""What API Gateway's REST APIs do: requests become events of functions, and their answers responses."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

from tests.contract.hosts.case import Answer
from tests.contract.hosts.http1 import HOST
from tests.support.cloudformation import of_type, template

from keylane.model.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.contract.hosts.case import Case

STAGE = "v1"
SOURCE_IP = "127.0.0.1"
REGION = "eu-west-1"
_NOW_MS = 1_795_257_709_908
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_NAME = re.compile(r"{\w+}")
PATTERNS = [
    (re.compile(_NAME.sub("[^/]*", re.escape(route.path).replace(r"\{", "{").replace(r"\}", "}"))), route)
    for route in ROUTES
]


def operation_of(method: str, path: str) -> str:
    """The name of the route that a request is for, "" without one; a path has no base path."""
    found = [route for pattern, route in PATTERNS if pattern.fullmatch(path) and method in route.methods]
    return found[0].name if found else ""


def function_of(method: str, path: str) -> str:
    """The function that gets the request; one that no route takes goes to the function of its path."""
    found = [route for pattern, route in PATTERNS if pattern.fullmatch(path)]
    found += [route for pattern, route in PATTERNS if pattern.fullmatch(path.rstrip("/"))]
    own = [route for route in found if method in route.methods]
    return next((route.function for route in (*own, *found)), "query")


def proxy_event(
    case: Case,
    request_id: str,
    authorizer: Mapping[str, str] | None = None,
    *,
    as_text: bool = False,
) -> dict[str, Any]:
    """The event (payload format 1.0) that a function gets; `authorizer`: as `authorizer_context` returns it.

    The API takes every media type as binary, so bodies are base64; `as_text`: as local gateways pass JSON.
    """
    path, _, raw_query = case.target.partition("?")
    path = _encode_path(path)
    query = parse_qsl(raw_query, keep_blank_values=True, errors="replace")
    headers = [(name, _decode_header(value)) for name, value in case.headers]
    if not any(name.lower() == "host" for name, _ in headers):
        headers.append(("Host", HOST))
    body, is_base64 = _encode_body(case.body, as_text=as_text)
    context = {
        "accountId": "000000000000",
        "apiId": "keylane",
        "httpMethod": case.method,
        "identity": {"sourceIp": SOURCE_IP, "userAgent": None},
        "path": f"/{STAGE}{path}",
        "protocol": "HTTP/1.1",
        "requestId": request_id,
        "requestTimeEpoch": _NOW_MS,
        "stage": STAGE,
    }
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": case.method,
        "headers": dict(headers),
        "multiValueHeaders": _grouped(headers),
        "queryStringParameters": dict(query) or None,
        "multiValueQueryStringParameters": _grouped(query) or None,
        "pathParameters": {"proxy": unquote(path[1:])},
        "stageVariables": None,
        "requestContext": context | ({} if authorizer is None else {"authorizer": {**authorizer}}),
        "body": body,
        "isBase64Encoded": is_base64,
    }


def authorizer_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a REQUEST authorizer for the event of a function."""
    kept = (
        *("resource", "path", "httpMethod", "headers", "multiValueHeaders", "queryStringParameters"),
        *("multiValueQueryStringParameters", "pathParameters", "stageVariables", "requestContext"),
    )
    arn = f"arn:aws:execute-api:{REGION}:000000000000:keylane/{STAGE}/{event['httpMethod']}{event['path']}"
    return {"type": "REQUEST", "methodArn": arn, **{name: event[name] for name in kept}}


def authorizer_context(result: Mapping[str, Any]) -> dict[str, str]:
    """What a function behind it gets of an authorizer's result: the principal, and the context as strings."""
    given: dict[str, Any] = result.get("context") or {}
    assert all(isinstance(each, str | bool | int | float) for each in given.values())
    texts = {name: each if isinstance(each, str) else json.dumps(each) for name, each in given.items()}
    return {**texts, "principalId": result["principalId"], "integrationLatency": "0"}


def response_of(answer: Mapping[str, Any], method: str) -> Answer:
    """The response that a client gets; a type that the function did not give is JSON's."""
    headers = [(name, value) for name, values in answer["multiValueHeaders"].items() for value in values]
    if not any(name.lower() == "content-type" for name, _ in headers):
        headers.append(("Content-Type", "application/json"))
    body: str = answer["body"] or ""
    data = (
        base64.b64decode(body, validate=True)
        if answer["isBase64Encoded"]
        else body.encode("utf-8", "surrogatepass")
    )
    if method == "HEAD" and data:
        return Answer(0, (), b"a HEAD has a body: " + data)
    return Answer(answer["statusCode"], tuple(headers), data)


def refusal(kind: str, message: str, request_id: str, origin: str) -> Answer:
    """What API Gateway answers itself, as template.yaml says. `origin`: whose pages may read it, or ""."""
    described = _refusals()[kind]
    values = {"$context.error.messageString": json.dumps(message), "$context.requestId": request_id}
    body = described["responseTemplates"]["application/json"]
    for name, value in values.items():
        body = body.replace(name, value)
    headers = []
    for name, value in described["responseParameters"].items():
        text = value if isinstance(value, str) else f"'{origin}'"
        if text != "''":
            headers.append((name.removeprefix("gatewayresponse.header."), text.strip("'")))
    return Answer(described["statusCode"], (*headers, ("x-amzn-RequestId", request_id)), body.encode())


@cache
def _refusals() -> dict[str, Any]:
    [api] = of_type(template(), "AWS::Serverless::Api").values()
    found: dict[str, Any] = api["Properties"]["DefinitionBody"]["x-amazon-apigateway-gateway-responses"]
    return found


def _encode_path(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"), safe=_PRINTABLE)


def _decode_header(value: str) -> str:
    """A header's value without spaces around it, decoded as Latin-1 (HTTP/1.0's rule) if it is not UTF-8."""
    value = value.strip(" \t")
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value


def _encode_body(body: bytes, *, as_text: bool) -> tuple[str | None, bool]:
    if not body:
        return None, False
    if as_text:
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, value in pairs:
        grouped.setdefault(name, []).append(value)
    return grouped
