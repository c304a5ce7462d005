"""Reads one page of a range: the next keys of the merged index, then their records."""

from collections.abc import Mapping, Sequence

from keylane.errors import HistoryTooShort, ScopeTooWide, TooLarge
from keylane.model.records import Record
from keylane.query.as_of import read_as_of_time
from keylane.query.fetch import find_present, read_records
from keylane.query.history_entries import PAGE_BYTES
from keylane.query.merged_index import MergedIndex
from keylane.query.scoped_index import ScopedIndex
from keylane.query.span import RangeScan
from keylane.query.store import Reading, ReadTerms
from keylane.state import redis_keys
from keylane.state.lanes import Lane

Found = Record | HistoryTooShort | None
Row = tuple[bytes, Lane, Found]  # key, its lane, what was read: None for a key alone

FIRST_STEP = 100
"""The first step reads this many values; their size decides how many of the next ones fit into the page."""


class RangeReader:
    """Reads one page of a range by one layout."""

    def __init__(self, reading: Reading, lanes: Sequence[Lane], scan: RangeScan, terms: ReadTerms) -> None:
        index_key = redis_keys.index_key if scan.as_of_ms is None else redis_keys.history_index_key
        self._reading = reading
        self._scan = scan
        self._index: MergedIndex | ScopedIndex
        if reading.scope is None:
            self._index = MergedIndex(reading, lanes, index_key, scan.span.bounds(scan.after), scan.limit)
        else:
            # Earlier records have no fields by which a rule could judge them.
            scope = reading.scope if scan.as_of_ms is None else reading.scope.of_history()
            self._index = ScopedIndex(reading, scope, lanes, scan, index_key)
        self._least_s = terms.timeout_ms / 2000

    def read(self) -> tuple[list[Row], bytes | None]:
        """Return the page's rows, and the key after which the next page begins: None at the end of the span.

        The page is shorter than `limit`, even empty, where half of the time is over, and where its values are
        large. Raises as `State.run`, and CorruptState.
        """
        if self._reading.scope is not None:
            return self._read_permitted()
        rows: list[Row] = []
        size_bytes = 0
        step = FIRST_STEP
        while len(rows) < self._scan.limit:
            keys = self._index.take(min(self._scan.limit - len(rows), step))
            if not keys:
                return rows, None
            found, count = self._read_what_fits(keys)
            for row in found:
                size_bytes += _size_of(row)
                if rows and size_bytes > PAGE_BYTES:
                    return rows, rows[-1][0]
                rows.append(row)
            if count < len(keys):
                return rows, keys[count - 1][0]
            step = max(FIRST_STEP, (PAGE_BYTES - size_bytes) * len(rows) // max(1, size_bytes))
            if self._reading.deadline.remaining_s < self._least_s:
                break
        return rows, self._index.last if self._index.has_more() else None

    def _read_permitted(self) -> tuple[list[Row], bytes | None]:
        """As `read`, of a caller with a scope: a page ends at a row of theirs, and says if one follows.

        Raises ScopeTooWide where half of the time is over, and none was found.
        """
        rows: list[Row] = []
        size_bytes = 0
        limit = self._scan.limit
        while keys := self._index.take(min(limit + 1 - len(rows), FIRST_STEP)):
            found, count = self._read_what_fits(keys)
            for row in found:
                size_bytes += _size_of(row)
                if len(rows) == limit or (rows and size_bytes > PAGE_BYTES):
                    return rows, rows[-1][0]
                rows.append(row)
            if count < len(keys) or self._reading.deadline.remaining_s < self._least_s:
                if not rows:
                    raise ScopeTooWide(self._reading.layout.topic)
                return rows, rows[-1][0]
        return rows, None

    def _read_what_fits(self, keys: list[tuple[bytes, Lane]]) -> tuple[list[Row], int]:
        """Return rows of the first keys, and how many keys: not all where their values are too large."""
        count = len(keys)
        while True:
            try:
                return self._read_keys(dict(keys[:count])), count
            except TooLarge:
                if count == 1:
                    raise
                count = max(1, count // 8)

    def _read_keys(self, lanes: dict[bytes, Lane]) -> list[Row]:
        scan, reading = self._scan, self._reading
        if reading.scope is not None:
            lanes = {key: lane for key, lane in lanes.items() if reading.scope.has_key(key)}
        if scan.is_wanted is not None:
            lanes = {key: lane for key, lane in lanes.items() if scan.is_wanted(key)}
        found: Mapping[bytes, Found]
        if scan.as_of_ms is not None:
            found = read_as_of_time(reading, lanes, scan.as_of_ms)
        elif not scan.keys_only or (reading.scope is not None and reading.scope.judges_rows):
            found = _records_by_key(reading, lanes)
        else:
            # Without a time to live the index is exact: it is written with the values.
            present = find_present(reading, lanes) if reading.layout.options.ttl_ms else lanes
            return [(key, lane, None) for key, lane in lanes.items() if key in present]
        rows = [(key, lane, found[key]) for key, lane in lanes.items() if found[key] is not None]
        return [(key, lane, None) for key, lane, _ in rows] if scan.keys_only else rows


def _records_by_key(reading: Reading, lanes: Mapping[bytes, Lane]) -> dict[bytes, Record | None]:
    """Return the record of each key of `lanes` (key -> its lane)."""
    keys_by_lane: dict[Lane, list[bytes]] = {}
    for key, lane in lanes.items():
        keys_by_lane.setdefault(lane, []).append(key)
    found: dict[bytes, Record | None] = {}
    for lane, records in read_records(reading, keys_by_lane).items():
        found.update(zip(keys_by_lane[lane], records, strict=True))
    return found


def _size_of(row: Row) -> int:
    key, _, found = row
    return len(key) + (len(found.value) if isinstance(found, Record) else 0)
