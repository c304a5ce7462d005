"""`POST /push` as kprf has it (github.com/city-mobil/kafka-proxy): its body, and its answer.

    {"records": [{"topic": "flights", "key": "N14228", "partition": 3, "data": "..."}], "wait_for_send": true}

`topic` and `data` are texts that must be there; `key` and `partition` may be missing or null, and a partition
of -1 is none, as in librdkafka. Fields that kprf doesn't know are ignored, as it does.

    {"status": "ok", "errors": [], "positions": ["3:1042"]}
    {"status": "err", "errors": [{"error": true, "message": "..."}, {"error": false, "message": null}],
     "positions": [null, "3:1042"]}

`errors` is empty, or has an entry for each record. That is what kprf's code answers; its README shows
another form. Ours has more: `positions`, and in an entry `status` ("ok" or "error") and, where the record
failed, what `fates.described` tells. The status is 200, or that of the gravest failure, where kprf's is 500.

`wait_for_send` is false where it isn't given. kprf answers such a request before it sends anything. A
function is frozen once it has answered, and what its client still holds then is lost: so the answer comes
when the records are in the write-ahead log, or, where there is none, when Kafka has acknowledged them.

    {"status": "ok", "errors": [], "positions": [null], "queued": ["0f8e...-0"]}

`queued` is there where a record is in the log: its id, which it has in Kafka as the header `keylane-id`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from keylane.api.outcomes import LATER, described, log_failures, retry_after_s, sentence, status_of
from keylane.api.record_bodies import RECORDS_LIMIT, check_topics, document_of, kind_of, records_in
from keylane.api.rendering import JSON
from keylane.api.response import Response
from keylane.errors import BadField, KeylaneError
from keylane.model.records import NewRecord, Position, Queued

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.api.event import Event
    from keylane.api.record_bodies import Given
    from keylane.ports import Fate

ANY_PARTITION = -1
_INT32 = 2**31

BODY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "records": {
            "type": "array",
            "maxItems": RECORDS_LIMIT,
            "items": {
                "type": "object",
                "properties": {
                    "topic": {"type": "string"},
                    "key": {"type": ["string", "null"]},
                    "partition": {"type": ["integer", "null"], "minimum": -_INT32, "maximum": _INT32 - 1},
                    "data": {"type": "string"},
                },
                "required": ["topic", "data"],
            },
        },
        "wait_for_send": {"type": ["boolean", "null"], "default": False},
    },
    "required": ["records"],
}


def request_of(event: Event) -> tuple[list[NewRecord], bool]:
    """The records of a push, and whether it waits for them. Raises BadRequest, BadField, TooLarge."""
    document = document_of(event)
    wait_for_send = document.get("wait_for_send")
    if not isinstance(wait_for_send, bool | None):
        raise BadField(f"is {kind_of(wait_for_send)}, not true or false", "wait_for_send")
    records = [_record(given) for given in records_in(document, 0)]
    check_topics(records)
    return records, bool(wait_for_send)


def _record(given: Given) -> NewRecord:
    topic = given.needed_text("topic")
    partition = given.whole("partition", -_INT32, _INT32 - 1)
    if partition == ANY_PARTITION:
        partition = None
    return NewRecord(topic, given.text("key"), given.needed("data"), partition)


def answer_of(outcomes: Sequence[Fate], request_id: str) -> Response[str]:
    """Tell the fate of each record."""
    log_failures(outcomes, request_id)
    failed = [outcome for outcome in outcomes if isinstance(outcome, KeylaneError)]
    document = {
        "status": "err" if failed else "ok",
        "errors": [_entry(index, outcome) for index, outcome in enumerate(outcomes)] if failed else [],
        "positions": [str(outcome) if isinstance(outcome, Position) else None for outcome in outcomes],
    }
    queued = [outcome.id if isinstance(outcome, Queued) else None for outcome in outcomes]
    if any(queued):
        document["queued"] = queued
    headers = {"Cache-Control": "no-store"}
    status = max(map(status_of, failed), default=200)
    if status in LATER:
        headers["Retry-After"] = str(max(map(retry_after_s, failed)))
    return Response(status, JSON, json.dumps(document), headers)


def _entry(index: int, outcome: Fate) -> dict[str, Any]:
    if isinstance(outcome, Position):
        return {"status": "ok", "error": False, "message": None}
    if isinstance(outcome, Queued):
        return {"status": "queued", "error": False, "message": None}
    told = {"status": "error", "error": True, "message": sentence(index, outcome)}
    return told | described(index, outcome, value_field="data")
