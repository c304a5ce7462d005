"""All records of a topic, lane by lane: `GET /topics/{topic}/snapshot`, lines of JSON.

    {"begin": {"lanes": 9, "at": "0:41611,1:38588@1795311449754", "cursor": "AQ..."}}
    {..., "key": "N725MQ", ..., "value": {...}}     a row; with "absent": true its key's row is removed
    {"lane": {..., "as_of_ms": 1795311449754, "cursor": "AQ..."}}
    {"end": {"at": "0:41640,1:38600@1795311449754"}}, or {"problem": {...}}

The rows of a lane count once its own line has come. A response that breaks off is requested again behind the
last lane that came; the whole is then of the position where the first response began, and the stream of
changes from there lacks nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from keylane_client.answers import Record, TopicVector
from keylane_client.context import TopicScope
from keylane_client.errors import (
    InvalidAnswer,
    InvalidArgument,
    KeylaneError,
    SnapshotOutdated,
    Unreachable,
    error_of,
)
from keylane_client.parsing import expect_keylane, parse_key, parse_record
from keylane_client.wire import (
    ApiRequest,
    ApiResponse,
    Items,
    Key,
    Listening,
    Stream,
    key_bounds,
    normal_key,
    segment,
)

T = TypeVar("T")
LINES = "application/x-ndjson"
MOST_LINE_BYTES = 128 * 1024 * 1024
"""A line is a record: Kafka's largest ones are far below."""
BEGINNINGS = 5
"""How often a snapshot begins again because the topic was built again meanwhile."""
_UNAUTHORIZED = 401
_SILENCE_S = 120.0
"""A lane may be looked for a minute before the server gives up."""


@dataclass(frozen=True, slots=True)
class ChosenRecords:
    """The records of a topic that a snapshot, or a stream of changes, is about."""

    topic: TopicScope
    prefix: Key | None = None
    conditions: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        terms = self.topic.terms
        terms.require_now("a snapshot")
        if terms.max_age is not None or terms.has_headers or terms.has_events:
            raise InvalidArgument(
                "a snapshot has no max_age, headers or event: of `reading` fields and partial"
            )

    def query(self) -> dict[str, str | Sequence[str]]:
        """Return them as the queries of both have them."""
        # With its dot a name is that of a field, whatever parameters there are.
        asked = {f".{name}": texts for name, texts in self.conditions.items()}
        return {**asked, **self.topic.terms.query(), **key_bounds(prefix=self.prefix)}


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """Some lanes of a snapshot, by their numbers, both included. Another process may read it.

    `at`: where the snapshot began. `cursor`: refuses a topic that was built again since then.
    """

    at: TopicVector
    cursor: str
    first_lane: int
    last_lane: int
    ttl_ms: int | None = None


class SnapshotReader:
    """Reads one snapshot, or a part of one.

    `at`: where the whole is, once it is read; before that, and of a part, where it began. `lanes` and
    `lanes_read`: how many there are, and how many have come. `ttl_ms`: the topic's. `next_offset`: below it
    the lane that came last has all records of its partition.
    """

    def __init__(self, chosen: ChosenRecords, part: SnapshotPart | None = None) -> None:
        self.at: TopicVector | None = None if part is None else part.at
        self.is_over = False
        self.lanes = 0 if part is None else part.last_lane - part.first_lane + 1
        self.lanes_read = self.next_offset = 0
        self.ttl_ms: int | None = None if part is None else part.ttl_ms
        self._chosen = chosen
        self._part = part
        self._cursor: str | None = None if part is None else part.cursor
        self._lines = LineParser()
        self._listening: Listening | None = None
        self._failures = 0

    @property
    def reached(self) -> TopicVector:
        """Return `at`. Raises InvalidAnswer where the service did not say it."""
        if self.at is None:
            raise InvalidAnswer("the snapshot does not say where it is")
        return self.at

    def next_lane(self, delay_s: float = 0.0) -> Generator[Listening, ApiResponse, list[Record] | None]:
        """Return the records of the next lane, one of each key; None at the end. `delay_s`: before a request.

        Raises SnapshotOutdated where a new snapshot must begin; what is transient is tried again.
        """
        return (yield from self._retried(self._read_lane, delay_s))

    def parts(self, most: int) -> Generator[Listening, ApiResponse, list[SnapshotPart]]:
        """Begin the snapshot, and return it in so many parts at most, of which none is read yet."""
        cursor = yield from self._retried(self._read_begin, 0.0)
        self._listening = None
        count = max(1, min(most, self.lanes))
        firsts = [self.lanes * number // count for number in range(count + 1)]
        return [
            SnapshotPart(self.reached, cursor, first, end - 1, self.ttl_ms)
            for first, end in pairwise(firsts)
            if first < end
        ]

    def _retried(
        self, read: Callable[[float], Generator[Listening, ApiResponse, T]], delay_s: float
    ) -> Generator[Listening, ApiResponse, T]:
        retries = self._chosen.topic.context.options.retries
        while True:
            try:
                return (yield from read(delay_s))
            except KeylaneError as error:  # noqa: PERF203 (the next attempt is another)
                self._listening = None
                self._failures += 1
                if self._failures >= retries.attempts or not retries.is_transient(error):
                    raise
                delay_s = retries.wait_s(error, self._failures)

    def _read_begin(self, delay_s: float) -> Generator[Listening, ApiResponse, str]:
        """Return the cursor of the snapshot's first lane."""
        listening = self._listen(delay_s)
        while True:
            for line in self._lines:
                with expect_keylane():
                    begin = self._chosen.topic.context.loads(line)["begin"]
                    self._begin(begin)
                    return str(begin["cursor"])
            chunk = (yield listening).body
            if not chunk:
                raise Unreachable("the snapshot was cut off before its first line")
            self._lines.feed(chunk)

    def _read_lane(self, delay_s: float) -> Generator[Listening, ApiResponse, list[Record] | None]:
        rows: dict[Key, Record] = {}
        listening = self._listening or self._listen(delay_s)
        while True:
            for line in self._lines:
                with expect_keylane():
                    document = self._chosen.topic.context.loads(line)
                    if "key" in document:
                        self._take_row(document, rows)
                    elif "lane" in document:
                        return self._end_lane(document["lane"], rows)
                    elif "begin" in document:
                        self._begin(document["begin"])
                    elif "end" in document:
                        self._end(document["end"])
                        return None
                    elif "problem" in document:
                        raise _fault_of(document["problem"])
            chunk = (yield listening).body
            if not chunk:
                raise Unreachable("the snapshot was cut off before its end")
            self._lines.feed(chunk)

    def _listen(self, delay_s: float) -> Listening:
        query = self._chosen.query()
        if self._cursor is not None:
            query["cursor"] = self._cursor
        if self._part is not None:
            query["lanes"] = f"{self._part.first_lane}-{self._part.last_lane}"
        path = f"/topics/{segment(self._chosen.topic.name)}/snapshot"
        request = ApiRequest("GET", path, query, {"Accept": LINES}, delay_s=delay_s)
        self._lines = LineParser()
        self._listening = Listening(request, _SILENCE_S, LINES)
        return self._listening

    def _take_row(self, document: dict[str, Any], rows: dict[Key, Record]) -> None:
        record = parse_record(document, self._chosen.topic.name)
        if record is None:
            rows.pop(normal_key(parse_key(document)), None)
        else:
            rows[normal_key(record.key)] = record

    def _begin(self, begin: dict[str, Any]) -> None:
        if self._cursor is not None:
            return  # the lanes that have come are of the first response
        self.at = TopicVector.parse(begin["at"])
        self.lanes, self.ttl_ms = int(begin["lanes"]), begin.get("ttl_ms")

    def _end_lane(self, lane: dict[str, Any], rows: dict[Key, Record]) -> list[Record]:
        self._cursor, self._failures = lane["cursor"], 0
        self.lanes_read += 1
        self.next_offset = int(lane["next_offset"])
        self._lower(lane["partition"])
        if self.ttl_ms is None:
            return list(rows.values())
        expired_ms = lane["as_of_ms"] - self.ttl_ms
        return [each for each in rows.values() if each.timestamp_ms is None or each.timestamp_ms > expired_ms]

    def _lower(self, partition: int) -> None:
        """Let `at` be where the lane is, if that is further back: a failover may have lost writes."""
        at = self.reached
        if self.next_offset < at.next_offsets.get(partition, 0):
            self.at = TopicVector({**at.next_offsets, partition: self.next_offset}, at.incarnation)

    def _end(self, end: dict[str, Any]) -> None:
        if "at" in end:
            self.at = TopicVector.parse(end["at"])
        self.is_over = True


def _fault_of(problem: dict[str, Any]) -> KeylaneError:
    """Return why a response has ended. The next one has a token that may have been renewed."""
    if problem["status"] == _UNAUTHORIZED:
        return Unreachable("the token expired while the snapshot was read")
    return error_of(problem["status"], {}, json.dumps(problem, default=str).encode())


class LineParser:
    """Lines from bytes as they come: iterate over those that have ended."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._rest_bytes = 0
        self._lines: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes. Raises InvalidAnswer for a line that has no end."""
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        self._rest_bytes += len(first)
        if others:
            self._lines = [b"".join(self._parts), *others[:-1]][::-1]
            self._parts, self._rest_bytes = [others[-1]], len(others[-1])
        if self._rest_bytes > MOST_LINE_BYTES:
            raise InvalidAnswer(f"a line of the snapshot has more than {MOST_LINE_BYTES} bytes")

    def __iter__(self) -> LineParser:
        return self

    def __next__(self) -> bytes:
        """Return the next line, without its end."""
        if not self._lines:
            raise StopIteration
        return self._lines.pop()


class SnapshotCalls:
    """All records of a topic, or of some lanes. Its state is that of the iteration that began last."""

    def __init__(self, chosen: ChosenRecords, part: SnapshotPart | None = None) -> None:
        self._chosen = chosen
        self._part = part
        self.reader = SnapshotReader(chosen, part)

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self._chosen.topic.name

    def parts(self, most: int) -> Stream[SnapshotPart]:
        """Begin the snapshot, and give it in so many parts at most. `part` reads one; they can be pickled.

        Each lane is exact by itself, as in a snapshot that is read at once. The stream of changes from the
        parts' `at` lacks nothing.
        """
        yield Items((yield from SnapshotReader(self._chosen).parts(most)))

    def part(self, part: SnapshotPart) -> SnapshotCalls:
        """Return the records of one part of this snapshot; those who read it choose the same records.

        Reading them raises SnapshotOutdated if the topic has been built again since the parts were made.
        """
        return SnapshotCalls(self._chosen, part)

    def records(self) -> Stream[Record]:
        """Read the records, lane by lane: one lane is in memory at a time.

        Raises SnapshotOutdated if the topic is built again when records have been given already.
        """
        has_given = False
        beginnings = 0
        reader = self.reader = SnapshotReader(self._chosen, self._part)
        while True:
            try:
                lane = yield from reader.next_lane()
            except SnapshotOutdated:
                beginnings += 1
                if self._part or has_given or beginnings >= BEGINNINGS:
                    raise
                reader = self.reader = SnapshotReader(self._chosen)
                continue
            if lane is None:
                return
            has_given = has_given or bool(lane)
            yield Items([self._chosen.topic.shaped(each) for each in lane])
