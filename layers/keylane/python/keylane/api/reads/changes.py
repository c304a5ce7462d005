"""Changes as they come, by Server-Sent Events: the requests, and the events.

    id: 3:1042@1795311449754       of a key: its record's position; of a topic: each partition's next offset;
                                   then the topic's incarnation. `absent` where the key has no record
    event: record                  a record; its data is what `?envelope=true` answers
    data: {"topic": "flights", "partition": 3, "offset": 1042, ..., "value": {...}}

    event: absent                  the key has no record: it was deleted, has expired, or never had one
    data: {"topic": "flights", "key": "N14228", "key_format": "text", "absent": true, "watermark": ...}

    event: left                    of a topic with conditions: a record that does not meet them
    data: as that of `record`

    event: gap                     of a topic: records were removed before they were read, or the topic was
                                   created again: read the keys again
    event: problem                 a problem document; the stream goes on, unless it ends with it
    event: closing                 the server is being stopped: connect again, with Last-Event-ID

A stream of a topic has its ids in events without a name, after the changes of one poll. A listener that
connects again gets some changes twice, and none is left out.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from keylane.api.http.common_parameters import (
    FIELDS,
    KEY_CHARACTERS,
    KEY_FORMAT,
    PARTIAL,
    has_base64_keys,
    parse_key,
    parse_key_text,
)
from keylane.api.http.parameters import HEADER, QUERY, Parameter, text
from keylane.api.http.request import Request, topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import Schema
from keylane.api.reads.envelope import Envelopes
from keylane.api.reads.find import parse_conditions
from keylane.config.functions import QuerySettings
from keylane.formats.projection import Fields
from keylane.model.changes import ABSENT, RECORD, ChangeEvent
from keylane.model.records import Answer, Position
from keylane.query.changes import TopicPosition
from keylane.query.conditions import Asked
from keylane.query.decoding import ValueDecoder
from keylane.query.store import ReadTerms

EVENT_STREAM = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"


ABSENT_ID = "absent"
"""The id of a key's absence: no record's position, so whatever comes later has another id."""
_POSITION = r"[0-9]{1,18}:[0-9]{1,18}"
_INCARNATION = r"(@[0-9]{1,18})?"
_KEY_ID = rf"^({ABSENT_ID}|{_POSITION}{_INCARNATION})$"
_TOPIC_ID = rf"^{_POSITION}(,{_POSITION})*{_INCARNATION}$"


def _parse_key_id(given: str) -> str:
    if re.match(_KEY_ID, given.strip(), re.ASCII) is None:
        raise ValueError("not an id of this stream: it looks like 3:1042@1795311449754")
    return given.strip()


def parse_topic_id(given: str) -> TopicPosition:
    """Return the position that an id of a topic's stream says. Raises ValueError."""
    if re.match(_TOPIC_ID, given.strip(), re.ASCII) is None:
        raise ValueError("not an id of this stream: it looks like 0:41611,1:38588@1795311449754")
    offsets, _, incarnation = given.strip().partition("@")
    found = map(Position.parse, offsets.split(","))
    return TopicPosition(int(incarnation or 0), {each.partition: each.offset for each in found})


PREFIX = text("prefix", "changes of keys that begin with this", KEY_CHARACTERS, default="")
LAST_POSITION = Parameter(
    LAST_EVENT_ID,
    "the `id` that came last: that of the record that the client has",
    {"type": "string", "pattern": _KEY_ID, "examples": ["3:1042@1795311449754"]},
    _parse_key_id,
    place=HEADER,
)
LAST_OFFSETS = Parameter(
    LAST_EVENT_ID,
    "the `id` that came last: changes from there on",
    {"type": "string", "pattern": _TOPIC_ID, "examples": ["0:41611,1:38588@1795311449754"]},
    parse_topic_id,
    place=HEADER,
)
KEY = (KEY_FORMAT, FIELDS, PARTIAL, LAST_POSITION)
TOPIC: tuple[Parameter, ...] = (PREFIX, KEY_FORMAT, FIELDS, PARTIAL, LAST_OFFSETS)
TOPIC_NAMES = frozenset(each.name for each in TOPIC if each.place == QUERY)


class ChangesRequest(NamedTuple):
    """The changes of a key, or of the keys of a topic that begin with `key`.

    `since`: where the listener is: the id of its record, or its TopicPosition. `keys`: those of records, if
    they are not the key itself. `raw_keys`: as of ValueOptions.
    `asked`: conditions on the fields of records.
    """

    topic: str
    key: bytes
    terms: ReadTerms
    fields: Fields | None
    since: Any
    keys: tuple[bytes, ...] = ()
    raw_keys: bool = False
    asked: tuple[Asked, ...] = ()


def parse_key_changes(request: Request, topic: str, key: str, settings: QuerySettings) -> ChangesRequest:
    """Parse a GET of a key's changes. Raises BadRequest."""
    since = _parse_since(request, LAST_POSITION)
    terms = ReadTerms(settings.state_timeout_ms, partial=PARTIAL.of(request))
    name, data, fields = topic_of(topic), parse_key(request, key), FIELDS.of(request)
    return ChangesRequest(name, data, terms, fields, since, raw_keys=has_base64_keys(request))


def parse_topic_changes(request: Request, topic: str, settings: QuerySettings) -> ChangesRequest:
    """Parse a GET of a topic's changes. Raises BadRequest."""
    is_base64 = has_base64_keys(request)
    prefix = parse_key_text(PREFIX.of(request), PREFIX.name, is_base64=is_base64)
    terms = ReadTerms(settings.state_timeout_ms, partial=PARTIAL.of(request))
    name, fields = topic_of(topic), FIELDS.of(request)
    since = _parse_since(request, LAST_OFFSETS)
    asked = parse_conditions(request, TOPIC_NAMES)
    return ChangesRequest(name, prefix, terms, fields, since, raw_keys=is_base64, asked=asked)


def _parse_since(request: Request, parameter: Parameter) -> Any:
    # An EventSource that has no id yet sends none; other clients send an empty one.
    given = request.headers.get(LAST_EVENT_ID.lower(), "")
    return parameter.parse(given) if given.strip() else None


def any_key(_: bytes) -> bool:
    """Return that the changes of every key are wanted."""
    return True


def keys_from(prefix: bytes) -> Callable[[bytes], bool]:
    """Return whether the changes of a key are wanted: those of keys that begin with the prefix."""
    return lambda key: key.startswith(prefix)


def render_change(key: bytes, answer: Answer, envelopes: Envelopes) -> ChangeEvent:
    """Return the event of what was found under a key."""
    if answer.record is None:
        return ChangeEvent(ABSENT, envelopes.render_absence(key, answer), ABSENT_ID, key)
    found = render_key_id(answer, envelopes.decoder)
    return ChangeEvent(RECORD, envelopes.render_row(key, answer), found, key)


def render_key_id(answer: Answer, decoder: ValueDecoder) -> str:
    """Return the id of what was found under a key: another record has another one."""
    if answer.record is None:
        return ABSENT_ID
    return f"{answer.record.position}{_render_incarnation(decoder.incarnation(answer.layout))}"


def render_topic_id(at: TopicPosition) -> str:
    """Return the id of a topic's stream."""
    offsets = ",".join(f"{partition}:{offset}" for partition, offset in sorted(at.next_offsets.items()))
    return f"{offsets}{_render_incarnation(at.incarnation)}"


def _render_incarnation(incarnation: int) -> str:
    return f"@{incarnation}" if incarnation else ""


CHANGES_SCHEMA = Schema(
    "Changes",
    {
        "type": "string",
        "description": "Server-Sent Events, from the standing server: `record`, `absent` and `left` with the"
        " key's document, `gap`, `problem` and `closing`",
    },
)


def render_stream(stream: Any) -> Response[Any]:
    """Return the response whose body is a stream of events."""
    # Proxies such as nginx hold back what they buffer.
    return Response(200, EVENT_STREAM, stream, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
