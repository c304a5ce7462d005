"""What arrives: a topic's new records, by polls of its partitions, and the changes of a key.

Changes come by Server-Sent Events where the service streams them, else by long polls. The first read is a
plain one. Then the stream is asked for; what refuses it (a function answers 501, an older service 404) is
polled. A session reads its own write first, and resumes the stream from there.

A present record is polled with `If-None-Match`, which the service answers once another record has arrived.
For an absent key the service has nothing to wait for. So the client waits for the next position of the key's
lane: whatever arrives there may be the key.
"""

import heapq
import re
from collections.abc import Generator
from dataclasses import dataclass, replace

from keylane_client.answers import Absent, LogRecord, Position, Record
from keylane_client.context import TopicScope
from keylane_client.errors import KeyAbsent, KeylaneError, NotFound, PositionNotReached
from keylane_client.pages import read_log
from keylane_client.parsing import (
    EventParser,
    ServerEvent,
    expect_keylane,
    parse_absence,
    parse_absent,
    parse_bare_record,
    parse_document,
    parse_record,
)
from keylane_client.reads import NOT_MODIFIED, SESSION_WAIT_S, position_headers
from keylane_client.wire import (
    ApiRequest,
    ApiResponse,
    Conversation,
    Items,
    Key,
    Listening,
    Moment,
    Stream,
    encode_moment,
    key_path,
    listen_to_changes,
    segment,
)

EARLIEST, LATEST = "earliest", "latest"
_OUT_OF_RANGE = "offset-out-of-range"
_TAIL_PAGE_RECORDS = 1000
_BUSY_LANE_S = 0.25
"""Between reads of an absent key: its lane may have many records of others."""


def tail(topic: TopicScope, start: Moment, pause_s: float) -> Stream[LogRecord]:
    """Read the records from `start` on, then new ones as they arrive.

    Each round asks which partitions there are, then reads each from where it stopped. A partition that
    appears later is read from its first record. A round without records is followed by a pause.
    """
    offsets: dict[int, int] = {}
    for number in (yield from _partitions(topic, 0)):
        offsets[number] = yield from _first_offset(topic, number, start)
    delay_s = 0.0
    while True:
        pages = []
        for number in (yield from _partitions(topic, delay_s)):
            page, offsets[number] = yield from _read_tail(topic, number, offsets.get(number, EARLIEST))
            pages.append(page)
        # Merged, not sorted: a partition keeps its order, whatever its timestamps say.
        records = list(heapq.merge(*pages, key=_timestamp_ms))
        yield Items(records)
        delay_s = 0 if records else pause_s


def _partitions(topic: TopicScope, delay_s: float) -> Conversation[list[int]]:
    response = yield ApiRequest("GET", f"/topics/{segment(topic.name)}/partitions", delay_s=delay_s)
    with expect_keylane():
        return [each["partition"] for each in parse_document(response)["partitions"]]


def _first_offset(topic: TopicScope, partition: int, start: Moment) -> Conversation[int]:
    """Return the offset of the first record at `start`, else where the next record will be."""
    # The end is asked first: a record that arrives between two requests is then not left out.
    end = yield from _offset_at(topic, partition, LATEST)
    if start == LATEST:
        return end or 0
    found = yield from _offset_at(topic, partition, start)
    return (end or 0) if found is None else found


def _offset_at(topic: TopicScope, partition: int, at: Moment) -> Conversation[int | None]:
    path = f"/topics/{segment(topic.name)}/partitions/{partition}/offsets"
    response = yield ApiRequest("GET", path, {"at": encode_moment(at)})
    with expect_keylane():
        found: int | None = parse_document(response)["offset"]
        return found


def _read_tail(
    topic: TopicScope, partition: int, offset: int | str
) -> Conversation[tuple[list[LogRecord], int]]:
    """Return the records from the offset on, and the next offset. What retention removed is left out."""
    try:
        page, records = yield from read_log(topic, partition, offset, _TAIL_PAGE_RECORDS)
    except NotFound as error:
        if error.type != _OUT_OF_RANGE:
            raise
        with expect_keylane():
            return [], error.problem["low"]
    with expect_keylane():
        return records, page["next_offset"]


def _timestamp_ms(record: LogRecord) -> int:
    # Records of before Kafka 0.10 have none.
    return record.timestamp_ms or 0


@dataclass(frozen=True, slots=True)
class KeyWatch:
    """A key whose changes are read. `wait_s`: how long a poll waits for one."""

    topic: TopicScope
    key: Key
    wait_s: float

    def stream(self) -> Stream[Record | Absent]:
        """Read the key, then each of its changes."""
        path, query = key_path(self.topic.name, self.key)
        return self._changes(ApiRequest("GET", path, query | self.topic.terms.query()))

    def _changes(self, request: ApiRequest) -> Stream[Record | Absent]:
        last: Record | Absent | None = None
        has_followed, is_idle = self.topic.terms.max_age is not None, False
        while True:
            found = yield from self._poll(request, last, is_idle=is_idle)
            is_idle = found is not None and _is_same(found, last)
            if found is not None:
                yield Items([] if is_idle else [found])
                last = found
            if last is not None and not has_followed:
                has_followed = True
                last = yield from self._follow(request, last)

    def _poll(
        self, request: ApiRequest, last: Record | Absent | None, *, is_idle: bool
    ) -> Conversation[Record | Absent | None]:
        """Read the key once it may have changed. Returns None if it has not.

        `is_idle`: the poll before found the same, and did not wait: a proxy may have answered it.
        """
        headers, delay_s = self._wait_headers(last)
        delay_s = max(delay_s, _BUSY_LANE_S) if is_idle else delay_s
        also = frozenset({NOT_MODIFIED} if "If-None-Match" in headers else ())
        try:
            response = yield replace(request, headers=headers, also_answers=also, delay_s=delay_s)
        except KeyAbsent as error:
            return parse_absent(error.headers, self.topic.name, self.key)
        except PositionNotReached:
            if not isinstance(last, Absent):
                raise
            return None
        if response.status == NOT_MODIFIED:
            return None
        return parse_bare_record(response, self.topic.name, self.key, self.topic.context.loads)

    def _wait_headers(self, last: Record | Absent | None) -> tuple[dict[str, str], float]:
        """Return the headers of a poll, and how long to wait before it."""
        if isinstance(last, Record):
            return {**position_headers(None, self.wait_s), "If-None-Match": last.etag}, 0
        if isinstance(last, Absent):
            if last.watermark is None:
                return {}, 1
            return position_headers(last.watermark, self.wait_s), _BUSY_LANE_S
        ledger = self.topic.context.ledger
        written = ledger.position_of(self.topic.name, self.key) if ledger else None
        if written is None:
            return {}, 0
        return position_headers(written, SESSION_WAIT_S), 0

    def _follow(
        self, request: ApiRequest, last: Record | Absent
    ) -> Generator[Listening | Items[Record | Absent], ApiResponse, Record | Absent]:
        """Give the changes that the service streams. Returns the last one once it refuses to stream."""
        retries = self.topic.context.options.retries
        failures, pause_s = 0, 0.0
        while True:
            events, has_begun = EventParser(), False
            listening = _listen_behind(last, request, pause_s)
            try:
                while chunk := (yield listening).body:
                    # A stream that lasts is no failure, though nothing changes: a proxy may end it.
                    failures = 0 if has_begun else failures
                    has_begun = True
                    for event in events.feed(chunk):
                        failures = 0
                        found = self._change_of(event) or last
                        yield Items([] if _is_same(found, last) else [found])
                        last = found
            except KeylaneError as error:
                if not retries.is_transient(error):
                    return last  # no stream, or not for this caller: polls will say what is wrong
                failures += 1
                if failures >= retries.attempts:
                    raise
                pause_s = retries.wait_s(error, failures)
            else:  # the server is being stopped, or a proxy ends what takes long
                pause_s = retries.wait_s(None, 1)

    def _change_of(self, event: ServerEvent) -> Record | Absent | None:
        if event.name not in ("record", "absent"):
            return None  # it says how the stream is, and not how the key is
        with expect_keylane():
            document = self.topic.context.loads(event.data)
            record = parse_record(document, self.topic.name)
            if record:
                return replace(record, tag=f'"{event.id.replace(":", "-", 1)}"' if event.id else "")
            return parse_absence(document, self.topic.name, self.key)


def _listen_behind(last: Record | Absent, request: ApiRequest, pause_s: float) -> Listening:
    behind = f"{last.position}{_incarnation(last)}" if isinstance(last, Record) else ""
    return listen_to_changes(request.path, request.query, behind, pause_s)


def _is_same(found: Record | Absent, last: Record | Absent | None) -> bool:
    """Return whether this is the record, or the absence, that was found before."""
    if isinstance(found, Record):
        return isinstance(last, Record) and _identity(found) == _identity(last)
    return isinstance(last, Absent)


def _identity(record: Record) -> tuple[Position, str]:
    return record.position, _incarnation(record)


def _incarnation(record: Record) -> str:
    """Return "@" and the incarnation of the record's topic: one that was created again has another one."""
    found = re.search(r"@\d+", record.tag)
    return found[0] if found else ""
