"""Answers of the routes that Confluent's REST Proxy v2 has too.

    {"offsets": [{"partition": 3, "offset": 1042, "error_code": null, "error": null},
                 {"partition": null, "offset": null, "error_code": 1, "error": "...", ...}],
     "key_schema_id": null, "value_schema_id": null}

`error_code` of a record is 1 where it makes no sense to try again, 2 where it may. A failed one has also what
`fates.described` tells, one in the write-ahead log `"status": "queued"` and its `id`, and no position. The
status is 200, whatever single records came to, as it is there; 202 where all are queued.

Errors of whole requests are problem documents with two more members, theirs: `error_code` and `message`. That
is also the answer where all records failed for one reason that is none of theirs: the topic is not known
(40401) or has no such partition (40402), it takes no more for now (429), Kafka can't be reached (50003), or
doesn't let us in (40301). Then `offsets` is there too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane import errors
from keylane.api import preferences, problems
from keylane.api.outcomes import described, is_retriable, log_failures, sentence, status_of
from keylane.api.response import Response
from keylane.model.records import Position, Queued

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.ports import Fate

JSON = "application/vnd.kafka.v2+json"
FATAL, RETRIABLE = 1, 2
ERROR_CODES = {
    errors.UnknownTopic: 40401,
    errors.UnknownPartition: 40402,
    errors.LogUnavailable: 50003,
    errors.Unacknowledged: 50003,
}
"""REST Proxy's own; others are the status."""
FORBIDDEN, NOT_AUTHORIZED = 403, 40301
UNPROCESSABLE = 422


def answer_of(
    outcomes: Sequence[Fate],
    request_id: str,
    *,
    in_path: bool,
    is_async: bool = False,
    schema_ids: tuple[int | None, int | None] = (None, None),
) -> Response[str]:
    """Tell the fate of each record.

    `in_path`: whether the partition was named in the path; `is_async`: the client asked not to wait;
    `schema_ids`: of keys and values.
    """
    offsets = [_offset(index, outcome) for index, outcome in enumerate(outcomes)]
    reason = _common_reason(outcomes, in_path=in_path)
    if reason is not None:
        return refusal_of(reason, request_id, {"offsets": offsets})
    log_failures(outcomes, request_id)
    document = {"offsets": offsets, "key_schema_id": schema_ids[0], "value_schema_id": schema_ids[1]}
    headers = {"Cache-Control": "no-store"}
    if all(isinstance(outcome, Queued) for outcome in outcomes):
        applied = preferences.ASYNC_APPLIED if is_async else {}
        return Response(202, JSON, json.dumps(document), {**headers, **applied})
    return Response(200, JSON, json.dumps(document), headers)


def refusal_of(
    error: errors.KeylaneError, request_id: str, more: dict[str, Any] | None = None
) -> Response[str]:
    """The problem document, with REST Proxy's members; a wrong field is 422, as it is there."""
    response = problems.response_to(error, request_id)
    document = json.loads(response.body or "{}")
    if isinstance(error, errors.BadField):
        response.status_code = document["status"] = UNPROCESSABLE
    code = getattr(error, "error_code", ERROR_CODES.get(type(error), response.status_code))
    document["error_code"] = NOT_AUTHORIZED if code == FORBIDDEN else code
    document["message"] = document["detail"]
    response.body = json.dumps(document | (more or {}))
    return response


def _common_reason(outcomes: Sequence[Fate], *, in_path: bool) -> errors.KeylaneError | None:
    """Why none was written, where that is no single record's fault."""
    failed = [outcome for outcome in outcomes if isinstance(outcome, errors.KeylaneError)]
    if len(failed) < len(outcomes):
        return None
    kinds: list[type[errors.KeylaneError]] = [errors.UnknownTopic, errors.RateLimited, errors.LogUnavailable]
    kinds += [errors.UnknownPartition] if in_path else []
    if any(all(isinstance(each, kind) for each in failed) for kind in kinds):
        # That some may have been written is the graver news.
        return next((each for each in failed if isinstance(each, errors.Unacknowledged)), failed[0])
    return failed[0] if {status_of(each) for each in failed} == {FORBIDDEN} else None


def _offset(index: int, outcome: Fate) -> dict[str, Any]:
    if isinstance(outcome, Position):
        place = {"partition": outcome.partition, "offset": outcome.offset}
        return {**place, "error_code": None, "error": None}
    if isinstance(outcome, Queued):
        # Clients of REST Proxy look at `error_code`: a queued record has none.
        nowhere = {"partition": None, "offset": None, "error_code": None, "error": None}
        return {**nowhere, "status": "queued", "id": outcome.id}
    told = {
        "partition": None,
        "offset": None,
        "error_code": RETRIABLE if is_retriable(outcome) else FATAL,
        "error": sentence(index, outcome),
    }
    return told | described(index, outcome, value_field="value")
