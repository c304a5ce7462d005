"""The resolver that the functions share: their routes, and an answer to everything else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver

from keylane import problems
from keylane.api import request_id_of
from keylane.errors import BadRequest, NullKey

if TYPE_CHECKING:
    from aws_lambda_powertools.event_handler import Response

    from keylane.api import Event

KEY = "/topics/<topic>/keys/<key>"
METHODS = ("GET", "HEAD", "PUT", "DELETE")
_KEY_PATH = re.compile(r"/topics/([^/]*)/keys(?:/([^/]*))?/*")


def resolver() -> APIGatewayRestResolver:
    """Give a resolver that answers every error as a problem document, unknown routes and methods too."""
    app = APIGatewayRestResolver()

    def failed(error: Exception) -> Response[str]:
        return problems.response_to(error, request_id_of(app.current_event.raw_event))

    def not_found(_: Exception) -> Response[str]:
        return _no_route(app.current_event.raw_event)

    app.exception_handler(Exception)(failed)
    app.not_found(not_found)
    return app


def serve(app: APIGatewayRestResolver, event: Event, context: Any) -> dict[str, Any]:
    """Answer one event, whatever it is; a HEAD as its GET, without the body."""
    try:
        answer = app.resolve(event, context)
    except Exception as error:  # noqa: BLE001 (the last resort: an event that is none of API Gateway's)
        problem = problems.response_to(error, request_id_of(event if isinstance(event, dict) else {}))
        return {
            "statusCode": problem.status_code,
            "body": problem.body,
            "isBase64Encoded": False,
            "multiValueHeaders": {name: [value] for name, value in problem.headers.items()},
        }
    if event["httpMethod"] == "HEAD":
        answer |= {"body": "", "isBase64Encoded": False}
    return answer


def _no_route(event: Event) -> Response[str]:
    """Tell what is wrong with a path and method that no route of the function takes."""
    request_id = request_id_of(event)
    path = _KEY_PATH.fullmatch(event["path"])
    if not path:
        detail = "keys are at /topics/{topic}/keys/{key}; a slash in a key is written %2F"
        return problems.problem(problems.UNKNOWN_ROUTE, detail, request_id)
    if event["httpMethod"] not in METHODS:
        allow = ", ".join(METHODS)
        headers = {"Allow": allow}
        return problems.problem(problems.WRONG_METHOD, f"it takes {allow}", request_id, headers=headers)
    if not path[1]:
        return problems.response_to(BadRequest("the topic's name is empty", "topic"), request_id)
    if not path[2]:
        return problems.response_to(NullKey(), request_id)
    error = BadRequest("the path holds a character that must be percent-encoded", "key")
    return problems.response_to(error, request_id)
