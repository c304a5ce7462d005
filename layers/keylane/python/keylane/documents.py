"""Answers of several records as one JSON document, with the freshness of all lanes that they come from.

    {"records": [{... as ?envelope=true has it}, {"key": "b", "key_format": "text", "absent": true}],
     "watermarks": {"3": 2077, "5": 1401}, "age_ms": 212}

`watermarks`: partition -> everything below is in the answer. `age_ms` is that of the oldest lane; where one
is still being built there is `building` instead. `incomplete` where retention has removed what a lane never
saw.
Headers: Keylane-Age-Ms, Keylane-Building and Keylane-Incomplete, as of one record.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import Response

from keylane import cursors
from keylane.answers import Envelopes, headers_of, key_of, with_value
from keylane.errors import HistoryTooShort
from keylane.metrics import METER
from keylane.spelling import JSON

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from keylane import history, ranges, topics
    from keylane.fields import Fields
    from keylane.lanes import Marks
    from keylane.lists import HistoryRequest, RangeRequest
    from keylane.model import Answer, Options


def of_many(
    rows: Iterable[tuple[bytes, Answer]], marks: Marks, now_ms: int, fields: Fields | None
) -> Response[str]:
    """Records in the order asked for."""
    envelopes = Envelopes(now_ms, fields)
    records = [_row(envelopes, key, answer) for key, answer in rows]
    return document(f'"records": [{", ".join(records)}]', freshness_of(marks, now_ms))


def of_join(key: bytes, answers: Sequence[Answer], now_ms: int, fields: Fields | None) -> Response[str]:
    """One key's records by topic: `{"key": ..., "records": {"a": {...}, "b": {..., "absent": true}}, ...}`.

    `watermarks` are by topic too.
    """
    records = [
        f"{json.dumps(answer.layout.topic)}: {_row(Envelopes(now_ms, fields), key, answer)}"
        for answer in answers
    ]
    freshness: dict[str, Any] = {
        "watermarks": {
            answer.layout.topic: {str(answer.partition): answer.watermark.next_offset} for answer in answers
        }
    }
    if any(answer.is_building for answer in answers):
        freshness["building"] = True
    else:
        freshness["age_ms"] = max(answer.age_ms(now_ms) for answer in answers)
        for answer in answers:
            METER.observe("AnswerAge", answer.age_ms(now_ms), answer.layout.topic)
    if any(answer.watermark.incomplete for answer in answers):
        freshness["incomplete"] = True
    return document(f'{json.dumps(key_of(key))[1:-1]}, "records": {{{", ".join(records)}}}', freshness)


def of_range(page: ranges.Page, request: RangeRequest, now_ms: int) -> Response[str]:
    """A page of keys in order; `next` is there where it goes on.

    A row whose history is too short for `as_of` has `"history_too_short": true` and `since_ms` alone.
    """
    envelopes = Envelopes(now_ms, request.terms.fields)
    records = []
    for key, found in page.rows:
        if found is None:
            records.append(json.dumps(key_of(key)))
        elif isinstance(found, HistoryTooShort):
            unknown = {"history_too_short": True, "since_ms": found.since_ms}
            records.append(json.dumps({**key_of(key), **unknown}))
        else:
            records.append(_row(envelopes, key, found))
    return _page(records, page.next_after, page.marks, request, now_ms=now_ms)


def of_history(page: history.Page, request: HistoryRequest, now_ms: int) -> Response[str]:
    """A page of a history, newest first: `{"key": ..., "records": [...], "next": ...}`.

    A record has position, timestamp and value as in an envelope, a tombstone `"deleted": true` instead.
    """
    records = []
    for entry in page.entries:
        at = entry.position
        head = (
            f'{{"partition": {at.partition}, "offset": {at.offset}, "position": "{at}", '
            f'"timestamp": {entry.timestamp_ms}'
        )
        if entry.record is None:
            records.append(f'{head}, "deleted": true}}')
            continue
        if page.marks.layout.options.headers:
            head += f', "headers": {json.dumps(headers_of(entry.record))}'
        records.append(with_value(head, entry.record, request.terms.fields))
    return _page(records, page.next_after, page.marks, request, now_ms=now_ms, described=key_of(request.key))


def _page(
    records: list[str],
    next_after: bytes | None,
    marks: Marks,
    request: RangeRequest | HistoryRequest,
    *,
    now_ms: int,
    described: dict[str, str] | None = None,
) -> Response[str]:
    head = f"{json.dumps(described)[1:-1]}, " if described else ""
    freshness = freshness_of(marks, now_ms)
    if next_after is not None:
        freshness = {"next": cursors.encode(request.topic, request.asked, next_after), **freshness}
    return document(f'{head}"records": [{", ".join(records)}]', freshness)


def of_topic(topic: topics.TopicView, now_ms: int) -> Response[str]:
    """Layout, options, totals, and each lane; `age_ms` is missing where a lane was never whole."""
    layout = topic.layout
    lanes = [_lane(lane, now_ms) for lane in topic.lanes]
    ages = [lane["age_ms"] for lane in lanes if "age_ms" in lane]
    return plain(
        {
            "topic": layout.topic,
            "partitions": layout.partition_count,
            "stripes": layout.stripes,
            "partitioner": layout.partitioner,
            "partition_by": layout.partition_by,
            "generation": layout.generation,
            "options": _options(layout.options),
            "building": any(lane["building"] for lane in lanes),
            "incomplete": any(lane["incomplete"] for lane in lanes),
            "lag": sum(lane["lag"] for lane in lanes),
            **({"age_ms": max(ages)} if len(ages) == len(lanes) else {}),
            "strays": {"strays": 0} | topic.strays,
            "lanes": lanes,
        }
    )


def _options(options: Options) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name != "view"}


def _lane(lane: topics.LaneView, now_ms: int) -> dict[str, Any]:
    home, mark = lane.home, lane.watermark
    next_offset = mark.next_offset if mark else 0
    log_end = mark.log_end if mark else 0
    described = {
        "partition": home.partition,
        "stripe": home.stripe,
        "slot": home.slot,
        "shard": lane.shard,
        "next_offset": next_offset,
        "log_end": log_end,
        "lag": max(0, log_end - next_offset),
        "building": not (mark and mark.complete_as_of_ms),
        "incomplete": bool(mark and mark.incomplete),
        "has_strays": bool(mark and mark.has_strays),
    }
    if mark and mark.complete_as_of_ms:
        described["age_ms"] = max(0, now_ms - mark.complete_as_of_ms)
    return described


def of_partitions(partitions: dict[str, list[int]]) -> Response[str]:
    """`{"host:port": [0, 1, 2], ...}`."""
    return plain(partitions)


def plain(fields: dict[str, Any]) -> Response[str]:
    """A document that has no freshness of its own."""
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return Response(200, JSON, json.dumps(fields), headers)


def _row(envelopes: Envelopes, key: bytes, answer: Answer) -> str:
    """One record's envelope, or that there is none."""
    if answer.record is None:
        return json.dumps({**key_of(key), "absent": True})
    return envelopes.of(answer, answer.record)


def freshness_of(marks: Marks, now_ms: int) -> dict[str, Any]:
    """What the document tells of the lanes."""
    offsets = sorted(marks.next_offsets.items())
    told: dict[str, Any] = {"watermarks": {str(partition): next_offset for partition, next_offset in offsets}}
    if marks.is_building:
        told["building"] = True
    else:
        told["age_ms"] = marks.age_ms(now_ms)
        METER.observe("AnswerAge", told["age_ms"], marks.layout.topic)
    if marks.is_incomplete:
        told["incomplete"] = True
    return told


def document(inner: str, freshness: dict[str, Any]) -> Response[str]:
    """The document: what is JSON text already, then the freshness."""
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    for name, header in (
        ("age_ms", "Keylane-Age-Ms"),
        ("building", "Keylane-Building"),
        ("incomplete", "Keylane-Incomplete"),
    ):
        if name in freshness:
            headers[header] = json.dumps(freshness[name])
    return Response(200, JSON, f"{{{inner}, {json.dumps(freshness)[1:-1]}}}", headers)
