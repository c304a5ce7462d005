"""All records of a topic as lines of JSON: the request, and the lines.

    {"begin": {"topic": "flights", "lanes": 9, "at": "0:41611,1:38588@1795311449754", "cursor": ...}}
    {"topic": "flights", "partition": 0, "offset": 1042, ..., "key": "N725MQ", ..., "value": {...}}
    {"key": "N14228", "key_format": "text", "absent": true}
    {"lane": {"lane": "0.0", "partition": 0, "next_offset": 41640, "as_of_ms": 1795311449754, "cursor": ...}}
    {"end": {"at": "0:41640,1:38600@1795311449754"}}
    {"problem": {"type": "urn:keylane:problem:state-unavailable", ...}}

A line with `key` is a row, as in a page of keys, or removes it. Of several lines of a key the last one
counts. The lines of a lane count once its own line has come: then they are all records of the lane below its
`next_offset`, and below `strays` of other partitions. `at` is an id of the topic's stream of changes. The
last line is `end`, or a `problem`.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from keylane.api.http import cursors
from keylane.api.http.common_parameters import (
    CURSOR,
    FIELDS,
    KEY_FORMAT,
    PARTIAL,
    bounds_of,
    has_base64_keys,
    parse_cursor,
)
from keylane.api.http.parameters import QUERY, Parameter, lane_range
from keylane.api.http.preferences import preferred_coding
from keylane.api.http.problems import response_to
from keylane.api.http.request import Request, topic_of
from keylane.api.http.response import Response
from keylane.api.http.schemas import Schema
from keylane.api.reads.changes import render_topic_id
from keylane.api.reads.envelope import Envelopes
from keylane.api.reads.find import parse_conditions
from keylane.api.reads.pages import PREFIX, parse_prefix
from keylane.config.functions import QuerySettings
from keylane.errors import BadRequest
from keylane.formats.projection import Fields
from keylane.model.records import Answer, Record
from keylane.query.changes import ChangeReader, TopicPosition
from keylane.query.lane_snapshot import LaneCut, LaneRows
from keylane.query.snapshot import SnapshotScan, TopicSnapshot
from keylane.query.store import ReadTerms

LINES = "application/x-ndjson"
CODINGS = ("zstd", "gzip")
"""Content codings of the lines, the one that takes less time first."""
LANES = lane_range("lanes", "the numbers of the first and the last lane to read, counted from 0")
SNAPSHOT: tuple[Parameter, ...] = (PREFIX, KEY_FORMAT, FIELDS, PARTIAL, LANES, CURSOR)
SNAPSHOT_NAMES = frozenset(each.name for each in SNAPSHOT if each.place == QUERY)
ROWS_AT_ONCE = 50
"""Rows that are rendered before another request may run: within a millisecond, unless they are large."""
_POSITION = struct.Struct(">QQI")
"""Of a cursor: generation, incarnation, number of the next lane. It is valid for any `lanes`."""


class SnapshotRequest(NamedTuple):
    """All records of a topic. `bounds`: what cursors have of the request. `coding`: of the lines."""

    topic: str
    scan: SnapshotScan
    bounds: bytes
    terms: ReadTerms
    fields: Fields | None
    raw_keys: bool
    coding: str | None
    id: str


def parse_snapshot(request: Request, topic: str, settings: QuerySettings) -> SnapshotRequest:
    """Parse a GET of all records of a topic. Raises BadRequest, which names the parameter at fault."""
    name, prefix = topic_of(topic), parse_prefix(request).low
    asked = parse_conditions(request, SNAPSHOT_NAMES)
    bounds = bounds_of(request, "snapshot", prefix, asked)
    first, last = LANES.of(request) or (0, None)
    scan = SnapshotScan(prefix, asked, first, last)
    after = parse_cursor(request, name, bounds)
    if after is not None:
        if len(after) != _POSITION.size:
            raise BadRequest("the cursor is not one of a snapshot", CURSOR.name)
        generation, incarnation, number = _POSITION.unpack(after)
        scan = scan._replace(first_lane=max(first, number), built=(generation, incarnation))
    terms = ReadTerms(settings.state_timeout_ms, partial=PARTIAL.of(request))
    coding = preferred_coding(request.headers.get("accept-encoding"), CODINGS)
    raw_keys = has_base64_keys(request)
    return SnapshotRequest(name, scan, bounds, terms, FIELDS.of(request), raw_keys, coding, request.id)


SNAPSHOT_SCHEMA = Schema(
    "Snapshot",
    {
        "type": "string",
        "description": "lines of JSON, from the standing server: `begin`, rows as in a page of keys, `lane`"
        " after the rows of each lane, and last `end` or `problem`",
    },
)


def render_snapshot(body: Any, request: SnapshotRequest) -> Response[Any]:
    """Return the response whose body are the lines."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Vary": "Accept-Encoding"}
    if request.coding is not None:
        headers["Content-Encoding"] = request.coding
    return Response(200, LINES, body, headers)


class SnapshotLines:
    """The lines of one snapshot that has begun. `reader`: decodes the values of each part."""

    def __init__(self, snapshot: TopicSnapshot, reader: ChangeReader, request: SnapshotRequest) -> None:
        self._snapshot = snapshot
        self._reader = reader
        self._request = request

    def pieces(self) -> Iterator[bytes]:
        """Yield some lines at a time, and nothing where these are to be sent at once.

        What goes wrong is the last line: nothing is raised.
        """
        try:
            yield _line("begin", self._begin())
            yield b""
            for part in self._snapshot.parts():
                if isinstance(part, LaneRows):
                    for first in range(0, len(part.rows), ROWS_AT_ONCE):
                        yield self._rows(part, part.rows[first : first + ROWS_AT_ONCE])
                else:
                    # A client that is cut off goes on behind the last lane that it has.
                    yield _line("lane", self._lane(part))
                    yield b""
            at = self._snapshot.end()
            yield _line("end", {} if at is None else {"at": self._id_of(at)})
        except Exception as error:  # noqa: BLE001 (whatever it is, the client must not take it for the end)
            yield b'{"problem": %s}\n' % str(response_to(error, self._request.id).body).encode()

    def _begin(self) -> dict[str, Any]:
        snapshot, options = self._snapshot, self._snapshot.layout.options
        begin: dict[str, Any] = {"topic": self._request.topic, "lanes": len(snapshot.lanes)}
        begin |= {"at": self._id_of(snapshot.begin), "cursor": self._cursor(0)}
        return begin if options.ttl_ms is None else begin | {"ttl_ms": options.ttl_ms}

    def _id_of(self, at: TopicPosition) -> str:
        """Return the id at which the caller's stream of changes goes on."""
        incarnation = self._reader.decoder().incarnation(self._snapshot.layout)
        return render_topic_id(at._replace(incarnation=incarnation))

    def _rows(self, part: LaneRows, rows: Sequence[tuple[bytes, Record | None]]) -> bytes:
        request, layout = self._request, self._snapshot.layout
        decoder = self._reader.decoder(raw_keys=request.raw_keys)
        clock = self._reader.store.clock
        envelopes = Envelopes(clock.now_ms(), request.fields, decoder, clock.give_way)
        partition, watermark = part.lane.partition, part.watermark
        lines = [
            _one_line(envelopes.render_row(key, Answer(layout, partition, record, watermark)))
            for key, record in rows
        ]
        return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")

    def _lane(self, cut: LaneCut) -> dict[str, Any]:
        watermark = cut.watermark
        lane: dict[str, Any] = {
            "lane": str(cut.lane),
            "partition": cut.lane.partition,
            "next_offset": watermark.next_offset,
            "as_of_ms": cut.as_of_ms,
        }
        if cut.strays:
            lane["strays"] = {str(source): end for source, end in sorted(cut.strays.items())}
        if not watermark.complete_as_of_ms:
            lane["building"] = True
        if watermark.incomplete:
            lane["incomplete"] = True
        return lane | {"cursor": self._cursor(cut.number + 1)}

    def _cursor(self, number: int) -> str:
        """Return what goes on at the lane of this number."""
        layout = self._snapshot.layout
        position = _POSITION.pack(layout.generation, layout.incarnation, number)
        return cursors.encode(self._request.topic, self._request.bounds, position)


def _one_line(document: str) -> str:
    """Return a JSON document in one line. A value may have line breaks between its tokens."""
    return document.replace("\n", " ").replace("\r", " ")


def _line(name: str, content: dict[str, Any]) -> bytes:
    return json.dumps({name: content}).encode() + b"\n"
