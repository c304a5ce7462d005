"""Requests for several records: their parameters, each bounded, and what they ask for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from keylane import api
from keylane.errors import BadRequest
from keylane.parameters import Parameter, switch, text

if TYPE_CHECKING:
    from keylane.api import Event
    from keylane.fields import Fields
    from keylane.settings import QuerySettings

KEYS_LIMIT = 1000
TOPICS_LIMIT = 10
TOPICS_LEAST = 2

ATOMIC = switch("atomic", "read all keys at one moment: they must share a lane")
JOIN_ATOMIC = switch("atomic", "read all topics at one moment, or not at all", default=True)
TOPICS = text("topics", "2 to 10 topics, divided by commas", TOPICS_LIMIT * 250, required=True)
COMMON = (api.PARTIAL, api.MAX_AGE_MS, api.FIELDS)
MANY: tuple[Parameter, ...] = (ATOMIC, *COMMON)
JOIN: tuple[Parameter, ...] = (TOPICS, api.KEY_FORMAT, JOIN_ATOMIC, *COMMON)

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
    return ManyRequest(api.topic_of(topic), _keys(api.body_of(event)), ATOMIC.of(query), terms_of(query))


def join_request(event: Event, key: str) -> JoinRequest:
    """Parse a GET of one key of several topics. Raises BadRequest, which names the parameter at fault."""
    query = api.query_of(event)
    topics = tuple(api.topic_name(name, "topics") for name in TOPICS.of(query).split(","))
    if not TOPICS_LEAST <= len(topics) <= TOPICS_LIMIT:
        raise BadRequest(f"topics names {len(topics)}: {TOPICS_LEAST} to {TOPICS_LIMIT} are joined", "topics")
    if len(set(topics)) < len(topics):
        raise BadRequest("topics names one of them twice", "topics")
    return JoinRequest(topics, api.key_of(key, query), JOIN_ATOMIC.of(query), terms_of(query))


def terms_of(query: dict[str, str]) -> Terms:
    """Parse what all have in common."""
    return Terms(api.PARTIAL.of(query), api.MAX_AGE_MS.of(query), api.FIELDS.of(query))


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
