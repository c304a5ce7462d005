"""Errors of the client.

KeylaneError
├── Unreachable             no answer came: address, network, TLS, a timeout, or a proxy that says so
├── InvalidAnswer           the answer is not Keylane's: another server, or one of another version
├── InvalidArgument         what was given cannot be sent: an empty key, NaN, None; a ValueError, too
├── ValueMismatch           a value that was read is not what the topic's model wants
├── SyncFailed              a mapping is not kept current any more; its cause says why
├── NoCredentials           there is nothing to sign requests with
└── ProblemError            the service refused the request; carries the problem document
    ├── RequestRefused      the request is wrong (400, 405, 406, 413, 414, 415, 422)
    ├── AccessDenied        the caller is not known, or not allowed to do this (401, 403)
    ├── NotFound            (404)
    │   ├── KeyAbsent       the topic has no record under the key; a KeyError, too
    │   ├── UnknownTopic
    │   └── UnknownView
    │       └── ViewNotOpened
    ├── NotKept             the topic keeps no index or no history, or the value has no fields (409)
    ├── SnapshotOutdated    the topic was built again while it was read; begin a new snapshot (409)
    ├── HistoryTooShort     the history does not reach back that far (410)
    ├── PreconditionFailed  the record is another one than `if_match` demands (412)
    ├── PositionNotReached  the state did not reach the position in time (412)
    ├── ValueNotReadable    the value is left in Kafka, or does not decode (422)
    ├── RateLimited         a limit is reached (429)
    ├── Unavailable         it cannot answer now (409 request-in-progress, 412 state-too-old, 503, 504)
    └── ServiceFailed       the service, or Kafka behind it, failed (500, 502)
"""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "urn:keylane:problem:"
_SHOWN = 300


class KeylaneError(Exception):
    """Base of all errors of the client. Its text is for people, and says what to do where that is known."""


class Unreachable(KeylaneError):
    """No answer came: the address, the network, TLS, a timeout, or a proxy that says so."""


class InvalidAnswer(KeylaneError):
    """The answer is not Keylane's: the URL is another server's, or the server has another version."""


class InvalidArgument(KeylaneError, ValueError, TypeError):
    """What was given cannot be sent: an empty key, NaN, None, what is not the URL of an API."""


class ValueMismatch(KeylaneError):
    """A value that was read is not what the topic's model wants. The text names the field."""


class SyncFailed(KeylaneError):
    """A mapping that `sync` returned is not kept current any more; `__cause__` says why."""


class NoCredentials(KeylaneError):
    """Requests are to be signed, and no AWS credentials were found."""


class ProblemError(KeylaneError):
    """The service refused the request.

    `problem` is the document (RFC 9457). `type` is its name without the prefix, as in docs/http/errors.md:
    programs should compare this one. `retry_after_s` is None where the service named no time.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.headers = dict(headers)
        self.type = str(problem.get("type", "")).removeprefix(_PREFIX)
        self.title = str(problem.get("title", ""))
        self.detail = str(problem.get("detail", "") or problem.get("message", ""))
        self.retry_after_s = parse_retry_after_s(headers.get("retry-after"))
        super().__init__(f"{status} {self.type}: {self.detail or self.title or 'no reason was given'}")

    def __str__(self) -> str:
        """Return status, type and detail; KeyError would show a quoted string."""
        return str(self.args[0])

    @property
    def instance(self) -> str | None:
        """Return the id of the request, which the service's log has too."""
        return self.problem.get("instance") or self.headers.get("x-amzn-requestid")

    @property
    def parameter(self) -> str | None:
        """Return the part of the request at fault."""
        return self.problem.get("parameter")

    @property
    def is_uncertain(self) -> bool:
        """Return whether the record may have been written in spite of the error."""
        return bool(self.problem.get("uncertain"))

    @property
    def code(self) -> str | None:
        """Return Kafka's name of the error."""
        return self.problem.get("code")


class RequestRefused(ProblemError):
    """The request is wrong: the same one fails again."""


class AccessDenied(ProblemError):
    """The caller is not known, or not allowed to do this."""


class NotFound(ProblemError):
    """There is no such thing."""


class KeyAbsent(NotFound, KeyError):
    """The topic has no record under the key."""


class UnknownTopic(NotFound):
    """Reads: the topic has no state. Writes: Kafka has no such topic."""


class UnknownView(NotFound):
    """No view of this name is kept."""


class ViewNotOpened(UnknownView):
    """The job cannot open the view: the detail says why."""


class NotKept(ProblemError):
    """The topic keeps no index or no history, or the value has no fields."""


class SnapshotOutdated(ProblemError):
    """The topic was built again, or Kafka removed records that were needed, while a snapshot was read."""


class HistoryTooShort(ProblemError):
    """The history does not reach back that far; `problem["since_ms"]` says how far it does."""


class PreconditionFailed(ProblemError):
    """The record is another one than `if_match` demands."""


class PositionNotReached(ProblemError):
    """The state did not reach the position in time."""


class ValueNotReadable(ProblemError):
    """The value is left in Kafka because of its size, or does not match the topic's format."""


class RateLimited(ProblemError):
    """A rate limit of the topic, the caller or the stage is reached."""


class Unavailable(ProblemError):
    """The service cannot answer now. A write may have happened."""


class ServiceFailed(ProblemError):
    """The service, or Kafka behind it, failed."""


ERRORS_BY_TYPE: dict[str, type[ProblemError]] = {
    "key-absent": KeyAbsent,
    "unknown-topic": UnknownTopic,
    "unknown-view": UnknownView,
    "view-not-opened": ViewNotOpened,
    "position-not-reached": PositionNotReached,
    "value-left-in-kafka": ValueNotReadable,
    "value-not-decodable": ValueNotReadable,
    "request-in-progress": Unavailable,
    "state-too-old": Unavailable,
    "snapshot-outdated": SnapshotOutdated,
}
ERRORS_BY_STATUS: dict[int, type[ProblemError]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    409: NotKept,
    410: HistoryTooShort,
    412: PreconditionFailed,
    429: RateLimited,
    503: Unavailable,
    504: Unavailable,
}
_FAILED = 500
_LIMITED, _BAD_GATEWAY = 429, 502
_OF_PROXIES = frozenset({_BAD_GATEWAY, 503, 504, *range(520, 531)})
"""Statuses of a proxy that gets no answer from the service; the last ones are Cloudflare's."""


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> KeylaneError:
    """Return the error that a response describes, or what is there instead of a problem document.

    A proxy answers with its own pages while the service is restarted, for example: then what was asked may
    have been done, or not.
    """
    document = _document_of(body)
    if not body and status != _BAD_GATEWAY and "location" not in headers:
        document = {"message": "the answer has no body"}  # one to HEAD has none
    if document is None or not (document.get("type") or document.get("message")):
        return _foreign(status, headers, " ".join(body.decode(errors="replace").split())[:_SHOWN])
    name = str(document.get("type", "")).removeprefix(_PREFIX)
    fallback = ServiceFailed if status >= _FAILED else RequestRefused
    kind = ERRORS_BY_TYPE.get(name) or ERRORS_BY_STATUS.get(status, fallback)
    return kind(status, document, headers)


def _foreign(status: int, headers: Mapping[str, str], text: str) -> KeylaneError:
    """Return the error of a response that is not Keylane's. `text`: how its body begins."""
    if location := headers.get("location"):
        return InvalidAnswer(f"status {status}: the URL is redirected to {location[:_SHOWN]!r}: use that one")
    if status in _OF_PROXIES:
        return Unreachable(
            f"a proxy answers with status {status}: is the service up behind it? It says: {text!r}"
        )
    if status == _LIMITED:
        return RateLimited(status, {"detail": f"a proxy's limit is reached; it says: {text!r}"}, headers)
    return InvalidAnswer(
        f"status {status} without a problem document: is the URL that of Keylane? The body: {text!r}"
    )


def _document_of(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def parse_retry_after_s(header: str | None) -> float | None:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3); None if it is neither a number nor a date."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
