"""Reads a topic's keys in order, a page at a time: it merges the indexes of all lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane.errors import HistoryTooShort, NoHistory, NoIndex, NotKept
from keylane.model.records import Record
from keylane.ports import Deadline
from keylane.query.range_rows import RangeReader
from keylane.query.store import read_current
from keylane.state.lanes import lane_of_partition_key, lanes_of_topic

if TYPE_CHECKING:
    from keylane.model.records import Answer, Layout
    from keylane.query.range_rows import RangeScan, Row
    from keylane.query.span import Span
    from keylane.query.store import Reading, ReadTerms, Store, Watermarks
    from keylane.state.lanes import Lane


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
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    try:
        _check_kept(store.layouts.get(topic, deadline), scan, store.clock.now_ms())
    except (NotKept, HistoryTooShort):
        store.layouts.refresh(topic, deadline)
    (rows, next_after), reading = read_current(store, topic, deadline, _read_rows, scan, terms)
    reading.check(terms)
    answers = [
        (key, reading.answer(lane, found) if isinstance(found, Record) else found)
        for key, lane, found in rows
    ]
    return RangePage(answers, next_after, reading.watermarks)


def _read_rows(reading: Reading, scan: RangeScan, terms: ReadTerms) -> tuple[list[Row], bytes | None]:
    _check_kept(reading.layout, scan, reading.now_ms)
    return RangeReader(reading, _lanes_of_span(reading.layout, scan.span), scan, terms).read()


def _check_kept(layout: Layout, scan: RangeScan, now_ms: int) -> None:
    """Raise NoIndex, NoHistory or HistoryTooShort where the topic's state lacks what the scan reads."""
    options = layout.options
    if not options.index:
        raise NoIndex(layout.topic)
    if scan.as_of_ms is None:
        return
    if not options.has_history:
        raise NoHistory(layout.topic)
    if options.history_age_ms is not None and scan.as_of_ms < now_ms - options.history_age_ms:
        # Keys that were deleted before that time are in no index any more.
        raise HistoryTooShort(layout.topic, now_ms - options.history_age_ms)


def _lanes_of_span(layout: Layout, span: Span) -> list[Lane]:
    """Return the lanes that may hold keys of the span: one lane where its keys share a partition key."""
    part = span.partition_key(layout.partition_by)
    return lanes_of_topic(layout) if part is None else [lane_of_partition_key(layout, part)]
