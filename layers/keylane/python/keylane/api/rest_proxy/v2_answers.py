"""Responses of the routes that Confluent's REST Proxy v2 has too.

    {"offsets": [{"partition": 3, "offset": 1042, "error_code": null, "error": null},
                 {"partition": null, "offset": null, "error_code": 50002, "error": "...", ...}],
     "key_schema_id": null, "value_schema_id": null}

A record's `error_code` is 50003 if another attempt may succeed, 40301 if access is denied, else 50002. A
failed record also has the fields of `record_results`; a record in the write-ahead log has
`"status": "queued"` and its `id`, and no offset. The HTTP status is 200 whatever the results of single
records are, as with REST Proxy, and 202 if all records are queued.

An error of the whole request is a problem document with two more members of REST Proxy: `error_code` and
`message`. It is also the response if all records failed for one reason that is not theirs: the topic is
unknown (40401) or has no such partition (40402), its rate limit is reached (429), or Kafka can't be reached
(50003); and if access is denied to any (40301). Then the members above are present too.

Statuses and codes are those of REST Proxy's source (kafka-rest 8): 400 for a body that is not JSON, for a
value of the wrong type, and for one that its schema rejects; 422 for an empty body, for a field that is
missing, unknown or out of its bounds, for a schema that is not usable (42205), and for one that the registry
refuses, or can't be asked for (42207).
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from keylane import errors
from keylane.api.http import preferences, problems
from keylane.api.http.response import Response
from keylane.api.http.schemas import MAYBE_COUNT, MAYBE_TEXT, Schema, an_array, an_object
from keylane.api.rest_proxy.v2_schemas import NOT_OF_SCHEMA, REFUSED
from keylane.api.writes.record_results import (
    FAILURE,
    QUEUED_ID,
    describe_failure,
    is_retriable,
    log_failures,
    message_of,
    status_of,
)
from keylane.model.records import Position, Queued

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from keylane.api.http.request import Request
    from keylane.api.rest_proxy.v2_records import RestProxyRequest
    from keylane.ports import RecordResult

JSON = "application/vnd.kafka.v2+json"
FATAL, RETRIABLE = 50002, 50003
ERROR_CODES: dict[type[Any], int] = {
    errors.UnknownTopic: 40401,
    errors.UnknownPartition: 40402,
    errors.LogUnavailable: 50003,
    errors.RegistryUnavailable: REFUSED,
}
"""REST Proxy's own codes; of other errors the code is the status."""
NO_CODES: Mapping[type[errors.KeylaneError], int] = MappingProxyType({})
FORBIDDEN, NOT_AUTHORIZED = 403, 40301
BAD_REQUEST, UNPROCESSABLE = 400, 422


OFFSETS_SCHEMA = Schema.of(
    "Offsets",
    offsets=an_array(
        an_object(
            optional=("status", "id", *FAILURE),
            partition=MAYBE_COUNT,
            offset=MAYBE_COUNT,
            error_code={
                "enum": [None, 40301, 50002, 50003],
                "description": "40301: access denied; 50002: permanent; 50003: try again",
            },
            error=MAYBE_TEXT,
            status={"enum": ["queued"], "description": "the record is in the write-ahead log"},
            id=QUEUED_ID,
            **FAILURE,
        )
    ),
    key_schema_id=MAYBE_COUNT,
    value_schema_id=MAYBE_COUNT,
)


def render_results(
    request: RestProxyRequest, request_id: str, results: Sequence[RecordResult], *, is_async: bool
) -> Response[str]:
    """Render the result of each record. `is_async`: the client asked not to wait."""
    offsets = [_render_offset(index, result) for index, result in enumerate(results)]
    document = {
        "offsets": offsets,
        "key_schema_id": request.key_schema_id,
        "value_schema_id": request.value_schema_id,
    }
    reason = _common_reason(results, in_path=request.partition is not None)
    if reason is not None:
        return render_error(reason, request_id, document)
    log_failures(results, request_id)
    headers = {"Cache-Control": "no-store"}
    if all(isinstance(result, Queued) for result in results):
        applied = preferences.ASYNC_APPLIED if is_async else {}
        return Response(202, JSON, json.dumps(document), {**headers, **applied})
    return Response(200, JSON, json.dumps(document), headers)


def render_error(
    error: errors.KeylaneError,
    request_id: str,
    more: dict[str, Any] | None = None,
    codes: Mapping[type[errors.KeylaneError], int] = NO_CODES,
) -> Response[str]:
    """Render the problem document with REST Proxy's members and its status.

    `more`: further members. `codes`: error codes that differ from those of v2.
    """
    response = problems.response_to(error, request_id)
    document = json.loads(response.body or "{}")
    response.status_code = document["status"] = _status(error) or response.status_code
    code = getattr(error, "error_code", code_of(error, codes) or response.status_code)
    document["error_code"] = NOT_AUTHORIZED if code == FORBIDDEN else code
    document["message"] = document["detail"]
    response.body = json.dumps(document | (more or {}))
    return response


def render_failure(
    request: Request, error: Exception, codes: Mapping[type[errors.KeylaneError], int] = NO_CODES
) -> Response[str]:
    """Render what a handler raised. Errors that are not Keylane's own have no code of REST Proxy's."""
    if isinstance(error, errors.KeylaneError):
        return render_error(error, request.id, codes=codes)
    return problems.response_to(error, request.id)


def code_of(
    error: errors.KeylaneError, codes: Mapping[type[errors.KeylaneError], int] = NO_CODES
) -> int | None:
    """REST Proxy's own code for this kind of error, None where the code is the status."""
    known = {**ERROR_CODES, **codes}
    return next((known[each] for each in type(error).__mro__ if each in known), None)


def _status(error: errors.KeylaneError) -> int | None:
    """REST Proxy's status of an error, None where it is that of the problem."""
    if isinstance(error, errors.BadValue) or getattr(error, "error_code", 0) == NOT_OF_SCHEMA:
        return BAD_REQUEST
    return UNPROCESSABLE if isinstance(error, errors.BadField | errors.RegistryUnavailable) else None


def _common_reason(results: Sequence[RecordResult], *, in_path: bool) -> errors.KeylaneError | None:
    """The reason why no record was written, if it is not a single record's fault; or access was denied.

    `in_path`: the request's path names the partition.
    """
    failed = [result for result in results if isinstance(result, errors.KeylaneError)]
    denied = next((each for each in failed if status_of(each) == FORBIDDEN), None)
    if denied is not None:
        return denied
    if len(failed) < len(results):
        return None
    kinds: list[type[errors.KeylaneError]] = [errors.UnknownTopic, errors.RateLimited, errors.LogUnavailable]
    kinds += [errors.UnknownPartition] if in_path else []
    if any(all(isinstance(each, kind) for each in failed) for kind in kinds):
        # An unacknowledged record comes first: that some may have been written is the graver news.
        return next((each for each in failed if isinstance(each, errors.Unacknowledged)), failed[0])
    return None


def _render_offset(index: int, result: RecordResult) -> dict[str, Any]:
    if isinstance(result, Position):
        position = {"partition": result.partition, "offset": result.offset}
        return {**position, "error_code": None, "error": None}
    no_position = {"partition": None, "offset": None}
    if isinstance(result, Queued):
        # Clients of REST Proxy look at `error_code`: a queued record has none.
        return {**no_position, "error_code": None, "error": None, "status": "queued", "id": result.id}
    entry = {**no_position, "error_code": _record_code(result), "error": message_of(index, result)}
    return entry | describe_failure(index, result, value_field="value")


def _record_code(error: errors.KeylaneError) -> int:
    if status_of(error) == FORBIDDEN:
        return NOT_AUTHORIZED
    return RETRIABLE if is_retriable(error) else FATAL
