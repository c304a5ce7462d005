"""Errors as `application/problem+json` (RFC 9457): one table from error to status and type.

type       stable, urn:keylane:problem:NAME; what programs go by
title      the same sentence for every problem of the type
status     as in the status line
detail     what happened this time, for people
code       Kafka's own upper-case name, where Kafka has one for it
since_ms   of `history-too-short`: from when on the history is known
age_ms     of `state-too-old`: a bound on how old the state is, where it has one
schema_id  of `value-not-decodable`: the schema that the value names, where it names one
path       of `value-invalid`: a JSON Pointer to the fault in the value
low, high  of `offset-out-of-range`: the partition's first offset, and the next that it gets
next_offset, log_end, percent   of `lane-building`: how far the lane is, where that is known
parameter  the part of the request at fault, where one is
index      of the record at fault, where it is one of several
instance   the request's id, to be found in the logs
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from keylane import errors
from keylane.api.response import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger("keylane")

CONTENT_TYPE = "application/problem+json"
SERVER_ERROR = 500
UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Kind:
    """What all problems of one type share; `code` is Kafka's name for it."""

    status: int
    name: str
    title: str
    code: str | None = None


INTERNAL = Kind(500, "internal", "Something went wrong on our side")
MISCONFIGURED = Kind(500, "misconfigured", "The service is not set up as it should be")
UNKNOWN_ROUTE = Kind(404, "unknown-route", "There is nothing at this path")
WRONG_METHOD = Kind(405, "wrong-method", "This path does not take this method")
KEY_TOO_LARGE = Kind(414, "key-too-large", "The key is too large")
ANSWER_TOO_LARGE = Kind(413, "answer-too-large", "The answer is too large: ask for less at a time")
BODY_TOO_LARGE = Kind(413, "body-too-large", "The request's body is too large")
QUEUE_UNAVAILABLE = Kind(503, "queue-unavailable", "The write-ahead log can't be reached for now")
LOG_UNAVAILABLE = Kind(503, "log-unavailable", "Kafka can't be reached for now")
VALUE_TOO_LARGE = Kind(413, "value-too-large", "The value is too large", "MESSAGE_TOO_LARGE")

TOO_LARGE = {"key": KEY_TOO_LARGE, "answer": ANSWER_TOO_LARGE, "body": BODY_TOO_LARGE}
"""By what it is; all else is a value."""

KINDS: dict[type[errors.KeylaneError], Kind] = {
    errors.KeylaneError: INTERNAL,
    errors.BadRequest: Kind(400, "bad-request", "The request can't be served as it is"),
    errors.NullKey: Kind(400, "empty-key", "The key is empty"),
    errors.BadField: Kind(400, "bad-request", "The request can't be served as it is"),
    errors.SchemaFault: Kind(400, "bad-request", "The request can't be served as it is"),
    errors.UnsupportedMediaType: Kind(415, "unsupported-media-type", "A body of this kind is not taken here"),
    errors.NotFound: Kind(404, "not-found", "There is no such thing"),
    errors.UnknownTopic: Kind(404, "unknown-topic", "The topic is not known", "UNKNOWN_TOPIC_OR_PARTITION"),
    errors.UnknownPartition: Kind(
        404, "unknown-partition", "The topic has no such partition", "UNKNOWN_TOPIC_OR_PARTITION"
    ),
    errors.UnknownView: Kind(404, "unknown-view", "The view is not known"),
    errors.OffsetOutOfRange: Kind(
        404, "offset-out-of-range", "The partition has no such offset", "OFFSET_OUT_OF_RANGE"
    ),
    errors.KeyAbsent: Kind(404, "key-absent", "The topic holds no record under this key"),
    errors.TooLarge: VALUE_TOO_LARGE,
    errors.NotKept: Kind(409, "not-kept", "The topic's state does not keep this"),
    errors.NoIndex: Kind(409, "no-index", "The topic's keys are not kept in order"),
    errors.NoHistory: Kind(409, "no-history", "The topic keeps no history"),
    errors.HistoryTooShort: Kind(410, "history-too-short", "The key's history does not reach back so far"),
    errors.NoJsonObject: Kind(409, "no-json-object", "The value has no fields"),
    errors.PositionNotReached: Kind(412, "position-not-reached", "The state has not reached the position"),
    errors.ValueLeftInKafka: Kind(422, "value-left-in-kafka", "The value is too large for the state"),
    errors.ValueNotDecodable: Kind(422, "value-not-decodable", "The value is not what its topic says"),
    errors.IdempotencyKeyReused: Kind(422, "idempotency-key-reused", "The key stands for another request"),
    errors.RequestInProgress: Kind(409, "request-in-progress", "The same request is being served"),
    errors.RateLimited: Kind(429, "rate-limited", "A rate limit is reached", "THROTTLING_QUOTA_EXCEEDED"),
    errors.ValueInvalid: Kind(
        422, "value-invalid", "The value is not as its topic's schema has it", "INVALID_RECORD"
    ),
    errors.Unavailable: Kind(503, "unavailable", "A part of the service is away for now"),
    errors.StateUnavailable: Kind(503, "state-unavailable", "The state can't be reached for now"),
    errors.LaneBuilding: Kind(503, "lane-building", "The state is being built"),
    errors.StateTooOld: Kind(503, "state-too-old", "The state is older than asked for"),
    errors.RegistryUnavailable: Kind(503, "registry-unavailable", "The Schema Registry can't be asked now"),
    errors.SettingsUnavailable: Kind(503, "settings-unavailable", "A setting can't be looked up for now"),
    errors.QueueUnavailable: QUEUE_UNAVAILABLE,
    errors.Unconfirmed: QUEUE_UNAVAILABLE,
    errors.LogUnavailable: LOG_UNAVAILABLE,
    errors.Unacknowledged: LOG_UNAVAILABLE,
    errors.ConnectionRejected: LOG_UNAVAILABLE,
    errors.CorruptState: Kind(500, "corrupt-state", "The state under this key can't be read"),
    errors.ProduceFailed: Kind(502, "produce-failed", "Kafka refused the record"),
    errors.PartitionMissing: Kind(502, "produce-failed", "Kafka refused the record"),
    errors.LogRefused: Kind(502, "log-refused", "Kafka refused the request"),
    errors.BadConfig: MISCONFIGURED,
    errors.SettingsError: MISCONFIGURED,
    errors.WriterError: INTERNAL,
    errors.Fenced: INTERNAL,
    errors.TopicChanged: INTERNAL,
    errors.LaneBehind: INTERNAL,
    errors.StraysLost: INTERNAL,
}
"""Every public error of `errors`: a test sees to it."""

PRODUCE_STATUS = {
    "CLUSTER_AUTHORIZATION_FAILED": 403,
    "INVALID_RECORD": 400,
    "INVALID_REQUEST": 400,
    "INVALID_TIMESTAMP": 400,
    "INVALID_TOPIC_EXCEPTION": 400,
    "POLICY_VIOLATION": 400,
    "TOPIC_AUTHORIZATION_FAILED": 403,
}
"""Kafka's refusals that are about the request; others are 503 when they may pass, else 502."""


def kind_of(error: Exception) -> Kind:
    """Look an error up in the table; what is none of ours is internal."""
    if isinstance(error, errors.TooLarge):
        return TOO_LARGE.get(error.what, VALUE_TOO_LARGE)
    if isinstance(error, errors.ProduceFailed | errors.LogRefused):
        if error.code in {"MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"}:
            return VALUE_TOO_LARGE
        kind = KINDS[type(error)]
        status = PRODUCE_STATUS.get(error.code, 503 if error.retriable else kind.status)
        return Kind(status, kind.name, kind.title, error.code)
    if isinstance(error, errors.ConnectionRejected):
        return replace(LOG_UNAVAILABLE, code=error.code)
    return next((KINDS[each] for each in type(error).__mro__ if each in KINDS), INTERNAL)


def response_to(error: Exception, request_id: str, headers: Mapping[str, str] | None = None) -> Response[str]:
    """Answer to an error, and log what is on our side; no internals reach the client."""
    kind = kind_of(error)
    headers = dict(headers or {})
    if kind is MISCONFIGURED:
        _log.error("request %s: wrong settings: %s", request_id, error)
        detail = "an environment variable is missing or wrong: the logs name it"
        return problem(kind, detail, request_id, headers=headers)
    if not isinstance(error, errors.KeylaneError) or kind is INTERNAL:
        _log.error("request %s: unforeseen error", request_id, exc_info=error)
        return problem(kind, "an unforeseen error: the logs tell more under this request's id", request_id)
    if kind.status >= SERVER_ERROR:
        _log.warning("request %s: %s: %s; cause: %r", request_id, kind.name, error, error.__cause__)
    headers |= getattr(error, "headers", {})
    retry_after_s = getattr(error, "retry_after_s", 1 if kind.status == UNAVAILABLE else None)
    if retry_after_s is not None:
        headers["Retry-After"] = str(retry_after_s)
    parameter = getattr(error, "parameter", None)
    return problem(kind, str(error), request_id, parameter=parameter, more=_progress(error), headers=headers)


_TOLD: dict[type[Exception], tuple[str, ...]] = {
    errors.HistoryTooShort: ("since_ms",),
    errors.OffsetOutOfRange: ("low", "high"),
    errors.ValueInvalid: ("path",),
}
"""What an error always tells beside its sentence."""


def _progress(error: Exception) -> dict[str, int | str]:
    if type(error) in _TOLD:
        return {name: getattr(error, name) for name in _TOLD[type(error)]}
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
    kind: Kind,
    detail: str,
    request_id: str,
    *,
    parameter: str | None = None,
    more: dict[str, int | str] | None = None,
    headers: dict[str, str] | None = None,
) -> Response[str]:
    """Make the problem document."""
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
