"""Conversations that read keys of a topic."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from keylane_client.answers import Position, Record
from keylane_client.context import TopicScope
from keylane_client.errors import InvalidAnswer, InvalidArgument, KeyAbsent, PositionNotReached
from keylane_client.parsing import (
    expect_keylane,
    parse_bare_record,
    parse_document,
    parse_freshness,
    parse_record,
    parse_watermarks,
)
from keylane_client.wire import (
    ApiRequest,
    ApiResponse,
    Conversation,
    Key,
    base64_text,
    encode_key,
    key_path,
    segment,
)

MAX_KEYS = 1000
NOT_MODIFIED = 304
_NOT_REACHED = 412
_ABSENT = 404
_UNSHOWN = frozenset({413, 422})
"""Statuses of a read whose record is there, and cannot be shown."""
_REACHED = frozenset({_ABSENT, 409, *_UNSHOWN})
"""Statuses of a read that has waited, and whose record is absent, or cannot be shown."""
SESSION_WAIT_S = 20
"""How long a session waits for its own writes: the most that the service allows."""
_ATTEMPTS = 5
"""Reads of several keys until an answer has a session's own writes: more only if replicas are behind."""


@dataclass(frozen=True, slots=True)
class KeyRead:
    """How one key is read; as `TopicCalls.get` has it."""

    min_position: Position | None = None
    wait_s: float | None = None
    if_match: Record | Position | None = None
    known: Record | None = None


def read_key(topic: TopicScope, key: Key, read: KeyRead) -> Conversation[Record]:
    """Read one key. Raises KeyAbsent."""
    path, query = key_path(topic.name, key)
    terms = topic.terms
    if terms.has_headers:
        query["envelope"] = "true"
    written = _own_write(topic, key, read)
    if written is not None and _is_unread(written, read):
        # The read itself would wait as long for a change of the record.
        yield from wait_for(topic.name, key, written)
    headers = _key_headers(topic, read, written)
    request = ApiRequest(
        "GET", path, query | terms.query_as_of(), headers, also_answers=frozenset({NOT_MODIFIED})
    )
    response = yield request
    if response.status == NOT_MODIFIED:
        if read.known is None:
            raise InvalidAnswer("304 to a read without If-None-Match")
        watermark, age, is_incomplete = parse_freshness(response.headers)
        return replace(read.known, watermark=watermark, age=age, is_incomplete=is_incomplete)
    if not terms.has_headers:
        return parse_bare_record(response, topic.name, key, topic.context.loads)
    with expect_keylane():
        record = parse_record(parse_document(response, topic.context.loads), topic.name)
        if record is None:
            raise TypeError("a record that is absent, with status 200")
        return record


def _own_write(topic: TopicScope, key: Key, read: KeyRead) -> Position | None:
    """The position of the session's own write of the key, if the read itself demands none."""
    if read.min_position is not None or topic.context.ledger is None or topic.terms.as_of is not None:
        return None
    return topic.context.ledger.position_of(topic.name, key)


def _is_unread(written: Position, read: KeyRead) -> bool:
    """Whether the record that the caller knows may be older than its own write."""
    if read.known is None or read.wait_s is not None:
        return False
    known = read.known.position
    return known.partition != written.partition or known.offset < written.offset


def position_headers(position: Position | None, wait_s: float | None) -> dict[str, str]:
    """Return the headers of a read that needs a position in the state, and waits for it for so long."""
    headers = {} if position is None else {"Keylane-Min-Position": str(position)}
    return headers if wait_s is None else {**headers, "Prefer": f"wait={wait_s:g}"}


def _key_headers(topic: TopicScope, read: KeyRead, written: Position | None) -> dict[str, str]:
    wait_s = read.wait_s
    if wait_s is None and written is not None and read.known is None:
        wait_s = SESSION_WAIT_S
    headers = position_headers(read.min_position or written, wait_s)
    if read.if_match is not None:
        if topic.terms.has_headers:
            raise InvalidArgument("if_match and headers exclude each other: an envelope has no strong ETag")
        headers["If-Match"] = read.if_match.etag
    if read.known is not None:
        headers["If-None-Match"] = read.known.etag
    return headers


def read_many(
    topic: TopicScope, keys: Sequence[Key], *, atomic: bool
) -> Conversation[dict[Key, Record | None]]:
    """Read keys in requests of up to MAX_KEYS; a larger atomic read is refused by the service."""
    found: dict[Key, Record | None] = {}
    distinct = list(dict.fromkeys(keys))
    size = max(1, len(distinct)) if atomic else MAX_KEYS
    for start in range(0, len(distinct), size):
        chunk = distinct[start : start + size]
        wanted = {encode_key(key) for key in chunk}
        body = json.dumps(_key_list(chunk))
        request = ApiRequest(
            "POST",
            f"/topics/{segment(topic.name)}/keys:read",
            topic.terms.query() | ({"atomic": "true"} if atomic else {}),
            {"Content-Type": "application/json"},
            body.encode(),
        )
        response = yield from read_own_writes(topic, request, wanted.__contains__)
        document = parse_document(response, topic.context.loads)
        with expect_keylane():
            rows = [parse_record(each, topic.name) for each in document["records"]]
            found |= zip(chunk, rows, strict=True)
    return found


def _key_list(keys: Sequence[Key]) -> dict[str, Any]:
    """Return keys as a body has them: as text, as in a path; all of them in base64 if one is not UTF-8."""
    coded = [encode_key(key) for key in keys]
    try:
        return {"keys": [data.decode() for data in coded]}
    except UnicodeDecodeError:
        return {"keys": list(map(base64_text, coded)), "key_format": "base64"}


def has_key(topic: TopicScope, key: Key) -> Conversation[bool]:
    """Return whether the topic has a record under a key, without its value. Raises UnknownTopic."""
    path, query = key_path(topic.name, key)
    headers = _key_headers(topic, KeyRead(), _own_write(topic, key, KeyRead()))
    terms = replace(topic.terms, fields=())
    request = ApiRequest(
        "HEAD", path, query | terms.query_as_of(), headers, also_answers=_UNSHOWN | {_ABSENT}
    )
    response = yield request
    if response.status == _ABSENT and "keylane-watermark" not in response.headers:
        # Not the key alone is missing; an answer to HEAD has no body that says what.
        try:
            yield replace(request, method="GET", also_answers=_UNSHOWN)
        except KeyAbsent:
            return False
    return response.status != _ABSENT


def count_keys(topic: TopicScope) -> Conversation[int]:
    """Count the topic's keys; in a session, with those that it wrote."""
    # A count has no values: the service refuses `fields` here.
    query = replace(topic.terms, fields=()).query()
    request = ApiRequest("GET", f"/topics/{segment(topic.name)}/count", query)
    response = yield from read_own_writes(topic, request, lambda _: True)
    document = parse_document(response, topic.context.loads)
    with expect_keylane():
        return int(document["count"])


def read_own_writes(
    topic: TopicScope, request: ApiRequest, is_wanted: Callable[[bytes], bool]
) -> Conversation[ApiResponse]:
    """Send a request about several keys; in a session again, until the answer has the session's writes.

    Such a request cannot carry positions. So its watermarks are compared with the writes of wanted keys. A
    read of one key waits for what is missing. Raises PositionNotReached, also if the answers go on lacking it
    because a replica that is behind gives them.
    """
    ledger = topic.context.ledger
    waited: dict[int, int] = {}
    response = yield request
    if ledger is None or topic.terms.as_of is not None:
        return response
    for attempt in itertools.count(1):
        watermarks: Mapping[int, int] = parse_watermarks(parse_document(response))
        # A stray's partition is in no watermark of the answer: to have waited for it is enough.
        known = {partition: offset for partition, offset in waited.items() if partition not in watermarks}
        missing = ledger.missing(topic.name, is_wanted, {**known, **watermarks})
        if not missing:
            break
        if attempt > _ATTEMPTS:
            raise _not_reached(topic.name, missing[0][1], f"in {attempt} answers")
        for key, position in missing:
            yield from wait_for(topic.name, key, position)
            waited[position.partition] = position.offset + 1
        response = yield request
    return response


def wait_for(topic: str, key: Key, position: Position) -> Conversation[None]:
    """Wait until the state has a position, for as long as the service allows. Raises PositionNotReached."""
    path, query = key_path(topic, key)
    headers = position_headers(position, SESSION_WAIT_S)
    # HEAD: the record itself need not be sent. So all that is known of a refusal is its status.
    response = yield ApiRequest("HEAD", path, query, headers, also_answers=_REACHED | {_NOT_REACHED})
    if response.status == _NOT_REACHED:
        raise _not_reached(topic, position, f"in the state after {SESSION_WAIT_S} s")


def _not_reached(topic: str, position: Position, where: str) -> PositionNotReached:
    detail = f"position {position} of topic {topic!r} is not {where}"
    return PositionNotReached(_NOT_REACHED, {"type": "position-not-reached", "detail": detail}, {})
