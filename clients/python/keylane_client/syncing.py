"""A topic's records in memory that are kept current: a snapshot, then the stream of changes from there.

    1. Read a snapshot. The records that were there before stay in use until it is complete.
    2. Listen to the topic's changes from the snapshot's position on, and resume after each break.
    3. At a `gap` begin again: records were removed unread, or the topic was created or built again.

What may pass is tried again: for the first snapshot as often as other requests, then for ever, while the
mapping's age grows. What does not pass ends it, and so do streams that can't go on from a snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TypeVar

from keylane_client.answers import Record, TopicVector
from keylane_client.errors import (
    InvalidAnswer,
    KeylaneError,
    ProblemError,
    RateLimited,
    SnapshotOutdated,
    SyncFailed,
    Unavailable,
    UnknownTopic,
    Unreachable,
    error_of,
)
from keylane_client.parsing import (
    EventParser,
    ServerEvent,
    expect_keylane,
    parse_absence,
    parse_key,
    parse_record,
)
from keylane_client.snapshots import BEGINNINGS, ChosenRecords, SnapshotReader
from keylane_client.synced_records import OnChange, SyncedRecords, records_by_key
from keylane_client.wire import (
    ApiResponse,
    Items,
    Key,
    Listening,
    Stream,
    listen_to_changes,
    normal_key,
    segment,
)

T = TypeVar("T")
_BAD_GATEWAY = 502
_PASSING = (Unreachable, InvalidAnswer, Unavailable, RateLimited, UnknownTopic, SnapshotOutdated)
"""A proxy answers with its own pages while a server is restarted; a topic may be created again."""
Listened = Generator[Listening, ApiResponse, T]


class SyncCalls:
    """A topic whose records are kept in memory. `records`: as they are; `stream` keeps them so."""

    def __init__(self, chosen: ChosenRecords, on_change: OnChange | None) -> None:
        self.records = SyncedRecords(chosen.topic.name, on_change)
        self._chosen = chosen
        self._retries = chosen.topic.context.options.retries

    @property
    def name(self) -> str:
        """Return the topic's name."""
        return self._chosen.topic.name

    def stream(self) -> Stream[None]:
        """Keep the records current, without end. Gives an item for each snapshot that is complete."""
        gaps = 0
        while True:
            at = yield from self._read_snapshot(self._retries.wait_s(None, gaps) if gaps else 0.0)
            yield Items([None])
            has_moved = yield from self._follow(at)
            gaps = 1 if has_moved else gaps + 1
            if gaps >= BEGINNINGS:
                raise SyncFailed(
                    f"the changes of topic {self.name!r} do not go on where its snapshots end: rules that"
                    " compare fields may apply to the caller, or records are removed before they are read"
                )

    def _read_snapshot(self, delay_s: float) -> Listened[TopicVector]:
        """Read a snapshot, take its records and return where they are."""
        began_s = time.monotonic()
        found: dict[Key, Record] = {}
        reader, failures = SnapshotReader(self._chosen), 0
        while True:
            try:
                lane = yield from reader.next_lane(delay_s)
            except KeylaneError as error:
                failures += 1
                delay_s = self._pause_s(error, failures)
                if isinstance(error, SnapshotOutdated):
                    began_s, reader, found = time.monotonic(), SnapshotReader(self._chosen), {}
                continue
            if lane is None:
                break
            found |= records_by_key(map(self._chosen.topic.shaped, lane))
            failures, delay_s = 0, 0.0
        self.records.begin(found, reader.reached, reader.ttl_ms)
        self.records.confirm(began_s)
        return reader.reached

    def _follow(self, at: TopicVector) -> Listened[bool]:
        """Take changes until a gap. Returns whether the stream went on from `at` before it."""
        failures, pause_s, has_moved = 0, 0.0, False
        path = f"/topics/{segment(self.name)}"
        while True:
            parser, is_current = EventParser(), False
            listening = listen_to_changes(path, self._chosen.query(), str(at), pause_s)
            try:
                while chunk := (yield listening).body:
                    received_s = time.monotonic()
                    for event in parser.feed(chunk):
                        if event.name == "gap":
                            return has_moved
                        if event.name == "problem":
                            is_current = False
                        self._take(event)
                        if event.id:
                            with expect_keylane():
                                at = TopicVector.parse(event.id)
                            self.records.at, failures, has_moved, is_current = at, 0, True, True
                    self.records.expire()
                    if is_current:
                        self.records.confirm(received_s)
                # The server is being stopped, or a proxy ends what takes long.
                failures += 1
                pause_s = self._retries.wait_s(None, failures)
            except KeylaneError as error:
                failures += 1
                pause_s = self._pause_s(error, failures)

    def _take(self, event: ServerEvent) -> None:
        """Take one event; those of other names say how the stream is, and not how a key is."""
        topic = self._chosen.topic
        with expect_keylane():
            if event.name == "problem":
                document = topic.context.loads(event.data)
                self.records.trouble = error_of(document["status"], {}, event.data.encode())
                return
            if event.name not in {"record", "absent", "left"}:
                return
            document = topic.context.loads(event.data)
            record = parse_record(document, topic.name) if event.name == "record" else None
            absent = None if record else parse_absence(document, topic.name, normal_key(parse_key(document)))
        if record is not None:
            self.records.put(topic.shaped(record))
        elif absent is not None:
            self.records.remove(absent)

    def _pause_s(self, error: KeylaneError, failures: int) -> float:
        """Return how long to wait after this failure. Raises what does not pass, or did not so far.

        A first snapshot has been tried again already, unless the topic was built again.
        """
        most_at_first = BEGINNINGS if isinstance(error, SnapshotOutdated) else 1
        is_first = self.records.at is None
        if not _may_pass(error) or (is_first and failures >= most_at_first):
            raise error
        self.records.trouble = error
        return min(self._retries.wait_s(error, failures), self._retries.max_retry_after_s)


def _may_pass(error: KeylaneError) -> bool:
    """Return whether the same request may succeed some time."""
    return isinstance(error, _PASSING) or (isinstance(error, ProblemError) and error.status == _BAD_GATEWAY)
