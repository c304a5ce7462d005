"""Requests and answers as clients of REST Proxy, or of Karapace, expect them: `KEYLANE_REST_COMPATIBILITY`.

rest-proxy   documents of v2 for any `Accept` that fits JSON, unless it names application/vnd.keylane+json;
             the media types of v1 as `Content-Type`, application/json and application/octet-stream as binary
karapace     the same, and Karapace's statuses, codes and messages where they differ from REST Proxy's

The request is changed before the operation parses it, Karapace's answer after the operation has made it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from keylane.api.http.preferences import weights_of
from keylane.api.http.router import Compatibility
from keylane.api.rest_proxy.v2_answers import JSON as V2
from keylane.api.rest_proxy.v2_answers import UNPROCESSABLE
from keylane.api.rest_proxy.v2_schemas import NO_SCHEMA, NOT_OF_SCHEMA, REFUSED
from keylane.errors import NotAcceptable

if TYPE_CHECKING:
    from keylane.api.http.request import Request
    from keylane.api.http.response import Response

REST_PROXY, KARAPACE = MODES = "rest-proxy", "karapace"
OWN = "application/vnd.keylane+json"
_FORMAT = r"vnd\.kafka(?:\.(avro|json|protobuf|binary|jsonschema))?(?:\.v[12])?\+json"
_ACCEPTED = re.compile(rf"(?:application|\*)/(?:{_FORMAT}|json|\*)")
_CONTENT = re.compile(rf"application/(?:{_FORMAT}|json|octet-stream)")
_TOPIC = re.compile(r"^topic '([^']+)' is unknown")
_TOO_LARGE = (
    "The server has a configurable maximum message size to avoid unbounded memory allocation. "
    "This error is thrown if the client attempt to produce a message larger than this maximum."
)
NOT_FOUND, TIMEOUT, TOO_LARGE = 404, 408, 413
LARGEST_BODY_BYTES = 1_048_576
"""Karapace refuses larger bodies at once. Here the status says so where a record is too large as well."""
UNKNOWN_TOPIC, UNKNOWN_TOPIC_OR_PARTITION, RETRIEVAL = 40401, 40403, 40801
FATAL, RETRIABLE = 1, 2


def adapt_request(request: Request) -> Request:
    """Return the request as an operation of v2 takes it. Raises NotAcceptable."""
    headers = dict(request.headers)
    if request.method == "POST":
        given = headers.get("content-type", "application/json")
        media_type, _, parameters = given.partition(";")
        found = _CONTENT.fullmatch(media_type.strip().lower())
        if found:
            headers["content-type"] = f"application/vnd.kafka.{found[1] or 'binary'}.v2+json;{parameters}"
        return request._replace(headers=headers)
    accept = headers.get("accept", "")
    weights = weights_of(accept)
    if OWN in weights:
        return request
    if accept and not any(_ACCEPTED.fullmatch(name) and weight > 0 for name, weight in weights.items()):
        raise NotAcceptable(accept, V2)
    headers["accept"] = V2
    return request._replace(headers=headers)


def adapt_answer(request: Request, response: Response[Any]) -> Response[Any]:
    """Return an answer of v2 as Karapace gives it; other answers as they are."""
    try:
        document = json.loads(response.body or "")
    except ValueError:
        return response
    if not isinstance(document, dict):
        return response
    if "error_code" in document:
        _adapt_error(request, response, document)
    elif "offsets" in document:
        _adapt_offsets(request, response, document["offsets"])
    response.body = json.dumps(document)
    return response


def _adapt_error(request: Request, response: Response[Any], document: dict[str, Any]) -> None:
    code, parameter = document["error_code"], document.get("parameter", "")
    message = document["message"]
    if code == NOT_OF_SCHEMA:
        _set(response, document, UNPROCESSABLE, NO_SCHEMA, "Object does not fit to stored schema")
    elif code == REFUSED and parameter.endswith("_schema_id"):
        kind = (_CONTENT.match(request.headers.get("content-type", "")) or ["", ""])[1] or ""
        what = f"Invalid schema. format = {kind.upper()}, schema_id = {_field(request, parameter)}"
        _set(response, document, UNPROCESSABLE, NO_SCHEMA, what)
    elif code == REFUSED:
        _set(response, document, TIMEOUT, RETRIEVAL, f"Error when registering schema. {message}")
    elif code == UNKNOWN_TOPIC and (topic := _TOPIC.match(message)):
        is_description = request.method != "POST" and request.path.endswith(f"/topics/{topic[1]}")
        known = UNKNOWN_TOPIC_OR_PARTITION if is_description else UNKNOWN_TOPIC
        _set(response, document, NOT_FOUND, known, f"Topic {topic[1]} not found")
    elif parameter == "partition" and request.method != "POST":
        _set(response, document, NOT_FOUND, NOT_FOUND, message)


def _set(response: Response[Any], document: dict[str, Any], status: int, code: int, message: str) -> None:
    response.status_code = document["status"] = status
    document["error_code"], document["message"] = code, message


def _field(request: Request, name: str) -> Any:
    try:
        return json.loads(request.content()).get(name)
    except (ValueError, AttributeError):
        return None


def _adapt_offsets(request: Request, response: Response[Any], offsets: list[dict[str, Any]]) -> None:
    for each in offsets:
        if each["error_code"] is None:
            continue
        response.status_code = UNPROCESSABLE
        each["error_code"] = RETRIABLE if each.get("retriable") else FATAL
        if each.get("code") == "MESSAGE_TOO_LARGE":
            each["error"] = _TOO_LARGE
            if len(request.body) > LARGEST_BODY_BYTES:
                response.status_code = TOO_LARGE


COMPATIBLE = Compatibility(adapt_request, {KARAPACE: adapt_answer})
