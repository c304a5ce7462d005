"""Finds and counts a topic's records by the fields of their values: see `query.finder`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from keylane.errors import BadRequest, PositionNotReached
from keylane.model.records import MAX_LANES, Answer, Position
from keylane.ports import Call, Deadline
from keylane.query.conditions import FieldQuestion, question_of
from keylane.query.finder import MOST_SCANNED, Decode, FindScan, FoundRow, PageFinder, count_members
from keylane.query.kept import read_kept
from keylane.query.latest import FIRST_PAUSE_S, longest_pause_s
from keylane.query.store import Found, Reading, ReadTerms, Store, Watermarks
from keylane.query.strays import reached_offset
from keylane.state.lanes import decode_watermark, lane_at, lanes_of_topic


@dataclass(frozen=True, slots=True)
class FindPage:
    """One page of what was found, in order. `scanned`: how many members of an index were looked at.

    `index`: its name. `next_after`: None where no row can follow.
    """

    rows: list[tuple[bytes, Answer]]
    next_after: bytes | None
    scanned: int
    index: str
    watermarks: Watermarks


@dataclass(frozen=True, slots=True)
class FindCount:
    """How many rows meet the conditions: of what was looked at alone, where `next_after` is not None."""

    count: int
    next_after: bytes | None
    scanned: int
    index: str
    watermarks: Watermarks


def find(store: Store, topic: str, scan: FindScan, terms: ReadTerms, decode: Decode) -> FindPage:
    """Find a page of records. `decode`: as `ValueDecoder.decode`; a value that it can't decode is not found.

    Raises BadRequest, NoFields, UnknownTopic, LaneBuilding, StateTooOld, PositionNotReached,
    StateUnavailable, CorruptState, and RegistryUnavailable and BadConfig of `decode`.
    """
    (rows, next_after, scanned, index), reading = _read_at_position(store, topic, scan, terms, _find, decode)
    answers = [(row.record.key, reading.answer(row.lane, row.record)) for row in rows]
    return FindPage(answers, next_after, scanned, index, reading.watermarks)


def count_found(store: Store, topic: str, scan: FindScan, terms: ReadTerms, decode: Decode) -> FindCount:
    """Count records that meet all conditions. Raises as `find`."""
    (count, next_after, scanned, index), reading = _read_at_position(
        store, topic, scan, terms, _count, decode
    )
    return FindCount(count, next_after, scanned, index, reading.watermarks)


def _read_at_position(
    store: Store,
    topic: str,
    scan: FindScan,
    terms: ReadTerms,
    read: Callable[[Reading, FindScan, ReadTerms, Decode], Found],
    decode: Decode,
) -> tuple[Found, Reading]:
    """Read from a state that has the scan's position, and by lanes that have it too."""
    position = scan.min_position
    if position is None:
        return read_kept(store, topic, terms, read, scan, terms, decode)
    waited_ms = _wait_for(store, topic, position, scan.position_ms, terms)
    # A replica may be behind the node that had the position and, as it may be a stray's, its watermark would
    # not say so: the primaries of all lanes have what was written before.
    found, reading = read_kept(store.of_primaries, topic, terms, read, scan, terms, decode)
    marks = reading.watermarks
    reached = marks.next_offsets.get(position.partition, position.offset + 1)
    first = marks.by_lane.get(lane_at(reading.layout, position.partition, 0))
    if first is None or first.gave_strays:
        reached = min(reached, _reached(store, topic, position.partition, terms))
    if reached <= position.offset:  # a replica that was behind is primary by now
        raise PositionNotReached(str(position), reached, waited_ms)
    return found, reading


def _find(
    reading: Reading, scan: FindScan, terms: ReadTerms, decode: Decode
) -> tuple[list[FoundRow], bytes | None, int, str]:
    question, scan, _ = _within_scope(reading, scan)
    finder = PageFinder(reading, question, scan, terms, decode)
    return *finder.find_rows(), finder.index


def _count(
    reading: Reading, scan: FindScan, terms: ReadTerms, decode: Decode
) -> tuple[int, bytes | None, int, str]:
    question, scan, is_said = _within_scope(reading, scan)
    exact = [drive for drive in question.drives(scan.span) if drive.is_exact and is_said]
    # Members of what has expired are removed by later writes: only their records tell.
    if exact and scan.after is None and reading.layout.options.ttl_ms is None:
        return (
            count_members(reading, exact[:1], lanes_of_topic(reading.layout))[0],
            None,
            0,
            exact[0].index.name,
        )
    finder = PageFinder(reading, question, scan._replace(limit=MOST_SCANNED), terms, decode)
    rows, next_after, scanned = finder.find_rows()
    return len(rows), next_after, scanned, finder.index


def _within_scope(reading: Reading, scan: FindScan) -> tuple[FieldQuestion, FindScan, bool]:
    """Return what is asked of the records that the caller may read, and whether it says all of that."""
    question = question_of(reading.layout, scan.asked, scan.order)
    if reading.scope is None:
        return question, scan, True
    for condition in question.conditions:
        reading.scope.check_condition(condition.field)
    conditions, span, is_said = reading.scope.narrow(scan.span)
    question = question._replace(
        conditions=(*question.conditions, *conditions), of_rules=reading.scope.drives()
    )
    return question, scan._replace(span=span), is_said


def _wait_for(store: Store, topic: str, position: Position, wait_ms: float, terms: ReadTerms) -> int:
    """Wait until all lanes have a position's partition up to it.

    Returns how many milliseconds it took. Raises PositionNotReached, BadRequest.
    """
    if position.partition >= MAX_LANES:
        raise BadRequest(f"partition {position.partition} can't exist", "Keylane-Min-Position")
    began_s, pause_s = store.clock.monotonic_s(), FIRST_PAUSE_S
    while True:
        reached = _reached(store, topic, position.partition, terms)
        waited_ms = round((store.clock.monotonic_s() - began_s) * 1000)
        if reached > position.offset:
            return waited_ms
        if waited_ms >= wait_ms:
            raise PositionNotReached(str(position), reached, waited_ms)
        store.clock.await_s(pause_s)
        pause_s = min(pause_s * 2, longest_pause_s(waited_ms / 1000))


def _reached(store: Store, topic: str, partition: int, terms: ReadTerms) -> int:
    """Return the offset below which a partition's lanes have its records, and others their strays of it."""
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    layout = store.layouts.get(topic, deadline)
    lanes = [lane_at(layout, partition, stripe) for stripe in range(layout.stripes)]
    found = store.state.run([Call(lane.slot, (b"GET", lane.watermark_key)) for lane in lanes], deadline)
    marks = [
        None if data is None else decode_watermark(lane.watermark_key, data)
        for lane, data in zip(lanes, found, strict=True)
    ]
    reached = min(0 if mark is None else mark.next_offset for mark in marks)
    # Strays are in their lanes before, unless a failover has taken some back.
    if marks[0] is None or not marks[0].gave_strays:
        return reached
    return min(reached, reached_offset(Reading(store, layout, deadline), partition, lanes_of_topic(layout)))
