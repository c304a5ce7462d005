"""`Idempotency-Key`: a write that is sent again with its key is answered as it was, and not written again.

The key is its caller's own: the same key of another caller is another key. Who is not known by name shares
keys with all that are not: they should be hard to guess, as UUIDs are. It stands for one request, by
method, path, query, media type and body. What is answered:

    the first time         as without a key
    the same request       the same status, headers and body, and `Idempotency-Replayed: true`
    while it is written    409 `request-in-progress`
    another request        422 `idempotency-key-reused`

An answer is kept where a record was written. Where none was, surely or maybe, the key is free again: the
request may be repeated as it is. So one that Kafka did not acknowledge may be written twice, and so may one
whose function was killed before it could keep its answer: the claim runs out, and the key is free.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from keylane.api.event import body_of, headers_of
from keylane.api.parameters import Parameter
from keylane.api.response import Response
from keylane.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.api.event import Event
    from keylane.ports import Answers

LONGEST_KEY = 255
_VISIBLE = re.compile(rf"[!-~]{{1,{LONGEST_KEY}}}")


def _read_key(given: str) -> str:
    if not _VISIBLE.fullmatch(given):
        raise ValueError(f"not 1 to {LONGEST_KEY} visible ASCII characters")
    return given


IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "a text of the client's own: sent again with it, the request is answered as before, not written again",
    {"type": "string", "pattern": f"^[!-~]{{1,{LONGEST_KEY}}}$"},
    _read_key,
    place="header",
)


def answered(
    answers: Answers | None,
    key: str,
    scope: str,
    event: Event,
    make: Callable[[], tuple[Response[str], bool]],
) -> Response[str]:
    """Give the answer that is remembered, or make it; `make` tells with it whether it is to be remembered.

    `scope`: whose key it is. Raises BadRequest where nothing can be remembered here, what `Answers.claim` and
    `make` raise.
    """
    if answers is None:
        raise BadRequest(
            "no Idempotency-Key is taken here: there is no Redis to remember it",
            IDEMPOTENCY_KEY.name,
        )
    name = hashlib.sha256(f"{scope}\0{key}".encode()).hexdigest()
    claim, kept = answers.claim(name, _fingerprint(event))
    if kept is not None:
        return _replayed(kept)
    answer = None
    try:
        response, is_kept = make()
        if is_kept:
            answer = json.dumps([response.status_code, response.headers, response.body]).encode()
    finally:
        answers.settle(name, claim, answer)
    return response


def _replayed(kept: bytes) -> Response[str]:
    status, headers, body = json.loads(kept)
    return Response(status, None, body, headers | {"Idempotency-Replayed": "true"})


def _fingerprint(event: Event) -> bytes:
    query: dict[str, Any] = event.get("multiValueQueryStringParameters") or {}
    media_type = headers_of(event).get("content-type", "")
    told = json.dumps([event["httpMethod"], event["path"], sorted(query.items()), media_type])
    return hashlib.sha256(told.encode() + b"\0" + body_of(event)).digest()
