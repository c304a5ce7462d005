"""A response of the API, before it takes API Gateway's shape.

Powertools has a class like it; importing its event handlers costs a cold function 19 ms of 137.
"""

from typing import Generic, TypeVar

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
