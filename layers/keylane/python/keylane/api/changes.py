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

from keylane.api.common_parameters import FIELDS, KEY_CHARACTERS, PARTIAL, parse_key_text
from keylane.api.event import KEY_FORMAT, Event, headers_of, key_of, query_of, topic_of
from keylane.api.parameters import Parameter, position, text
from keylane.api.response import Response
from keylane.model.changes import ABSENT, RECORD, ChangeEvent
from keylane.model.records import Position
from keylane.query.store import ReadTerms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.api.envelope import Envelopes
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
LAST_POSITION = position(LAST_EVENT_ID, "the position of the record that the client has", place="header")
LAST_OFFSETS = Parameter(
    LAST_EVENT_ID,
    "the `id` that came last: changes from there on",
    {
        "type": "string",
        "pattern": r"^[0-9]{1,18}:[0-9]{1,18}(,[0-9]{1,18}:[0-9]{1,18})*$",
        "examples": ["0:41611,1:38588"],
    },
    _parse_next_offsets,
    place="header",
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


def parse_key_changes(event: Event, topic: str, key: str, settings: QuerySettings) -> ChangesRequest:
    """Parse a GET of a key's changes. Raises BadRequest."""
    query = query_of(event)
    since = LAST_POSITION.of(_ids(event))
    terms = ReadTerms(None, PARTIAL.of(query), settings.state_timeout_ms)
    return ChangesRequest(topic_of(topic), key_of(key, query), terms, FIELDS.of(query), since)


def parse_topic_changes(event: Event, topic: str, settings: QuerySettings) -> ChangesRequest:
    """Parse a GET of a topic's changes. Raises BadRequest."""
    query = query_of(event)
    is_base64 = KEY_FORMAT.of(query) == "base64"
    prefix = parse_key_text(PREFIX.of(query), PREFIX.name, is_base64=is_base64)
    terms = ReadTerms(None, PARTIAL.of(query), settings.state_timeout_ms)
    return ChangesRequest(topic_of(topic), prefix, terms, FIELDS.of(query), LAST_OFFSETS.of(_ids(event)))


def _ids(event: Event) -> dict[str, str]:
    # An EventSource that has no id yet sends none; other clients send an empty one.
    return {name: value for name, value in headers_of(event).items() if value.strip()}


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


def render_stream(stream: Any) -> Response[Any]:
    """Return the response whose body is a stream of events."""
    # Proxies such as nginx hold back what they buffer.
    return Response(200, EVENT_STREAM, stream, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
