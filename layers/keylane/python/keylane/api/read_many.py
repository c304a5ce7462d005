"""Requests for many keys, or for one key of several topics, and their answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keylane.api import event as event_api
from keylane.api.parameters import Parameter, switch, text
from keylane.errors import BadRequest

if TYPE_CHECKING:
    from keylane.api.event import Event
    from keylane.api.response import Response
    from keylane.formats.projection import Fields
from typing import TYPE_CHECKING

from keylane.api.envelope import Envelopes, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from keylane.formats.projection import Fields
    from keylane.model.records import Answer
    from keylane.query.freshness import Watermarks
from keylane.api.document import document, freshness_of
from keylane.api.envelope import _row
from keylane.api.terms import COMMON, NAME, Terms, bytes_of, terms_of

KEYS_LIMIT = 1000


TOPICS_LIMIT = 10


TOPICS_LEAST = 2


ATOMIC = switch("atomic", "read all keys at one moment: they must share a lane")


JOIN_ATOMIC = switch("atomic", "read all topics at one moment, or not at all", default=True)


NAMES = rf"{NAME}(,{NAME}){{{TOPICS_LEAST - 1},{TOPICS_LIMIT - 1}}}"


TOPICS = text("topics", "2 to 10 topics, divided by commas", TOPICS_LIMIT * 250, NAMES, required=True)


MANY: tuple[Parameter, ...] = (ATOMIC, *COMMON)


JOIN: tuple[Parameter, ...] = (TOPICS, event_api.KEY_FORMAT, JOIN_ATOMIC, *COMMON)


MANY_BODY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "keys": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": KEYS_LIMIT,
        },
        "key_format": {"type": "string", "enum": ["text", "base64"], "default": "text"},
    },
    "required": ["keys"],
}


@dataclass(frozen=True, slots=True)
class ManyRequest:
    """A read of many keys of one topic."""

    topic: str
    keys: tuple[bytes, ...]
    atomic: bool
    terms: Terms


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A read of one key of several topics."""

    topics: tuple[str, ...]
    key: bytes
    atomic: bool
    terms: Terms


def many_request(event: Event, topic: str) -> ManyRequest:
    """Parse a POST of many keys. Raises BadRequest, which names the parameter at fault."""
    query = event_api.query_of(event)
    return ManyRequest(
        event_api.topic_of(topic), _keys(event_api.body_of(event)), ATOMIC.of(query), terms_of(event)
    )


def join_request(event: Event, key: str) -> JoinRequest:
    """Parse a GET of one key of several topics. Raises BadRequest, which names the parameter at fault."""
    query = event_api.query_of(event)
    topics = tuple(event_api.topic_name(name, "topics") for name in TOPICS.of(query).split(","))
    if not TOPICS_LEAST <= len(topics) <= TOPICS_LIMIT:
        raise BadRequest(f"topics names {len(topics)}: {TOPICS_LEAST} to {TOPICS_LIMIT} are joined", "topics")
    if len(set(topics)) < len(topics):
        raise BadRequest("topics names one of them twice", "topics")
    return JoinRequest(topics, event_api.key_of(key, query), JOIN_ATOMIC.of(query), terms_of(event))


def _keys(body: bytes) -> tuple[bytes, ...]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest('the body is no JSON: it looks like {"keys": ["a", "b"]}', "body") from error
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or not 1 <= len(keys) <= KEYS_LIMIT:
        raise BadRequest(f"keys is no list of 1 to {KEYS_LIMIT} keys", "keys")
    if not all(isinstance(key, str) and key for key in keys):
        raise BadRequest("keys holds something that is no text, or empty", "keys")
    key_format = document.get("key_format", "text")
    if not isinstance(key_format, str):
        raise BadRequest("key_format is neither text nor base64", "key_format")
    is_base64 = event_api.KEY_FORMAT.of({"key_format": key_format}) == "base64"
    return tuple(bytes_of(key, "keys", is_base64=is_base64) for key in keys)


def of_many(
    rows: Iterable[tuple[bytes, Answer]], marks: Watermarks, now_ms: int, fields: Fields | None
) -> Response[str]:
    """Records in the order asked for."""
    envelopes = Envelopes(now_ms, fields)
    records = [_row(envelopes, key, answer) for key, answer in rows]
    return document(f'"records": [{", ".join(records)}]', freshness_of(marks, now_ms), marks.layout.topic)


def of_join(key: bytes, answers: Sequence[Answer], now_ms: int, fields: Fields | None) -> Response[str]:
    """One key's records by topic: `{"key": ..., "records": {"a": {...}, "b": {..., "absent": true}}, ...}`.

    `watermarks` are by topic too.
    """
    records = [
        f"{json.dumps(answer.layout.topic)}: {_row(Envelopes(now_ms, fields), key, answer)}"
        for answer in answers
    ]
    ages: tuple[tuple[str, int], ...] = ()
    freshness: dict[str, Any] = {
        "watermarks": {
            answer.layout.topic: {str(answer.partition): answer.watermark.next_offset} for answer in answers
        }
    }
    if any(answer.is_building for answer in answers):
        freshness["building"] = True
    else:
        ages = tuple((answer.layout.topic, answer.age_ms(now_ms)) for answer in answers)
        freshness["age_ms"] = max(age_ms for _, age_ms in ages)
    if any(answer.watermark.incomplete for answer in answers):
        freshness["incomplete"] = True
    inner = f'{json.dumps(key_of(key))[1:-1]}, "records": {{{", ".join(records)}}}'
    response = document(inner, freshness, "")
    response.ages = ages
    return response
