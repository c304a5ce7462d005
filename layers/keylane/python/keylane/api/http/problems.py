"""Errors as `application/problem+json` (RFC 9457): one table from error to status and type.

type       urn:keylane:problem:NAME, stable: programs rely on it
title      the same for every problem of the type
status     as in the status line
detail     what happened in this request, for people
code       Kafka's upper-case name of the error, if it has one
since_ms   of `history-too-short`: the history is complete from this time on
age_ms     of `state-too-old`: a bound on the state's age, if there is one
schema_id  of `value-not-decodable`: the schema that the value names, if any
path       of `value-invalid`: a JSON Pointer to the fault in the value
low, high  of `offset-out-of-range`: the partition's first offset, and its next
next_offset, log_end, percent   of `lane-building`: the lane's progress, if known
parameter  the part of the request at fault, if any
index      of the record at fault, if the request has several
uncertain  true if the record may have been written in spite of the error
instance   the request's id, as in the logs
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from traceback import clear_frames

from keylane import errors
from keylane.api.http.response import Response

_log = logging.getLogger("keylane")

CONTENT_TYPE = "application/problem+json"
SERVER_ERROR = 500
UNAVAILABLE = 503
MOST_CAUSES = 16
"""Of an error."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What all problems of one type share; `code` is Kafka's name for the error."""

    status: int
    name: str
    title: str
    code: str | None = None


INTERNAL = Problem(500, "internal", "Something went wrong on our side")
MISCONFIGURED = Problem(500, "misconfigured", "The service is misconfigured")
UNAUTHORIZED = Problem(401, "unauthorized", "The request has no valid credentials")
FORBIDDEN = Problem(403, "forbidden", "The caller is not allowed to do this")
UNKNOWN_ROUTE = Problem(404, "unknown-route", "There is nothing at this path")
WRONG_METHOD = Problem(405, "wrong-method", "The path does not support this method")
KEY_TOO_LARGE = Problem(414, "key-too-large", "The key is too large")
ANSWER_TOO_LARGE = Problem(413, "answer-too-large", "The answer is too large: request less at a time")
BODY_TOO_LARGE = Problem(413, "body-too-large", "The request's body is too large")
QUEUE_UNAVAILABLE = Problem(503, "queue-unavailable", "The write-ahead log is unavailable")
LOG_UNAVAILABLE = Problem(503, "log-unavailable", "Kafka is unavailable")
VALUE_TOO_LARGE = Problem(413, "value-too-large", "The value is too large", "MESSAGE_TOO_LARGE")

TOO_LARGE = {"key": KEY_TOO_LARGE, "answer": ANSWER_TOO_LARGE, "body": BODY_TOO_LARGE}
"""By the part of the request or answer; everything else is a value."""

KINDS: dict[type[errors.KeylaneError], Problem] = {
    errors.KeylaneError: INTERNAL,
    errors.BadRequest: Problem(400, "bad-request", "The request is invalid"),
    errors.NullKey: Problem(400, "empty-key", "The key is empty"),
    errors.UnsupportedMediaType: Problem(
        415, "unsupported-media-type", "The body's media type is not supported"
    ),
    errors.UnsupportedEncoding: Problem(
        415, "unsupported-encoding", "The body's content coding is not supported"
    ),
    errors.NotAcceptable: Problem(406, "not-acceptable", "No answer has a media type that is accepted"),
    errors.NotStreamed: Problem(501, "not-streamed", "Nothing is streamed here"),
    errors.PreconditionFailed: Problem(412, "precondition-failed", "The request's condition is not met"),
    errors.NotFound: Problem(404, "not-found", "The resource does not exist"),
    errors.ForeignOrigin: Problem(403, "foreign-origin", "A page of another site sends the request"),
    errors.TopicNotServed: Problem(
        403, "topic-not-served", "The topic is not served here", "TOPIC_AUTHORIZATION_FAILED"
    ),
    errors.OutsideScope: Problem(403, "outside-scope", "The caller's rules do not permit this"),
    errors.ScopeTooWide: Problem(409, "scope-too-wide", "The caller's records take too long to find"),
    errors.UnknownTopic: Problem(404, "unknown-topic", "The topic is unknown", "UNKNOWN_TOPIC_OR_PARTITION"),
    errors.UnknownPartition: Problem(
        404, "unknown-partition", "The topic has no such partition", "UNKNOWN_TOPIC_OR_PARTITION"
    ),
    errors.UnknownView: Problem(404, "unknown-view", "The view is unknown"),
    errors.ViewNotOpened: Problem(404, "view-not-opened", "The job cannot open the view"),
    errors.OffsetOutOfRange: Problem(
        404, "offset-out-of-range", "The partition has no such offset", "OFFSET_OUT_OF_RANGE"
    ),
    errors.UnknownCluster: Problem(404, "unknown-cluster", "The service has no such Kafka cluster"),
    errors.NotInKafka: Problem(404, "not-in-kafka", "Kafka has no such broker, setting or consumer group"),
    errors.KeyAbsent: Problem(404, "key-absent", "The topic holds no record under this key"),
    errors.TooLarge: VALUE_TOO_LARGE,
    errors.NotKept: Problem(409, "not-kept", "The topic is not configured to keep this"),
    errors.NoIndex: Problem(409, "no-index", "The topic's keys are not kept in order"),
    errors.NoHistory: Problem(409, "no-history", "The topic keeps no history"),
    errors.NoFields: Problem(409, "no-fields", "The topic has no fields to find records by"),
    errors.HistoryTooShort: Problem(410, "history-too-short", "The key's history does not reach back so far"),
    errors.SnapshotOutdated: Problem(409, "snapshot-outdated", "The snapshot can't go on: begin a new one"),
    errors.NoJsonObject: Problem(409, "no-json-object", "The value has no fields"),
    errors.PositionNotReached: Problem(412, "position-not-reached", "The state has not reached the position"),
    errors.ValueLeftInKafka: Problem(422, "value-left-in-kafka", "The value is too large for the state"),
    errors.ValueNotDecodable: Problem(
        422, "value-not-decodable", "The value does not match its topic's format"
    ),
    errors.IdempotencyKeyReused: Problem(
        422, "idempotency-key-reused", "The idempotency key belongs to another request"
    ),
    errors.RequestInProgress: Problem(409, "request-in-progress", "The same request is still running"),
    errors.RateLimited: Problem(429, "rate-limited", "A rate limit is reached", "THROTTLING_QUOTA_EXCEEDED"),
    errors.ValueInvalid: Problem(
        422, "value-invalid", "The value does not match its topic's schema", "INVALID_RECORD"
    ),
    errors.KeyUnreadable: Problem(
        422, "key-unreadable", "The key is not one that the topic's readers find", "INVALID_RECORD"
    ),
    errors.Unavailable: Problem(503, "unavailable", "A part of the service is unavailable"),
    errors.StateUnavailable: Problem(503, "state-unavailable", "The state is unavailable"),
    errors.LaneBuilding: Problem(503, "lane-building", "The state is being built"),
    errors.StateTooOld: Problem(412, "state-too-old", "The state is older than the request accepts"),
    errors.IssuerUnavailable: Problem(
        503, "issuer-unavailable", "The keys of the token's issuer could not be fetched"
    ),
    errors.RegistryUnavailable: Problem(503, "registry-unavailable", "The Schema Registry is unavailable"),
    errors.SettingsUnavailable: Problem(503, "settings-unavailable", "A setting could not be fetched"),
    errors.QueueUnavailable: QUEUE_UNAVAILABLE,
    errors.LogUnavailable: LOG_UNAVAILABLE,
    errors.CorruptState: Problem(500, "corrupt-state", "The state under this key cannot be read"),
    errors.ProduceFailed: Problem(502, "produce-failed", "Kafka refused the record"),
    errors.Superseded: Problem(502, "produce-failed", "Kafka refused the record"),
    errors.LogRefused: Problem(502, "log-refused", "Kafka refused the request"),
    errors.BadConfig: MISCONFIGURED,
    errors.WriterError: INTERNAL,
}
"""An error has the kind of its class, else of the nearest base."""

PROBLEMS: dict[str, Problem] = {
    each.name: each for each in (*KINDS.values(), *TOO_LARGE.values(), UNKNOWN_ROUTE, WRONG_METHOD)
}
"""All of them by their names. docs/http/errors.md is made of them."""

PRODUCE_STATUS = {
    "CLUSTER_AUTHORIZATION_FAILED": 403,
    "INVALID_RECORD": 400,
    "INVALID_REQUEST": 400,
    "INVALID_TIMESTAMP": 400,
    "INVALID_TOPIC_EXCEPTION": 400,
    "POLICY_VIOLATION": 400,
    "TOPIC_AUTHORIZATION_FAILED": 403,
}
"""Statuses of Kafka's refusals that are the request's fault; others are 503 if retriable, else 502."""


def correlated(request_id: str) -> dict[str, str]:
    """Fields of a log line, for Lambda's JSON format: the request's id as API Gateway's access log has it."""
    return {"correlation_id": request_id}


def kind_of(error: Exception) -> Problem:
    """Look up an error's kind; errors that Keylane did not raise are internal."""
    if isinstance(error, errors.TooLarge):
        return TOO_LARGE.get(error.what, VALUE_TOO_LARGE)
    if isinstance(error, errors.ProduceFailed | errors.LogRefused):
        if error.code in {"MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"}:
            return VALUE_TOO_LARGE
        kind = _nearest(error)
        status = PRODUCE_STATUS.get(error.code, 503 if error.retriable else kind.status)
        return Problem(status, kind.name, kind.title, error.code)
    if isinstance(error, errors.Superseded):
        return kind_of(error.reason)
    if isinstance(error, errors.ConnectionRejected):
        return replace(LOG_UNAVAILABLE, code=error.code)
    return _nearest(error)


def _nearest(error: Exception) -> Problem:
    return next((KINDS[each] for each in type(error).__mro__ if each in KINDS), INTERNAL)


def response_to(error: Exception, request_id: str, headers: Mapping[str, str] | None = None) -> Response[str]:
    """Render an error, and log it if the service is at fault; no internals reach the client."""
    kind = kind_of(error)
    headers = dict(headers or {})
    if kind is MISCONFIGURED:
        _log.error("request %s: invalid settings: %s", request_id, error, extra=correlated(request_id))
        detail = "an environment variable is missing or invalid: the logs name it"
        return problem(kind, detail, request_id, headers=headers)
    if not isinstance(error, errors.KeylaneError) or kind is INTERNAL:
        _log.error("request %s: unexpected error", request_id, exc_info=error, extra=correlated(request_id))
        return problem(
            kind, "an unexpected error: the logs have the details under this request's id", request_id
        )
    if kind.status >= SERVER_ERROR:
        _log.warning(
            "request %s: %s: %s; cause: %r",
            *(request_id, kind.name, error, error.__cause__),
            extra=correlated(request_id) | {"problem": kind.name},
        )
    headers |= getattr(error, "headers", {})
    retry_after_s = getattr(error, "retry_after_s", 1 if kind.status == UNAVAILABLE else None)
    if retry_after_s is not None:
        headers["Retry-After"] = str(retry_after_s)
    parameter = getattr(error, "parameter", None)
    more = _progress(error) | ({"uncertain": True} if getattr(error, "uncertain", False) else {})
    return problem(kind, str(error), request_id, parameter=parameter, more=more, headers=headers)


def let_go(error: BaseException) -> None:
    """Empty the frames that an answered error came through: they may hold megabytes of Redis' replies.

    Where one of them also holds the error, or what it waited for when it failed, they are a cycle, which
    would stay until Python looks for such.
    """
    cause: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if cause is None:
            return
        clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


_ADDED_FIELDS: dict[type[Exception], tuple[str, ...]] = {
    errors.HistoryTooShort: ("since_ms",),
    errors.OffsetOutOfRange: ("low", "high"),
    errors.ValueInvalid: ("path",),
    errors.ValueUnreadable: ("path",),
}
"""Fields that an error always adds to its message."""


def _progress(error: Exception) -> dict[str, int | str]:
    if type(error) in _ADDED_FIELDS:
        return {name: getattr(error, name) for name in _ADDED_FIELDS[type(error)]}
    if isinstance(error, errors.BadField) and error.index is not None:
        return {"index": error.index}
    if isinstance(error, errors.ValueNotDecodable) and error.schema_id is not None:
        return {"schema_id": error.schema_id}
    if isinstance(error, errors.StateTooOld) and error.age_ms is not None:
        return {"age_ms": error.age_ms, "max_age_ms": error.max_age_ms}
    if not isinstance(error, errors.LaneBuilding) or error.percent is None or error.next_offset is None:
        return {}
    return {"next_offset": error.next_offset, "log_end": error.log_end, "percent": error.percent}


def problem(
    kind: Problem,
    detail: str,
    request_id: str,
    *,
    parameter: str | None = None,
    more: dict[str, int | str] | None = None,
    headers: dict[str, str] | None = None,
) -> Response[str]:
    """Render a problem document."""
    document: dict[str, str | int] = {
        "type": f"urn:keylane:problem:{kind.name}",
        "title": kind.title,
        "status": kind.status,
        "detail": detail,
    }
    if kind.code:
        document["code"] = kind.code
    if parameter:
        document["parameter"] = parameter
    document |= more or {}
    document["instance"] = request_id
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})}
    response = Response(kind.status, CONTENT_TYPE, json.dumps(document), headers)
    response.problem = kind.name
    return response
