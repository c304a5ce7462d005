"""Many keys of one topic, and one key of several topics: the requests, and the responses."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keylane.api.http.common_parameters import (
    KEY_CHARACTERS,
    KEY_FORMAT,
    TERMS_OF_LISTS,
    TOPIC_PATTERN,
    ValueOptions,
    parse_key,
    parse_key_texts,
    parse_terms,
    parse_value_options,
)
from keylane.api.http.json_response import freshness_of_lanes, freshness_of_topics, render_rows
from keylane.api.http.parameters import Parameter, switch, text
from keylane.api.http.request import Request, topic_name, topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import COUNT, FRESHNESS, KEY, UNSURE, Schema, an_array
from keylane.api.reads.envelope import ROW_SCHEMA, Envelopes
from keylane.api.writes.record_bodies import parse_json
from keylane.config.functions import QuerySettings
from keylane.errors import BadRequest
from keylane.query.multi_get import LaneRecords
from keylane.query.newest import Found
from keylane.query.store import ReadTerms, Watermarks

KEYS_LIMIT = 1000
TOPICS_LIMIT = 10
TOPICS_LEAST = 2
NAMES = rf"{TOPIC_PATTERN}(,{TOPIC_PATTERN}){{{TOPICS_LEAST - 1},{TOPICS_LIMIT - 1}}}"

ATOMIC = switch("atomic", "read all keys at one moment: they must share a lane")
JOIN_ATOMIC = switch("atomic", "read all topics at one moment, or not at all", default=True)
TOPICS = text("topics", "2 to 10 topics, divided by commas", TOPICS_LIMIT * 250, NAMES, required=True)
MANY: tuple[Parameter, ...] = (ATOMIC, *TERMS_OF_LISTS)
JOIN: tuple[Parameter, ...] = (TOPICS, KEY_FORMAT, JOIN_ATOMIC, *TERMS_OF_LISTS)
MANY_BODY = Schema.of(
    "ManyKeys",
    optional=("key_format",),
    keys={
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS},
        "minItems": 1,
        "maxItems": KEYS_LIMIT,
    },
    key_format={"type": "string", "enum": ["text", "base64"], "default": "text"},
)


@dataclass(frozen=True, slots=True)
class ReadManyRequest:
    """A read of many keys of one topic; with `raw_keys` of `values` they are given as they are in Kafka."""

    topic: str
    keys: tuple[bytes, ...]
    atomic: bool
    terms: ReadTerms
    values: ValueOptions


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A read of one key of several topics."""

    topics: tuple[str, ...]
    key: bytes
    atomic: bool
    terms: ReadTerms
    values: ValueOptions


def parse_read_many(request: Request, topic: str, settings: QuerySettings) -> ReadManyRequest:
    """Parse a POST of many keys. Raises BadRequest, which names the parameter at fault."""
    keys, is_base64 = _parse_keys(request.content())
    return ReadManyRequest(
        topic_of(topic),
        keys,
        ATOMIC.of(request),
        parse_terms(request, settings),
        parse_value_options(request)._replace(raw_keys=is_base64),
    )


def check_not_atomic(read: ReadManyRequest) -> None:
    """Raise BadRequest for an atomic read of keys that may be under several keys of records."""
    if read.atomic:
        what = "keys of this topic may be in several lanes, by the schemas that they have"
        raise BadRequest(f"{what}: they can't be read at one moment", "atomic")


def parse_join(request: Request, key: str, settings: QuerySettings) -> JoinRequest:
    """Parse a GET of one key of several topics. Raises BadRequest, which names the parameter at fault."""
    topics = tuple(topic_name(name, "topics") for name in TOPICS.of(request).split(","))
    if not TOPICS_LEAST <= len(topics) <= TOPICS_LIMIT:
        raise BadRequest(
            f"topics names {len(topics)} topics: a join reads {TOPICS_LEAST} to {TOPICS_LIMIT}", "topics"
        )
    if len(set(topics)) < len(topics):
        raise BadRequest("topics names a topic twice", "topics")
    return JoinRequest(
        topics,
        parse_key(request, key),
        JOIN_ATOMIC.of(request),
        parse_terms(request, settings),
        parse_value_options(request),
    )


def _parse_keys(body: bytes) -> tuple[tuple[bytes, ...], bool]:
    """Return the keys, and whether they are in base64."""
    document = parse_json(body, ': it looks like {"keys": ["a", "b"]}')
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or not 1 <= len(keys) <= KEYS_LIMIT:
        raise BadRequest(f"keys is not an array of 1 to {KEYS_LIMIT} keys", "keys")
    if not all(keys) or not all(isinstance(key, str) for key in keys):
        raise BadRequest("keys contains something that is not a string, or an empty string", "keys")
    key_format = document.get("key_format", "text")
    if not isinstance(key_format, str):
        raise BadRequest("key_format is neither text nor base64", "key_format")
    is_base64 = KEY_FORMAT.parse(key_format) == "base64"
    return parse_key_texts(keys, "keys", is_base64=is_base64), is_base64


RECORDS_SCHEMA = Schema.of("Records", optional=UNSURE, records=an_array(ROW_SCHEMA), **FRESHNESS)


def render_many(
    keys: Iterable[bytes], found: Iterable[LaneRecords], watermarks: Watermarks, envelopes: Envelopes
) -> Response[str]:
    """Render records in the order of the request's keys."""
    rows: dict[bytes, str] = {}
    for lane in found:
        rows.update(zip(lane.keys, envelopes.render_lane(lane), strict=True))
    return render_rows([rows[key] for key in keys], freshness_of_lanes(watermarks, envelopes.now_ms))


def render_found(found: Iterable[Found], watermarks: Watermarks, envelopes: Envelopes) -> Response[str]:
    """As `render_many`, of keys that may be under several keys of records."""
    records = [envelopes.render_row(key, answer) for key, answer in found]
    return render_rows(records, freshness_of_lanes(watermarks, envelopes.now_ms))


JOINED_SCHEMA = Schema.of(
    "Joined",
    optional=UNSURE,
    **KEY,
    **FRESHNESS
    | {
        "records": {"type": "object", "description": "row by topic", "additionalProperties": ROW_SCHEMA},
        "watermarks": {
            "type": "object",
            "description": "offset by topic, then by partition",
            "additionalProperties": {"type": "object", "additionalProperties": COUNT},
        },
    },
)


def render_join(found: Sequence[Found], envelopes: Envelopes) -> Response[str]:
    """Render one key's records by topic.

    `{"key": ..., "records": {"a": {...}, "b": {..., "absent": true}}, ...}`; `watermarks` are by topic too.
    """
    records = [
        f"{json.dumps(answer.layout.topic)}: {envelopes.render_row(key, answer)}" for key, answer in found
    ]
    key, first = found[0]
    before = f'{envelopes.render_key(first.layout, key)}, "records": {{'
    freshness = freshness_of_topics([answer for _, answer in found], envelopes.now_ms)
    return render_rows(records, freshness, before=before, behind="}")
