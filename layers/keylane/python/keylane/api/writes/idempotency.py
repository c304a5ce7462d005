"""`Idempotency-Key`: a request that is sent again with its key gets the saved response and writes nothing.

A key belongs to its caller: two callers may use the same key. Where rules of the access policy apply to a
caller, that is the name by which they do. Unidentified callers share their keys, so keys
should be hard to guess, such as UUIDs. A key stands for one request: its method, path, query, media type and
body. The response to

    the first request              as without a key
    the same request again         the saved status, headers and body, and `Idempotency-Replayed: true`
    the same while it is written   409 `request-in-progress`
    another request                422 `idempotency-key-reused`

A response is saved if a record was written, or may have been: Kafka did not acknowledge it. The same request
gets the same `uncertain` error again, and writes nothing. If nothing was written the key is released, so that
the client can repeat the request. A record may be written twice if the function was killed before it saved
the response: its claim expires, and the key is free again.
"""

import hashlib
import json
from typing import NamedTuple

from keylane.access.callers import SOURCE_IP
from keylane.api.http.parameters import HEADER, matching
from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.errors import BadRequest
from keylane.produce.guards import Guards, IdempotencyStore

LONGEST_KEY = 255
IDEMPOTENCY_KEY = matching(
    "Idempotency-Key",
    "a string of the client's choice: a request repeated with it gets the saved response and writes nothing",
    f"[!-~]{{1,{LONGEST_KEY}}}",
    f"not 1 to {LONGEST_KEY} visible ASCII characters",
    place=HEADER,
)


class Claim(NamedTuple):
    """A request's claim on its key. `saved`: the response to the same request, None if this is the first."""

    store: IdempotencyStore
    name: str
    token: bytes
    saved: Response[str] | None

    def settle(self, response: bytes | None) -> None:
        """Save the serialized response under the key; None frees the key."""
        self.store.settle(self.name, self.token, response)


def claim(guards: Guards, request: Request, key: str) -> Claim:
    """Claim the key for this request.

    Raises BadRequest without a store, IdempotencyKeyReused, RequestInProgress, StateUnavailable.
    """
    if guards.idempotency is None:
        raise BadRequest(
            "Idempotency-Key is not supported here: the service has no Redis to save responses in",
            IDEMPOTENCY_KEY.name,
        )
    store = guards.idempotency()
    # An address does not identify a caller: a client may repeat its request from another one.
    owner = request.caller.name([source for source in guards.caller if source != SOURCE_IP])
    if request.scope is not None:
        owner = f"scope:{request.scope.caller}"
    name = hashlib.sha256(f"{owner}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
    token, saved = store.claim(name, _fingerprint(request))
    return Claim(store, name, token, None if saved is None else _replay(saved))


def serialize(response: Response[str]) -> bytes:
    """The response as it is saved: a JSON array of status, headers and body."""
    return json.dumps([response.status_code, response.headers, response.body]).encode()


def _replay(saved: bytes) -> Response[str]:
    status, headers, body = json.loads(saved)
    return Response(status, None, body, headers | {"Idempotency-Replayed": "true"})


def _fingerprint(request: Request) -> bytes:
    media_type = request.headers.get("content-type", "")
    head = json.dumps([request.method, request.path, sorted(request.query.items()), media_type])
    return hashlib.sha256(head.encode() + b"\0" + request.content()).digest()
