"""Requests and responses without a network, conversations of them, and how they carry keys, values and times.

A conversation is a generator: it yields a request, is sent the response, and returns its result. A stream
also yields items. A driver (`drivers`) carries out both, blocking or asynchronously: the logic exists once.
"""

import base64
import json
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from keylane_client.answers import Position
from keylane_client.errors import InvalidArgument
from keylane_client.models import to_json

S = TypeVar("S")
T = TypeVar("T")
Key = str | bytes
"""A key: a string is written as UTF-8."""
AskedKey = Key | int | Mapping[str, Any]
"""A key to read: of a topic with typed keys also its only value, or its fields."""
Moment = datetime | int | str | Position
"""A time (a datetime, milliseconds since 1970, ISO 8601), or a position."""
Loads = Callable[[str | bytes], Any]
"""Parses JSON, as `json.loads` and `parse_json` do."""
EVENT_STREAM = "text/event-stream"
STREAM_SILENCE_S = 45.0
"""A server sends a comment every 15 s: one that is silent for that long is gone."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request. `path` is percent-encoded, and relative to the API's URL.

    A parameter of `query` may have several values. `is_repeatable`: sent twice it does what it does once.
    `also_answers`: statuses besides 2xx that are answers and not errors. `delay_s`: how long to wait before
    it is sent.
    """

    method: str
    path: str
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    is_repeatable: bool = True
    also_answers: frozenset[int] = frozenset()
    delay_s: float = 0


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """One response; the names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Exchange:
    """One attempt of a request, as hooks see it, for logs and traces.

    A hook may add to `headers` before it is sent. After it `status` is that of the answer, or `error` says
    why there is none; an answer that is an error has both. `took_s`: until the answer was complete, or, of a
    stream, had begun. `path` is percent-encoded, and has keys in it. `headers` have no credentials yet.
    """

    method: str
    path: str
    headers: dict[str, str]
    status: int | None = None
    error: Exception | None = None
    took_s: float = 0.0


Hook = Callable[[Exchange], AbstractContextManager[object]]
"""Entered around each attempt: a function with `contextlib.contextmanager` that yields once."""


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """Items for whoever iterates over the stream."""

    items: Sequence[T]


@dataclass(frozen=True, slots=True, eq=False)
class Listening:
    """A body that is read as it comes: each time it is yielded, its next bytes are the body; none at its end.

    `silence_s`: the longest time without a byte. `media_type`: what the body must be.
    """

    request: ApiRequest
    silence_s: float
    media_type: str = EVENT_STREAM


def listen_to_changes(
    path: str, query: Mapping[str, str | Sequence[str]], behind: str, delay_s: float
) -> Listening:
    """Return what reads the changes of a topic or a key. `behind`: the last event that was read; "": none."""
    headers = {"Accept": EVENT_STREAM} | ({"Last-Event-ID": behind} if behind else {})
    return Listening(ApiRequest("GET", f"{path}/changes", query, headers, delay_s=delay_s), STREAM_SILENCE_S)


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """One caller's part of what several may ask together (`batching`); it is sent what became of its part.

    `batch`: parts of equal ones may be in one request. `ask`: the conversation of all parts, whose result has
    what became of each, in their order. `interrupted`: what the part is sent where whoever asked was
    interrupted meanwhile.
    """

    batch: Hashable
    ask: "Callable[[Sequence[Any]], Conversation[Sequence[Any]]]"
    part: Any
    interrupted: Any


Conversation = Generator[ApiRequest, ApiResponse, T]
"""A conversation whose result is a T."""
Stream = Generator[ApiRequest | Listening | Together | Items[T], ApiResponse, None]
"""A conversation that brings items step by step, such as the pages of a range."""


def advance(steps: Generator[S, ApiResponse, Any], outcome: ApiResponse | Exception | None) -> S:
    """Return what is to be done after this outcome of the step before. Raises StopIteration at the end."""
    if isinstance(outcome, Exception):
        return steps.throw(outcome)
    return next(steps) if outcome is None else steps.send(outcome)


def stream_of(conversation: Conversation[T]) -> Stream[T]:
    """Return a stream whose only item is the conversation's result."""
    yield Items([(yield from conversation)])


def encode_key(key: Key) -> bytes:
    """Return the key's bytes. Raises InvalidArgument for an empty one, and what is no key or no Unicode."""
    if not isinstance(key, (str, bytes)):
        raise InvalidArgument(f"a key is a string or bytes, not {type(key).__name__}")
    if not key:
        raise InvalidArgument("the key is empty: records without a key cannot be read by key")
    return _utf8(key, "the key") if isinstance(key, str) else key


def _utf8(text: str, what: str) -> bytes:
    """Return a text's bytes. Raises InvalidArgument for half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} is not valid Unicode: {error.reason}") from error


def plain_key(key: AskedKey) -> Key:
    """Return a key to read as a text: fields as JSON. Raises InvalidArgument for fields that are not JSON."""
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    return to_json(dict(key)) if isinstance(key, Mapping) else key  # type: ignore[return-value]


def normal_key(key: AskedKey) -> Key:
    """Return a key as documents have it: a string if it is UTF-8, of a typed key's fields their JSON."""
    if isinstance(key, Mapping):
        return json.dumps(json.loads(to_json(dict(key))), sort_keys=True, ensure_ascii=False)
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return key
    return plain_key(key)


def segment(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(_utf8(name, "the name"), safe="")


def key_segment(key: Key) -> tuple[str, dict[str, str]]:
    """Return the key as a segment of a path, and the query that belongs to it.

    HTTP clients and proxies resolve `.` and `..`, however they are encoded: base64 hides them.
    """
    data = encode_key(key)
    if data in (b".", b".."):
        return base64.urlsafe_b64encode(data).decode().rstrip("="), {"key_format": "base64"}
    return quote(data, safe=""), {}


def key_path(topic: str, key: Key) -> tuple[str, dict[str, str]]:
    """Return the path of a key, and the query that belongs to it."""
    name, query = key_segment(key)
    return f"/topics/{segment(topic)}/keys/{name}", query


def key_bounds(**bounds: Key | None) -> dict[str, str]:
    """Return bounds of a range as a query; all of them are base64 if one is not UTF-8."""
    given = {name: encode_key(key) for name, key in bounds.items() if key}
    try:
        return {name: data.decode() for name, data in given.items()}
    except UnicodeDecodeError:
        coded = {name: base64.urlsafe_b64encode(data).decode() for name, data in given.items()}
        return {**coded, "key_format": "base64"}


def encode_value(value: Any) -> tuple[bytes, str]:
    """Return the value's bytes and their content type: bytes and strings as they are, all else as JSON.

    Dataclasses and models of pydantic are JSON, too. Raises InvalidArgument for None, which could be JSON's
    null or a deletion, for what is not JSON, and for what is not valid Unicode.
    """
    if value is None:
        raise InvalidArgument("None is not a value: delete the key, or write b'null' for JSON's null")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), "application/octet-stream"
    if isinstance(value, str):
        return _utf8(value, "the value"), "text/plain; charset=utf-8"
    return _utf8(to_json(value), "the value"), "application/json"


def encode_moment(moment: Moment) -> str:
    """Return a time or a position as a query has it. A datetime without a zone is local time."""
    if isinstance(moment, datetime):
        return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(moment)


def encode_time_bounds(start: Moment | None, stop: Moment | None) -> dict[str, str]:
    """Return `from` and `to`."""
    given: Iterable[tuple[str, Moment | None]] = (("from", start), ("to", stop))
    return {name: encode_moment(moment) for name, moment in given if moment is not None}


def base64_text(data: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(data).decode()
