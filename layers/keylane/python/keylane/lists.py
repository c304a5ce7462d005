"""Requests for several records: their parameters, each bounded, and what they ask for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from keylane import api, cursors
from keylane.errors import BadRequest
from keylane.keys import KEY_LIMIT_BYTES
from keylane.parameters import Parameter, moment, switch, text, whole
from keylane.ranges import Span

if TYPE_CHECKING:
    from keylane.api import Event
    from keylane.fields import Fields
    from keylane.settings import QuerySettings

KEYS_LIMIT = 1000
TOPICS_LIMIT = 10
TOPICS_LEAST = 2
KEY_CHARACTERS = 90_000
"""A key of 64 KiB in base64."""

ATOMIC = switch("atomic", "read all keys at one moment: they must share a lane")
JOIN_ATOMIC = switch("atomic", "read all topics at one moment, or not at all", default=True)
NAME = r"[a-zA-Z0-9._-]{1,249}"
NAMES = rf"{NAME}(,{NAME}){{{TOPICS_LEAST - 1},{TOPICS_LIMIT - 1}}}"
TOPICS = text("topics", "2 to 10 topics, divided by commas", TOPICS_LIMIT * 250, NAMES, required=True)
TOPIC = text("topic", "a topic", 249, NAME, required=True)
METADATA: tuple[Parameter, ...] = (TOPIC,)
COMMON = (api.PARTIAL, api.MAX_AGE_MS, api.FIELDS)
MANY: tuple[Parameter, ...] = (ATOMIC, *COMMON)
JOIN: tuple[Parameter, ...] = (TOPICS, api.KEY_FORMAT, JOIN_ATOMIC, *COMMON)
LIMIT = whole("limit", "how many records a page has at most", 1, 1000, 100)
CURSOR = text(
    "cursor", "`next` of the page before, asked for with the same bounds", cursors.LONGEST_CHARACTERS
)
KEYS_ONLY = switch("keys_only", "the keys without their records")
PREFIX = text("prefix", "keys that begin with this", KEY_CHARACTERS)
FROM_KEY = text("from", "keys from this one on, in bytewise order", KEY_CHARACTERS)
TO_KEY = text("to", "keys below this one", KEY_CHARACTERS)
FROM_TIME = moment("from", "records from this time on: ms since 1970, or ISO 8601")
TO_TIME = moment("to", "records before this time")
AS_OF_TIME = moment("as_of", "the records that were in force at this time")
RANGE: tuple[Parameter, ...] = (
    *(PREFIX, FROM_KEY, TO_KEY, api.KEY_FORMAT, LIMIT, CURSOR, KEYS_ONLY, AS_OF_TIME),
    *COMMON,
)
HISTORY: tuple[Parameter, ...] = (api.KEY_FORMAT, FROM_TIME, TO_TIME, LIMIT, CURSOR, *COMMON)

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


class Bounds(TypedDict):
    """Arguments that the reads of several records share."""

    partial: bool
    max_age_ms: int | None
    timeout_ms: float


@dataclass(frozen=True, slots=True)
class Terms:
    """What reads of several records have in common."""

    partial: bool
    max_age_ms: int | None
    fields: Fields | None
    as_bytes: bool = False

    def bounds(self, settings: QuerySettings) -> Bounds:
        """The arguments of the use case."""
        return {
            "partial": self.partial,
            "max_age_ms": self.max_age_ms,
            "timeout_ms": settings.state_timeout_ms,
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
    query = api.query_of(event)
    return ManyRequest(api.topic_of(topic), _keys(api.body_of(event)), ATOMIC.of(query), terms_of(event))


def join_request(event: Event, key: str) -> JoinRequest:
    """Parse a GET of one key of several topics. Raises BadRequest, which names the parameter at fault."""
    query = api.query_of(event)
    topics = tuple(api.topic_name(name, "topics") for name in TOPICS.of(query).split(","))
    if not TOPICS_LEAST <= len(topics) <= TOPICS_LIMIT:
        raise BadRequest(f"topics names {len(topics)}: {TOPICS_LEAST} to {TOPICS_LIMIT} are joined", "topics")
    if len(set(topics)) < len(topics):
        raise BadRequest("topics names one of them twice", "topics")
    return JoinRequest(topics, api.key_of(key, query), JOIN_ATOMIC.of(query), terms_of(event))


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """A page of a topic's keys; `asked` is what its cursor holds of it."""

    topic: str
    span: Span
    limit: int
    after: bytes | None
    keys_only: bool
    as_of_ms: int | None
    asked: bytes
    terms: Terms


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """A page of a key's history; `asked` is what its cursor holds of it."""

    topic: str
    key: bytes
    from_ms: int | None
    to_ms: int | None
    limit: int
    after: bytes | None
    asked: bytes
    terms: Terms


def range_request(event: Event, topic: str) -> RangeRequest:
    """Parse a GET of a topic's keys in order. Raises BadRequest, which names the parameter at fault."""
    query = api.query_of(event)
    name = api.topic_of(topic)
    span = span_of(query)
    as_of_ms = AS_OF_TIME.of(query)
    asked = cursors.digest("keys", span.low, span.high, as_of_ms)
    after = _after(query, name, asked)
    return RangeRequest(
        name, span, LIMIT.of(query), after, KEYS_ONLY.of(query), as_of_ms, asked, terms_of(event)
    )


def span_of(
    query: dict[str, str], prefix_of: Parameter = PREFIX, from_: Parameter = FROM_KEY, to: Parameter = TO_KEY
) -> Span:
    """The keys that these three parameters ask for. Raises BadRequest."""
    prefix, low, high = prefix_of.of(query), from_.of(query), to.of(query)
    is_base64 = api.KEY_FORMAT.of(query) == "base64"
    if prefix is not None and (low is not None or high is not None):
        raise BadRequest(f"give prefix, or {from_.name} and {to.name}, not both", "prefix")
    if prefix is not None:
        return Span.of_prefix(_bound(prefix, "prefix", is_base64=is_base64))
    first = _bound(low or "", from_.name, is_base64=is_base64)
    last = None if high is None else _bound(high, to.name, is_base64=is_base64)
    if last is not None and last < first:
        raise BadRequest(f"{to.name} is below {from_.name}", to.name)
    return Span(first, last)


def _bound(given: str, parameter: str, *, is_base64: bool) -> bytes:
    data = bytes_of(given, parameter, is_base64=is_base64)
    if len(data) > KEY_LIMIT_BYTES:
        raise BadRequest(f"{parameter} has {len(data)} bytes, a key {KEY_LIMIT_BYTES} at most", parameter)
    return data


def history_request(event: Event, topic: str, key: str) -> HistoryRequest:
    """Parse a GET of a key's history. Raises BadRequest, which names the parameter at fault."""
    query = api.query_of(event)
    name, data = api.topic_of(topic), api.key_of(key, query)
    from_ms, to_ms = FROM_TIME.of(query), TO_TIME.of(query)
    if from_ms is not None and to_ms is not None and to_ms < from_ms:
        raise BadRequest("to is before from", "to")
    asked = cursors.digest("history", data, from_ms, to_ms)
    after = _after(query, name, asked)
    return HistoryRequest(name, data, from_ms, to_ms, LIMIT.of(query), after, asked, terms_of(event))


def _after(query: dict[str, str], topic: str, asked: bytes) -> bytes | None:
    cursor = CURSOR.of(query)
    return None if cursor is None else cursors.decode(cursor, topic, asked)


def metadata_request(event: Event) -> str:
    """Parse a GET of a topic's partitions: its name. Raises BadRequest."""
    return api.topic_name(TOPIC.of(api.query_of(event)), "topic")


def terms_of(event: Event) -> Terms:
    """Parse what all have in common."""
    query = api.query_of(event)
    as_bytes = api.prefers_bytes(api.headers_of(event).get("accept"))
    return Terms(api.PARTIAL.of(query), api.MAX_AGE_MS.of(query), api.FIELDS.of(query), as_bytes)


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
    is_base64 = api.KEY_FORMAT.of({"key_format": key_format}) == "base64"
    return tuple(bytes_of(key, "keys", is_base64=is_base64) for key in keys)


def bytes_of(given: str, parameter: str, *, is_base64: bool) -> bytes:
    """A key's bytes. Raises BadRequest."""
    try:
        data = given.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{parameter} holds characters that are no Unicode text", parameter) from error
    return api.from_base64(data, parameter) if is_base64 else data
