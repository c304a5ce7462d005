"""All records of one lane, exactly as of one position, while the lane is written.

    1. Scan the lane. Its watermark at the first step is where it begins.
    2. The keys of the log's records from there on may have changed since they were scanned. Find such keys in
       the log, ahead of the watermark as far as the log goes, then read them from the lane: all at one
       moment, with the watermark of that moment.
    3. If that watermark is no further than the log was read, every row is as of it: the lane is cut there.
       Else go on at 2, from where all rows are known to be.

Rows are yielded as they are read. So a key has another row, or a removal, where it changed meanwhile: its
last one counts once the lane is cut. Values come from the lane alone, whatever the job makes of records.

The lane is scanned again where another process answers, its slot migrates, or it is behind what was read of
it: a failover lost writes, which the job then reads again. It still begins where it did, and it is not cut
before it is as far as it was. So the rows that were yielded stay valid: what changed since is in the log.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from keylane.errors import ScopeTooWide, SnapshotOutdated, StateUnavailable
from keylane.ports import Deadline
from keylane.query import lane_scan
from keylane.query.changes import find_changed_keys
from keylane.query.store import Reading, Store, begin_reading, newer_layout
from keylane.state.lanes import Lane, decode_values, keys_by_lane

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from typing import Any

    from keylane.model.records import Layout, Position, Record, Watermark
    from keylane.ports import Call, Clock, LogReader
    from keylane.query.lane_scan import LaneStep
    from keylane.query.row_scopes import TopicScope
    from keylane.query.store import ReadTerms

SHARE_OF_TIME = 0.5
"""The part of the time in which nodes work for a snapshot; the rest is for what others ask of them."""
ATTEMPTS = 8
"""Scans of one lane."""
SETTLE_S = 60.0
"""How long a lane may migrate, or be behind what was read of it."""
SETTLE_PAUSE_S = 0.1
CATCH_UP_S = 60.0
"""How long changes are followed until there is a moment at which all of them are known."""
LOG_TIMEOUT_MS = 5_000
LOG_PAUSE_S = 0.01
END_OF_LOG = 1 << 62
MOST_NOTED = 20_000
"""Keys of a lane of which it is noted what was yielded; for rules that compare fields the most rows."""


class LaneRows(NamedTuple):
    """Rows of a lane. A record of None removes the row that its key may have.

    `watermark`: of the moment at which they were read.
    """

    lane: Lane
    watermark: Watermark
    rows: list[tuple[bytes, Record | None]]


class LaneCut(NamedTuple):
    """The end of a lane: its rows are all records below `watermark`, and strays below `strays`.

    `strays`: source partition -> offset. `as_of_ms`: what has expired by then is not in the lane.
    """

    number: int
    lane: Lane
    watermark: Watermark
    strays: Mapping[int, int]
    as_of_ms: int


class LaneUnsettled(Exception):
    """The lane has to be scanned again; the text says why."""


class SnapshotTerms(NamedTuple):
    """What all lanes of a snapshot are read with.

    `begin`: partition -> offset that the state had before the first of them was read. `ends`: how far each
    lane was then, and how far it was given strays, as `LaneSnapshot` has it. `is_wanted`: which records are
    rows, beside the key's prefix.
    """

    store: Store
    log: LogReader
    layout: Layout
    terms: ReadTerms
    begin: Mapping[int, int]
    ends: Mapping[Lane, Mapping[int, int]]
    prefix: bytes
    is_wanted: Callable[[Record], bool]
    pace: Pace
    scope: TopicScope | None

    def reading(self) -> Reading:
        """Begin one step. Raises SnapshotOutdated, and as `begin_reading`."""
        deadline = Deadline.after_ms(self.terms.timeout_ms, self.store.clock)
        reading = begin_reading(self.store, self.layout.topic, deadline)
        self._check(reading.layout)
        return reading

    def check(self, reading: Reading) -> None:
        """Check what was noted of a lane. Raises SnapshotOutdated, LaneBuilding."""
        if reading.watermarks.is_stale:
            self._check(newer_layout(reading))
        reading.watermarks.check_complete(partial=self.terms.partial)

    def _check(self, layout: Layout) -> None:
        known = self.layout
        if (layout.generation, layout.incarnation) != (known.generation, known.incarnation):
            raise SnapshotOutdated(known.topic, "the topic has been built again since it began")


class Pace:
    """Bounds the part of the time in which something works: it rests before the next piece of work."""

    def __init__(self, clock: Clock, share: float) -> None:
        self._clock = clock
        self._share = share
        self._next_s = clock.monotonic_s()

    def rest(self) -> None:
        """Pause for as long as the last piece of work is worth."""
        left_s = self._next_s - self._clock.monotonic_s()
        if left_s > 0:
            self._clock.pause_s(left_s)

    def work(self, do: Callable[[], list[Any]]) -> list[Any]:
        """Return what a piece of work does."""
        begun_s = self._clock.monotonic_s()
        try:
            return do()
        finally:
            self._next_s = begun_s + (self._clock.monotonic_s() - begun_s) / self._share


class LaneSnapshot:
    """One lane of a snapshot, the lane of this number. Its `parts` are rows, then its cut."""

    def __init__(self, given: SnapshotTerms, number: int, lane: Lane) -> None:
        self._given = given
        self._number = number
        self._lane = lane
        self._process = b""
        self._begin: dict[int, int] = {}
        # It may have been further when the snapshot began than it is when its turn comes.
        self._highest: Mapping[int, int] = given.ends[lane]
        self._as_of_ms = 0
        self._watermark: Watermark | None = None
        self._yielded: dict[bytes, Position | None] = {}  # by the digest of the key, which may be long

    def parts(self) -> Iterator[LaneRows | LaneCut]:
        """Yield rows and, last, the cut. Raises StateUnavailable where there is no moment for one.

        Raises ScopeTooWide, SnapshotOutdated, LaneBuilding, CorruptState, LogUnavailable, LogRefused, too.
        """
        reason = ""
        for _ in range(ATTEMPTS):
            try:
                self._settle()
                ends = yield from self._scan()
                ends = yield from self._catch_up(ends)
            except LaneUnsettled as unsettled:
                reason = str(unsettled)
                continue
            watermark = self._watermark
            assert watermark is not None  # noqa: S101 - for the type checker
            strays = {source: end for source, end in ends.items() if source != self._lane.partition}
            yield LaneCut(self._number, self._lane, watermark, strays, self._as_of_ms)
            return
        raise StateUnavailable(f"lane {self._lane} was scanned {ATTEMPTS} times, but {reason}")

    def _settle(self) -> None:
        """Wait until the lane can be scanned. Raises StateUnavailable."""
        clock = self._given.store.clock
        deadline, self._process = Deadline.after_ms(SETTLE_S * 1000, clock), b""
        while True:
            try:
                self._ask(lane_scan.read_step(self._given.layout, self._lane, ()))
            except LaneUnsettled as unsettled:
                if not deadline.remaining_s:
                    raise StateUnavailable(f"lane {self._lane}: {unsettled}") from unsettled
                self._process = b""
                clock.pause_s(SETTLE_PAUSE_S)
            else:
                return

    def _scan(self) -> Generator[LaneRows, None, dict[int, int]]:
        """Yield what the lane has; return its ends at a moment at which all of that was there."""
        cursor = lane_scan.FIRST
        layout, prefix = self._given.layout, self._given.prefix
        while True:
            step, rows = self._ask(lane_scan.scan_step(layout, self._lane, cursor, prefix))
            ends = self._ends(step)
            self._begin = self._begin or ends
            if shown := self._rows(rows, is_scan=True):
                yield shown
            left = step.keys[len(step.values) :]
            while left:
                more, rows = self._ask(lane_scan.read_step(layout, self._lane, left), left)
                ends = self._ends(more)
                if shown := self._rows(rows, is_scan=True):
                    yield shown
                left = left[len(more.values) :]
            cursor = step.cursor
            if cursor == lane_scan.FIRST:
                return ends

    def _catch_up(self, ends: dict[int, int]) -> Generator[LaneRows, None, dict[int, int]]:
        """Yield what changed since the lane began, up to one moment; return the lane's ends at that moment.

        `known`: of each partition the offset below which the rows have all of the lane; `ends`: how far the
        lane was when the last of them was read.
        """
        known = dict(self._begin)
        moving: set[int] = set()
        deadline = Deadline.after_ms(CATCH_UP_S * 1000, self._given.store.clock)
        while behind := {source for source in ends if self._is_behind(source, known, ends)}:
            if not deadline.remaining_s:
                raise StateUnavailable(f"lane {self._lane} changes faster than its changes can be read")
            # What moved once will move again: its log is read ahead, too, and that of the lane's own last.
            moving |= behind
            sources = [*(moving - {self._lane.partition}), self._lane.partition]
            keys, ahead = self._changed_keys({source: self._known(source, known) for source in sources})
            known |= ahead
            first, ends = yield from self._read(keys)
            if first == ends and not any(self._is_behind(source, known, ends) for source in ends):
                return ends
            # What the log has beyond the lane, as it was, may change the lane after that.
            known = {source: min(end, first.get(source, end)) for source, end in known.items()}
        return ends

    def _read(
        self, keys: Sequence[bytes]
    ) -> Generator[LaneRows, None, tuple[dict[int, int], dict[int, int]]]:
        """Yield the present rows of keys; return the lane's ends at the first of them, and at the last."""
        first: dict[int, int] | None = None
        while True:
            step, rows = self._ask(lane_scan.read_step(self._given.layout, self._lane, keys), keys)
            ends = self._ends(step)
            first = ends if first is None else first
            if shown := self._rows(rows, is_scan=False):
                yield shown
            keys = keys[len(step.values) :]
            if not keys:
                return first, ends

    def _known(self, source: int, known: Mapping[int, int]) -> int:
        """Return up to where a partition's log is known: older strays were there before the first lane."""
        return max(known.get(source, 0), self._given.begin.get(source, 0))

    def _is_behind(self, source: int, known: Mapping[int, int], ends: Mapping[int, int]) -> bool:
        return ends[source] > self._known(source, known)

    def _changed_keys(self, since: dict[int, int]) -> tuple[list[bytes], dict[int, int]]:
        """Return the lane's keys in the log from these offsets on, and up to where it was read.

        Raises SnapshotOutdated where the log has lost some of them.
        """
        given = self._given
        deadline = Deadline.after_ms(LOG_TIMEOUT_MS, given.store.clock)
        until = dict.fromkeys(since, END_OF_LOG)
        found = find_changed_keys(given.log, given.layout.topic, since, until, deadline)
        if found.lost:
            raise SnapshotOutdated(given.layout.topic, f"Kafka has removed records from {found.lost[0]} on")
        if found.next_offsets == since:  # the broker that answers is behind the lane
            given.store.clock.pause_s(LOG_PAUSE_S)
        keys = keys_by_lane(given.layout, list(found.keys)).get(self._lane, [])
        return [key for key in keys if key.startswith(given.prefix)], found.next_offsets

    def _ask(
        self, call: Call, keys: Sequence[bytes] = ()
    ) -> tuple[LaneStep, list[tuple[bytes, Record | None]]]:
        """Return one step of the lane, and what is under its keys. Raises LaneUnsettled."""
        self._given.pace.rest()
        reading = self._given.reading()
        [reply] = self._given.pace.work(lambda: reading.run([call]))
        step = lane_scan.parse_step(reply, keys)
        if step.is_migrating:
            raise LaneUnsettled("its slot migrates to another node")
        if self._process not in {b"", step.process}:
            raise LaneUnsettled("another node answers for its slot, or the node was started again")
        self._process = step.process
        reading.watermarks.note(self._lane, step.watermark)
        self._given.check(reading)
        self._watermark = reading.watermarks.by_lane[self._lane]
        self._as_of_ms = reading.now_ms
        ends = self._ends(step)
        if any(ends.get(source, 0) < end for source, end in self._highest.items()):
            raise LaneUnsettled("it is behind what was read of it: a failover has lost writes")
        self._highest = ends
        read = step.keys[: len(step.values)]
        records = decode_values(self._lane, read, step.values, reading.expander())
        return step, list(zip(read, map(reading.permitted, records), strict=True))

    def _ends(self, step: LaneStep) -> dict[int, int]:
        """Return of each partition the offset below which the lane has all that it is to have of it."""
        assert self._watermark is not None  # noqa: S101 - for the type checker
        return step.strays | {self._lane.partition: self._watermark.next_offset}

    def _rows(self, found: Sequence[tuple[bytes, Record | None]], *, is_scan: bool) -> LaneRows | None:
        """Return what is to be yielded of what was found; None for nothing.

        Absent keys of a scan are none: if they had a row, the log has their removal.
        """
        rows: list[tuple[bytes, Record | None]] = []
        for key, record in found:
            if record is not None and self._given.is_wanted(record):
                if is_scan or self._yielded.get(_digest(key)) != record.position:
                    rows.append((key, record))
                    self._note(key, record)
            elif not is_scan and self._may_have_row(key):
                rows.append((key, None))
                self._note(key, None)
        assert self._watermark is not None  # noqa: S101 - for the type checker
        return LaneRows(self._lane, self._watermark, rows) if rows else None

    def _note(self, key: bytes, record: Record | None) -> None:
        """Note what was yielded, where it is needed, or saves a row. Raises ScopeTooWide."""
        if self._judges_rows:
            if len(self._yielded) >= MOST_NOTED:
                raise ScopeTooWide(self._given.layout.topic)
        elif record is not None and record.offset < self._begin.get(record.partition, 0):
            return  # the log from there on does not have it
        elif len(self._yielded) >= MOST_NOTED:
            return
        self._yielded[_digest(key)] = record and record.position

    def _may_have_row(self, key: bytes) -> bool:
        """Return whether a row may have been yielded: who may not see a key is not sent its removal."""
        if self._judges_rows:
            return self._yielded.get(_digest(key)) is not None
        if self._given.scope is not None and not self._given.scope.has_key(key):
            return False
        return self._yielded.get(_digest(key), key) is not None

    @property
    def _judges_rows(self) -> bool:
        return self._given.scope is not None and self._given.scope.judges_rows


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()
