"""Reads a key's history: a page of its records, or the record as of a time or a position."""

from dataclasses import dataclass

from keylane.errors import HistoryTooShort, PositionNotReached
from keylane.model.keys import check_key
from keylane.model.records import Answer, HistoryEntry, Position, Record
from keylane.query.as_of import absent_as_of, read_as_of_position, read_as_of_time
from keylane.query.history_entries import HistoryScan, read_entries
from keylane.query.kept import check_history, read_kept
from keylane.query.store import Reading, ReadTerms, Store, Watermarks
from keylane.state.lanes import lane_of_key

LATEST = 1 << 62
"""A time after all others."""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Entries of a history, newest first. `next_after`: where the page ended, None at the end."""

    entries: list[HistoryEntry]
    next_after: bytes | None
    watermarks: Watermarks


def read_history(store: Store, topic: str, key: bytes, scan: HistoryScan, terms: ReadTerms) -> HistoryPage:
    """Read a page of a key's records, newest first.

    Raises NullKey, TooLarge, NoHistory, UnknownTopic, LaneBuilding, StateTooOld, StateUnavailable,
    CorruptState.
    """
    check_key(key)
    (entries, next_after), reading = read_kept(store, topic, terms, _read_page, key, scan)
    return HistoryPage(entries, next_after, reading.watermarks)


def read_as_of(store: Store, topic: str, key: bytes, moment: int | Position, terms: ReadTerms) -> Answer:
    """Read the record of a key as of a time (ms since 1970), or as of a position of the topic.

    Raises as `read_history`, and HistoryTooShort, PositionNotReached.
    """
    check_key(key)
    found, reading = read_kept(store, topic, terms, _read_moment, key, moment)
    lane = lane_of_key(reading.layout, key)
    next_offset = reading.watermarks.by_lane[lane].next_offset
    if isinstance(moment, Position) and moment.partition == lane.partition and moment.offset >= next_offset:
        raise PositionNotReached(str(moment), next_offset, 0)
    if isinstance(found, HistoryTooShort):
        raise found
    return reading.answer(lane, found)


def _read_page(reading: Reading, key: bytes, scan: HistoryScan) -> tuple[list[HistoryEntry], bytes | None]:
    check_history(reading.layout)
    lane = lane_of_key(reading.layout, key)
    if not _is_permitted(reading, key):
        absent_as_of(reading, lane, LATEST)
        return [], None
    return read_entries(reading, lane, key, scan)


def _read_moment(reading: Reading, key: bytes, moment: int | Position) -> Record | HistoryTooShort | None:
    check_history(reading.layout)
    lane = lane_of_key(reading.layout, key)
    if not _is_permitted(reading, key):
        return absent_as_of(reading, lane, moment)
    if isinstance(moment, Position):
        return read_as_of_position(reading, lane, key, moment)
    return read_as_of_time(reading, {key: lane}, moment)[key]


def _is_permitted(reading: Reading, key: bytes) -> bool:
    """Return whether the caller may read earlier records of a key. Raises OutsideScope as `of_history`."""
    return reading.scope is None or reading.scope.of_history().has_key(key)
