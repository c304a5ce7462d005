"""A response of the API, before it takes API Gateway's shape.

Powertools has a class like it; importing its event handlers costs a cold function 19 ms of 137.
"""

import base64
from typing import Any, Generic, TypeVar

Body = TypeVar("Body")

ANSWER_LIMIT_BYTES = 6_000_000
"""A Lambda may return 6 MiB of JSON, in which a body is a string: escaped, or in base64."""


class Response(Generic[Body]):
    """A status, a body, and headers, `content_type` among them; the body is text, bytes or None.

    `router.serve` reports three fields as metrics: `problem` is the type of a problem document, empty for
    other bodies; `ages` are the topic and the age in milliseconds of each answer in the body; `method` is the
    name of the request, by default that of its handler.
    """

    __slots__ = ("ages", "body", "headers", "method", "problem", "status_code")

    def __init__(
        self, status_code: int, content_type: str | None, body: Body, headers: dict[str, str] | None = None
    ) -> None:
        self.status_code = status_code
        self.body = body
        self.headers = headers or {}
        self.method = ""
        self.problem = ""
        self.ages: tuple[tuple[str, int], ...] = ()
        if content_type:
            self.headers.setdefault("Content-Type", content_type)


def to_proxy_response(response: Response[Any]) -> dict[str, Any]:
    """Return what API Gateway takes from a function: bytes as base64, each header a list."""
    body = response.body
    return {
        "statusCode": response.status_code,
        "body": base64.b64encode(body).decode() if isinstance(body, bytes) else body,
        "isBase64Encoded": isinstance(body, bytes),
        "multiValueHeaders": {name: [value] for name, value in response.headers.items()},
    }
