"""Reads a topic's keys in order, a page at a time: it merges the indexes of all lanes."""

from dataclasses import dataclass

from keylane.errors import HistoryTooShort
from keylane.model.records import Answer, Layout, Record
from keylane.query.kept import check_history, check_index, read_kept
from keylane.query.range_rows import RangeReader, Row
from keylane.query.span import RangeScan
from keylane.query.store import Reading, ReadTerms, Store, Watermarks


@dataclass(frozen=True, slots=True)
class RangePage:
    """One page of a range. `rows`: keys in the requested order, each with its answer.

    The answer is None if the request asked for keys alone, and HistoryTooShort if the key's history does not
    reach back far enough. `next_after`: the key after which the next page begins, None on the last page.
    """

    rows: list[tuple[bytes, Answer | HistoryTooShort | None]]
    next_after: bytes | None
    watermarks: Watermarks


def read_range(store: Store, topic: str, scan: RangeScan, terms: ReadTerms) -> RangePage:
    """Read a page of a topic's keys and their latest records, or their records as of a time.

    A key that is deleted before its value is read is left out, and the page is filled with the next keys. The
    page is shorter than the limit, even empty, if that takes long or the values are large. A page as of a
    time also has the keys that were deleted since.

    Raises NoIndex, NoHistory, HistoryTooShort, UnknownTopic, LaneBuilding, StateTooOld, StateUnavailable,
    CorruptState.
    """
    (rows, next_after), reading = read_kept(store, topic, terms, _read_rows, scan, terms)
    answers = [
        (key, reading.answer(lane, found) if isinstance(found, Record) else found)
        for key, lane, found in rows
    ]
    return RangePage(answers, next_after, reading.watermarks)


def _read_rows(reading: Reading, scan: RangeScan, terms: ReadTerms) -> tuple[list[Row], bytes | None]:
    check_index(reading.layout)
    if scan.as_of_ms is not None:
        _check_history_since(reading.layout, scan.as_of_ms, reading.now_ms)
    return RangeReader(reading, scan.span.lanes(reading.layout), scan, terms).read()


def _check_history_since(layout: Layout, as_of_ms: int, now_ms: int) -> None:
    """Raise NoHistory, or HistoryTooShort where the topic's histories do not reach back so far."""
    check_history(layout)
    age_ms = layout.options.history_age_ms
    if age_ms is not None and as_of_ms < now_ms - age_ms:
        # Keys that were deleted before that time are in no index any more.
        raise HistoryTooShort(layout.topic, now_ms - age_ms)
