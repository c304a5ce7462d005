"""What is told of a record that was not written, among others that were.

index      of the record in the request
field      of the record that is at fault, null where none is
code       Kafka's name of the error
retriable  whether the same record may be taken later
path       a JSON Pointer to the fault in the value, where a schema finds one
uncertain  true where the record may have been written all the same: sent again, it may be there twice
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from keylane import errors
from keylane.api import problems

if TYPE_CHECKING:
    from collections.abc import Iterable

    from keylane.ports import Fate

LATER = frozenset({429, 503})
"""Statuses that say when to come back."""
SENTENCES = 1000
"""Failures that are told with all that is known. After these, their kind's title: answers have a limit."""
_FIELDS = {"INVALID_TIMESTAMP": "timestamp", "INVALID_TOPIC_EXCEPTION": "topic"}
_log = logging.getLogger("keylane")


def described(index: int, error: errors.KeylaneError, *, value_field: str) -> dict[str, Any]:
    """The fields above; `value_field`: what the request calls a record's value."""
    told = {
        "index": index,
        "field": _field(error, value_field),
        "code": _code(error),
        "retriable": is_retriable(error),
    }
    if isinstance(error, errors.ValueInvalid):
        told["path"] = error.path
    return told | ({"uncertain": True} if _is_uncertain(error) else {})


def sentence(index: int, error: errors.KeylaneError) -> str:
    """What happened, for people."""
    return str(error) if index < SENTENCES else problems.kind_of(error).title


def is_retriable(error: errors.KeylaneError) -> bool:
    """Whether the same record may be taken later."""
    return isinstance(error, errors.Unavailable) or getattr(error, "retriable", False)


def status_of(error: errors.KeylaneError) -> int:
    """The status that a request of this record alone would have."""
    return problems.kind_of(error).status


def retry_after_s(error: errors.KeylaneError) -> int:
    """Seconds after which to come back."""
    return getattr(error, "retry_after_s", 1)


def log_failures(outcomes: Iterable[Fate], request_id: str) -> None:
    """Log what is on our side or Kafka's: a line for each kind of failure, with how many there are."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        if isinstance(outcome, errors.KeylaneError) and status_of(outcome) >= problems.SERVER_ERROR:
            line = f"{outcome}; cause: {outcome.__cause__!r}"
            counts[line] = counts.get(line, 0) + 1
    for line, count in counts.items():
        _log.warning("request %s: %d records failed: %s", request_id, count, line)


def _is_uncertain(error: errors.KeylaneError) -> bool:
    return isinstance(error, errors.Unacknowledged) or getattr(error, "uncertain", False)


def _code(error: errors.KeylaneError) -> str:
    if isinstance(error, errors.TooLarge):
        return "MESSAGE_TOO_LARGE"
    return problems.kind_of(error).code or "REQUEST_TIMED_OUT"


def _field(error: errors.KeylaneError, value_field: str) -> str | None:
    if isinstance(error, errors.TooLarge):
        return "key" if error.what == "key" else value_field
    if isinstance(error, errors.ValueInvalid):
        return value_field
    if isinstance(error, errors.UnknownTopic | errors.UnknownPartition):
        return "topic" if isinstance(error, errors.UnknownTopic) else "partition"
    if isinstance(error, errors.PartitionMissing):
        return "partition"
    if not isinstance(error, errors.ProduceFailed):
        return getattr(error, "field", None)
    return value_field if error.code == "MESSAGE_TOO_LARGE" else _FIELDS.get(error.code)
