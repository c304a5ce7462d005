"""Changes as they come, by Server-Sent Events: the requests, and the events.

    id: 3:1042                     of a key: its record's position; of a topic: each partition's next offset
    event: record                  a record; its data is what `?envelope=true` answers
    data: {"topic": "flights", "partition": 3, "offset": 1042, ..., "value": {...}}

    event: absent                  the key has no record: it was deleted, has expired, or never had one
    data: {"topic": "flights", "key": "N14228", "key_format": "text", "absent": true, "watermark": ...}

    event: gap                     of a topic: records were removed before they were read: read the keys again
    event: problem                 a problem document; the stream goes on, unless it ends with it
    event: closing                 the server is being stopped: connect again, with Last-Event-ID

A stream of a topic has its ids in events without a name, after the changes of one poll. A listener that
connects again gets some changes twice, and none is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from keylane.api.http.common_parameters import (
    FIELDS,
    KEY_CHARACTERS,
    KEY_FORMAT,
    PARTIAL,
    has_base64_keys,
    parse_key,
    parse_key_text,
)
from keylane.api.http.parameters import HEADER, Parameter, position, text
from keylane.api.http.request import topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import Schema
from keylane.model.changes import ABSENT, RECORD, ChangeEvent
from keylane.model.records import Position
from keylane.query.store import ReadTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from keylane.api.http.request import Request
    from keylane.api.reads.envelope import Envelopes
    from keylane.config.functions import QuerySettings
    from keylane.formats.projection import Fields
    from keylane.model.records import Answer

EVENT_STREAM = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"


def _parse_next_offsets(given: str) -> dict[int, int]:
    try:
        found = [Position.parse(each) for each in given.strip().split(",")]
        return {each.partition: each.offset for each in found}
    except ValueError as error:
        raise ValueError("not an id of this stream: it looks like 0:41611,1:38588") from error


PREFIX = text("prefix", "changes of keys that begin with this", KEY_CHARACTERS, default="")
LAST_POSITION = position(LAST_EVENT_ID, "the position of the record that the client has", place=HEADER)
LAST_OFFSETS = Parameter(
    LAST_EVENT_ID,
    "the `id` that came last: changes from there on",
    {
        "type": "string",
        "pattern": r"^[0-9]{1,18}:[0-9]{1,18}(,[0-9]{1,18}:[0-9]{1,18})*$",
        "examples": ["0:41611,1:38588"],
    },
    _parse_next_offsets,
    place=HEADER,
)
KEY = (KEY_FORMAT, FIELDS, PARTIAL, LAST_POSITION)
TOPIC = (PREFIX, KEY_FORMAT, FIELDS, PARTIAL, LAST_OFFSETS)


class ChangesRequest(NamedTuple):
    """The changes of a key, or of the keys of a topic that begin with `key`.

    `since`: where the listener is: the position of its record, or the next offset of each partition.
    """

    topic: str
    key: bytes
    terms: ReadTerms
    fields: Fields | None
    since: Any


def parse_key_changes(request: Request, topic: str, key: str, settings: QuerySettings) -> ChangesRequest:
    """Parse a GET of a key's changes. Raises BadRequest."""
    since = _parse_since(request, LAST_POSITION)
    terms = ReadTerms(settings.state_timeout_ms, partial=PARTIAL.of(request))
    return ChangesRequest(topic_of(topic), parse_key(request, key), terms, FIELDS.of(request), since)


def parse_topic_changes(request: Request, topic: str, settings: QuerySettings) -> ChangesRequest:
    """Parse a GET of a topic's changes. Raises BadRequest."""
    prefix = parse_key_text(PREFIX.of(request), PREFIX.name, is_base64=has_base64_keys(request))
    terms = ReadTerms(settings.state_timeout_ms, partial=PARTIAL.of(request))
    name, fields = topic_of(topic), FIELDS.of(request)
    return ChangesRequest(name, prefix, terms, fields, _parse_since(request, LAST_OFFSETS))


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
    """Return the event of what was found under a key.

    An absent key has no position; the one of the lane's last record can't be that of a later record of it.
    """
    record = answer.record
    if record is None:
        last = Position(answer.partition, max(answer.watermark.next_offset - 1, 0))
        return ChangeEvent(ABSENT, envelopes.render_absence(key, answer), str(last), key)
    return ChangeEvent(RECORD, envelopes.render_row(key, answer), str(record.position), key)


def render_next_offsets(next_offsets: Mapping[int, int]) -> str:
    """Return the id of a topic's stream."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(next_offsets.items()))


CHANGES_SCHEMA = Schema(
    "Changes",
    {
        "type": "string",
        "description": "Server-Sent Events, from the standing server: `record` and `absent` with the key's"
        " document, `gap`, `problem` and `closing`",
    },
)


def render_stream(stream: Any) -> Response[Any]:
    """Return the response whose body is a stream of events."""
    # Proxies such as nginx hold back what they buffer.
    return Response(200, EVENT_STREAM, stream, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
