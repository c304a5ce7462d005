"""Results of single records, as fields of a response.

index      the record's index in the request
field      the field at fault, null where none is
code       Kafka's name for the error
retriable  whether the same record may be accepted later
path       a JSON Pointer to the fault in the value, where a schema finds one
uncertain  true if the record may have been written all the same: sent again, it may be there twice
superseded true if a newer record of its key was written: sent again, it would turn the key back
"""

import logging
from collections.abc import Iterable
from typing import Any

from keylane import errors
from keylane.api.http import problems
from keylane.api.http.schemas import COUNT, FLAG, MAYBE_TEXT, TEXT
from keylane.ports import RecordResult

RETRY_LATER = frozenset({429, 503})
"""Statuses that come with `Retry-After`."""
FULL_MESSAGES = 1000
"""This many records get a full message, later ones the title of their problem: responses have a limit."""
_FIELDS = {"INVALID_TIMESTAMP": "timestamp", "INVALID_TOPIC_EXCEPTION": "topic"}
FAILURE = {
    "index": {**COUNT, "description": "index of a failed record in the request"},
    "field": {**MAYBE_TEXT, "description": "the field of the record that caused the error"},
    "code": {**TEXT, "description": "Kafka's name for the error"},
    "retriable": FLAG,
    "uncertain": {**FLAG, "description": "the record may have been written in spite of the error"},
    "superseded": {**FLAG, "description": "a newer record of its key was written: do not send it again"},
    "path": {**TEXT, "description": "JSON Pointer to the part of the value that its schema rejects"},
}
"""The schemas of the fields above."""
QUEUED_ID = {"type": "string", "description": "id of a queued record, in Kafka its header keylane-id"}
_log = logging.getLogger("keylane")


def describe_failure(index: int, error: errors.KeylaneError, *, value_field: str) -> dict[str, Any]:
    """The fields above; `value_field` is the request's name for a record's value."""
    fields = {
        "index": index,
        "field": _field(getattr(error, "reason", error), value_field),
        "code": _code(error),
        "retriable": is_retriable(error),
    }
    if isinstance(error, errors.ValueInvalid):
        fields["path"] = error.path
    return fields | describe_doubts(error)


def describe_doubts(error: errors.KeylaneError) -> dict[str, Any]:
    """`superseded` and `uncertain`, where they are true."""
    found = {
        "superseded": isinstance(error, errors.Superseded),
        "uncertain": getattr(error, "uncertain", False),
    }
    return {name: True for name, is_so in found.items() if is_so}


def message_of(index: int, error: errors.KeylaneError) -> str:
    """What happened, for people."""
    return str(error) if index < FULL_MESSAGES else problems.kind_of(error).title


def is_retriable(error: errors.KeylaneError) -> bool:
    """Whether the same record may be accepted later."""
    return isinstance(error, errors.Unavailable) or getattr(error, "retriable", False)


def status_of(error: errors.KeylaneError) -> int:
    """The status of a request with this record alone."""
    return problems.kind_of(error).status


def retry_after_s(error: errors.KeylaneError) -> int:
    """Seconds to wait before the next attempt."""
    return getattr(error, "retry_after_s", 1)


def log_failures(results: Iterable[RecordResult], request_id: str) -> None:
    """Log the failures that are Keylane's or Kafka's: a line for each kind, with its number of records."""
    counts: dict[str, int] = {}
    for result in results:
        if isinstance(result, errors.KeylaneError) and status_of(result) >= problems.SERVER_ERROR:
            line = f"{result}; cause: {result.__cause__!r}"
            counts[line] = counts.get(line, 0) + 1
    for line, count in counts.items():
        fields = problems.correlated(request_id)
        _log.warning("request %s: %d records failed: %s", request_id, count, line, extra=fields)


def _code(error: errors.KeylaneError) -> str:
    if isinstance(error, errors.TooLarge):
        return "MESSAGE_TOO_LARGE"
    return problems.kind_of(error).code or "REQUEST_TIMED_OUT"


def _field(error: errors.KeylaneError, value_field: str) -> str | None:
    if isinstance(error, errors.TooLarge):
        return "key" if error.what == "key" else value_field
    if isinstance(error, errors.ValueInvalid):
        return value_field
    if isinstance(error, errors.UnknownTopic | errors.TopicNotServed):
        return "topic"
    if isinstance(error, errors.UnknownPartition | errors.PartitionMissing):
        return "partition"
    if isinstance(error, errors.ProduceFailed):
        return value_field if error.code == "MESSAGE_TOO_LARGE" else _FIELDS.get(error.code)
    return getattr(error, "field", None)
