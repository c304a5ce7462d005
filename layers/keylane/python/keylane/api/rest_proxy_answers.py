"""Responses of the routes that Confluent's REST Proxy v2 has too.

    {"offsets": [{"partition": 3, "offset": 1042, "error_code": null, "error": null},
                 {"partition": null, "offset": null, "error_code": 1, "error": "...", ...}],
     "key_schema_id": null, "value_schema_id": null}

A record's `error_code` is 2 if another attempt may succeed, and 1 if it can't. A failed record also has the
fields of `record_results`; a record in the write-ahead log has `"status": "queued"` and its `id`, and no
offset. The HTTP status is 200 whatever the results of single records are, as with REST Proxy, and 202 if all
records are queued.

An error of the whole request is a problem document with two more members of REST Proxy: `error_code` and
`message`. It is also the response if all records failed for one reason that is not theirs: the topic is
unknown (40401) or has no such partition (40402), its rate limit is reached (429), Kafka can't be reached
(50003) or denies access (40301). Then `offsets` is present too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane import errors
from keylane.api import preferences, problems
from keylane.api.record_results import describe_failure, is_retriable, log_failures, message_of, status_of
from keylane.api.response import Response
from keylane.model.records import Position, Queued

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.api.rest_proxy import RestProxyRequest
    from keylane.ports import RecordResult

JSON = "application/vnd.kafka.v2+json"
FATAL, RETRIABLE = 1, 2
ERROR_CODES = {
    errors.UnknownTopic: 40401,
    errors.UnknownPartition: 40402,
    errors.LogUnavailable: 50003,
    errors.Unacknowledged: 50003,
}
"""REST Proxy's own codes; of other errors the code is the status."""
FORBIDDEN, NOT_AUTHORIZED = 403, 40301
UNPROCESSABLE = 422


def render_results(
    request: RestProxyRequest, results: Sequence[RecordResult], request_id: str, *, is_async: bool
) -> Response[str]:
    """Render the result of each record. `is_async`: the client asked not to wait."""
    offsets = [_render_offset(index, result) for index, result in enumerate(results)]
    reason = _common_reason(results, in_path=request.partition is not None)
    if reason is not None:
        return render_error(reason, request_id, {"offsets": offsets})
    log_failures(results, request_id)
    document = {
        "offsets": offsets,
        "key_schema_id": request.key_schema_id,
        "value_schema_id": request.value_schema_id,
    }
    headers = {"Cache-Control": "no-store"}
    if all(isinstance(result, Queued) for result in results):
        applied = preferences.ASYNC_APPLIED if is_async else {}
        return Response(202, JSON, json.dumps(document), {**headers, **applied})
    return Response(200, JSON, json.dumps(document), headers)


def render_error(
    error: errors.KeylaneError, request_id: str, more: dict[str, Any] | None = None
) -> Response[str]:
    """Render the problem document with REST Proxy's members; a wrong field is a 422, as with REST Proxy."""
    response = problems.response_to(error, request_id)
    document = json.loads(response.body or "{}")
    if isinstance(error, errors.BadField):
        response.status_code = document["status"] = UNPROCESSABLE
    code = getattr(error, "error_code", ERROR_CODES.get(type(error), response.status_code))
    document["error_code"] = NOT_AUTHORIZED if code == FORBIDDEN else code
    document["message"] = document["detail"]
    response.body = json.dumps(document | (more or {}))
    return response


def _common_reason(results: Sequence[RecordResult], *, in_path: bool) -> errors.KeylaneError | None:
    """The reason why no record was written, if it is not a single record's fault.

    `in_path`: the request's path names the partition.
    """
    failed = [result for result in results if isinstance(result, errors.KeylaneError)]
    if len(failed) < len(results):
        return None
    kinds: list[type[errors.KeylaneError]] = [errors.UnknownTopic, errors.RateLimited, errors.LogUnavailable]
    kinds += [errors.UnknownPartition] if in_path else []
    if any(all(isinstance(each, kind) for each in failed) for kind in kinds):
        # An unacknowledged record comes first: that some may have been written is the graver news.
        return next((each for each in failed if isinstance(each, errors.Unacknowledged)), failed[0])
    return failed[0] if {status_of(each) for each in failed} == {FORBIDDEN} else None


def _render_offset(index: int, result: RecordResult) -> dict[str, Any]:
    if isinstance(result, Position):
        position = {"partition": result.partition, "offset": result.offset}
        return {**position, "error_code": None, "error": None}
    no_position = {"partition": None, "offset": None}
    if isinstance(result, Queued):
        # Clients of REST Proxy look at `error_code`: a queued record has none.
        return {**no_position, "error_code": None, "error": None, "status": "queued", "id": result.id}
    error_code = RETRIABLE if is_retriable(result) else FATAL
    entry = {**no_position, "error_code": error_code, "error": message_of(index, result)}
    return entry | describe_failure(index, result, value_field="value")
