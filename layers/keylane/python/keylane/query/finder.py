"""Finds one page of a topic's records by the fields of their values, by one layout.

1. Each condition is an interval of an index, and so is the order. Where several indexes can lead to the rows,
   the lanes count what is in each interval.
2. The one with the fewest members drives: its members are read in order, with their records, and the other
   conditions are tested on what the records' envelopes say of them. If the driving index is not in the order
   that is asked for and has few members, all of them are read and sorted; if it has many, the best index in
   that order drives.
   Where only the keys of a span are wanted, the index of keys is one more that can drive, rows of other keys
   are skipped, and lanes that can't have keys of the span are not asked.
3. A request reads MOST_SCANNED members at most. The page then ends, with fewer rows than its limit, and says
   how many it has looked at.

A page ends at a position that does not name a generation:

    types      4 bytes   digest of the fields whose values follow: of the order, else of the index that drives
    name       length u8, and the index's name and which condition: only without an order
    ...        the values and the key of the last member

A field that has changed its type since has other values, in another order: the page is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from keylane.errors import BadRequest, ScopeTooWide, ValueNotDecodable
from keylane.model.records import Layout, Position, Record
from keylane.ports import Call
from keylane.query.conditions import Asked, Drive, FieldQuestion, Order
from keylane.query.field_scan import FieldScan, FoundMember
from keylane.query.history_entries import PAGE_BYTES
from keylane.query.span import Span
from keylane.query.store import Reading, ReadTerms
from keylane.state.field_index import KEYS, values_at
from keylane.state.lanes import decode_value, index_keys
from keylane.state.ordered import END

if TYPE_CHECKING:
    from keylane.state.field_index import Field
    from keylane.state.lanes import Lane

MOST_SCANNED = 5000
"""Members of an index that one request looks at: about 20 ms of all nodes together."""
MOST_BYTES = 16 * 1024 * 1024
"""Bytes of records, found or not, after which a page ends."""
SORTED_AT_ONCE = 1000
"""So many members or fewer are all read, and sorted, where their index is not in the order."""

TYPES_BYTES = 4
ANY_TYPES = bytes(TYPES_BYTES)
"""Of a position that does not say of which types its values are."""

Decode = Callable[[Layout, Record], Record]


class FindScan(NamedTuple):
    """A page of the rows that meet all conditions. `after`: `next_after` of the page before.

    `span`: the keys of which rows are wanted.
    `min_position` must be in the state; it is waited for `position_ms` at most.
    """

    asked: tuple[Asked, ...]
    order: Order | None
    limit: int
    after: bytes | None = None
    min_position: Position | None = None
    position_ms: float = 0
    span: Span = Span()


class FoundRow(NamedTuple):
    """A row, and the lane that has it."""

    lane: Lane
    record: Record


class PageFinder:
    """Finds one page by one layout. `index`: the name of the one that has driven."""

    def __init__(
        self, reading: Reading, question: FieldQuestion, scan: FindScan, terms: ReadTerms, decode: Decode
    ) -> None:
        self._reading = reading
        self._question = question
        self._scan = scan
        self._decode = decode
        self._least_s = terms.timeout_ms / 2000
        self._after = None if scan.after is None else scan.after[TYPES_BYTES:]
        self._lanes = scan.span.lanes(reading.layout)
        self.index = ""
        self._expanded_bytes = 0
        """Of values that were compressed: what was read counts as what it became."""

    def find_rows(self) -> tuple[list[FoundRow], bytes | None, int]:
        """Return rows, the position after which the next page begins, and how many members were read."""
        question, scan = self._question, self._scan
        drives = list(question.drives(scan.span))
        if scan.after is not None:
            types = scan.after[:TYPES_BYTES]
            if question.order is None:
                return self._driven(*self._continued(drives, types))
            _check_types(types, (question.order,))
        for drive in drives:
            # None has fewer members, unless what the rules permit is a part of them.
            if drive.is_exact and question.is_in_order(drive) and not question.of_rules:
                return self._driven(drive, self._after)
        counts = count_members(self._reading, drives, self._lanes) if len(drives) > 1 else [0]
        chosen = min(
            zip(counts, drives, strict=True), key=lambda each: (each[0], not question.is_in_order(each[1]))
        )
        if question.is_in_order(chosen[1]):
            return self._driven(chosen[1], self._after)
        if chosen[0] <= SORTED_AT_ONCE and (found := self._sorted(chosen[1])) is not None:
            return found
        in_order = [each for each in zip(counts, drives, strict=True) if question.is_in_order(each[1])]
        return self._driven(min(in_order, key=lambda each: each[0])[1], self._after)

    def _continued(self, drives: Sequence[Drive], types: bytes) -> tuple[Drive, bytes]:
        """Return the index that drove the page before, and after which of its members this one begins."""
        position = self._after or b""
        end = 1 + position[0] if position else 0
        drive = next((each for each in drives if each.name.encode() == position[1:end]), None)
        if drive is None:
            raise _changed_index()
        _check_types(types, drive.index.fields)
        return drive, position[end:]

    def _driven(self, drive: Drive, after: bytes | None) -> tuple[list[FoundRow], bytes | None, int]:
        """Read rows in the order of the driving index."""
        self.index = drive.index.name
        if self._reading.scope is not None:
            return self._driven_in_scope(drive, after)
        limit = self._scan.limit
        members = self._members(drive, after, limit)
        rows: dict[bytes, FoundRow] = {}
        size, found = 0, None
        while len(rows) < limit and members.scanned < MOST_SCANNED:
            found = members.next(len(rows))
            if found is None:
                return list(rows.values()), None, members.scanned
            # What was met before has changed its value since.
            if found.key not in rows and (row := self._row(drive, found)):
                rows[found.key] = row
                size += max(len(found.data or b""), len(row.record.value))
            if size > PAGE_BYTES or members.read_bytes + self._expanded_bytes > MOST_BYTES:
                break
            if members.is_read_next and self._reading.deadline.remaining_s < self._least_s:
                break
        next_after = self._position(drive, found) if found and members.has_more() else None
        return list(rows.values()), next_after, members.scanned

    def _driven_in_scope(self, drive: Drive, after: bytes | None) -> tuple[list[FoundRow], bytes | None, int]:
        """As `_driven`, of a caller with a scope: the page ends at a record of theirs, as the cursor says it.

        Raises ScopeTooWide where as much was read as may be, and none was theirs.
        """
        limit, size = self._scan.limit, 0
        members = self._members(drive, after, limit + 1)
        rows: dict[bytes, FoundRow] = {}
        last: FoundMember | None = None
        while (found := members.next(len(rows))) is not None:
            record = self._record(found)
            row = None
            if record is not None:
                row = self._row_of(drive, found, record) if self._is_wanted(found, rows) else None
                if row is not None and last is not None and (len(rows) == limit or size > PAGE_BYTES):
                    return list(rows.values()), self._position(drive, last), members.scanned
                last = found
            if row is not None:
                rows[found.key] = row
                size += max(len(found.data or b""), len(row.record.value))
            read_bytes = members.read_bytes + self._expanded_bytes
            is_late = members.is_read_next and self._reading.deadline.remaining_s < self._least_s
            if members.scanned >= MOST_SCANNED or read_bytes > MOST_BYTES or is_late:
                if not members.has_more():
                    break
                if last is None:
                    raise ScopeTooWide(self._reading.layout.topic)
                return list(rows.values()), self._position(drive, last), members.scanned
        return list(rows.values()), None, members.scanned

    def _record(self, found: FoundMember) -> Record | None:
        """Return the record of a member, if the caller may read it."""
        record = decode_value(found.lane, found.key, found.data, self._reading.expander())
        if record is not None and self._reading.layout.options.compression != "none":
            self._expanded_bytes += len(record.value)
        return self._reading.permitted(record)

    def _is_wanted(self, found: FoundMember, rows: Mapping[bytes, FoundRow]) -> bool:
        return found.key not in rows and self._scan.span.has(found.key)

    def _sorted(self, drive: Drive) -> tuple[list[FoundRow], bytes | None, int] | None:
        """Read all rows that the driving index leads to, and sort them; None where they are too many."""
        self.index = drive.index.name
        scan, is_descending = self._scan, self._question.is_descending
        members = FieldScan(
            self._reading, self._lanes, drive, is_descending=False, after=None, wanted=SORTED_AT_ONCE
        )
        rows: dict[bytes, FoundRow] = {}
        while (found := members.next(len(rows))) is not None:
            read_bytes = members.read_bytes + self._expanded_bytes
            if members.scanned > 2 * SORTED_AT_ONCE or read_bytes > MOST_BYTES:
                return None
            if found.key not in rows and (row := self._row(drive, found)):
                rows[found.key] = row
        placed = [(self._order_value(row) + END + key, row) for key, row in rows.items()]
        placed.sort(key=itemgetter(0), reverse=is_descending)
        if (after := self._after) is not None:
            placed = [each for each in placed if (each[0] < after) == is_descending and each[0] != after]
        page, size = [], 0
        for _, row in placed[: scan.limit]:
            page.append(row)
            size += len(row.record.value)
            if size > PAGE_BYTES:
                break
        has_more = len(placed) > len(page)
        next_after = self._types(drive) + placed[len(page) - 1][0] if has_more else None
        return page, next_after, members.scanned

    def _order_value(self, row: FoundRow) -> bytes:
        order = self._question.order
        return next(iter(values_at(row.record.entries, order.number)), b"") if order else b""

    def _members(self, drive: Drive, after: bytes | None, wanted: int) -> FieldScan:
        is_descending = self._question.is_descending
        return FieldScan(
            self._reading, self._lanes, drive, is_descending=is_descending, after=after, wanted=wanted
        )

    def _position(self, drive: Drive, found: FoundMember) -> bytes:
        behind = found.member[len(drive.prefix) :]
        if self._question.order is not None:
            return self._types(drive) + behind
        name = drive.name.encode()
        return self._types(drive) + bytes((len(name),)) + name + behind

    def _types(self, drive: Drive) -> bytes:
        order = self._question.order
        return _types_of(drive.index.fields if order is None else (order,))

    def _row(self, drive: Drive, found: FoundMember) -> FoundRow | None:
        """Return the row of a member; None where its record does not meet the conditions."""
        if not self._scan.span.has(found.key):
            return None
        return self._row_of(drive, found, self._record(found))

    def _row_of(self, drive: Drive, found: FoundMember, record: Record | None) -> FoundRow | None:
        if record is None or not self._is_at(drive, found, record):
            return None
        return FoundRow(found.lane, record) if drive.is_exact or self._is_met_by(record) else None

    def _is_at(self, drive: Drive, found: FoundMember, record: Record) -> bool:
        """Return whether the record has its row at this member, and not at another one, or none."""
        if drive.index is KEYS:
            return True
        values = values_at(record.entries, drive.index.number)
        if drive.index.fields[-1].type.is_many:
            # Of a record with several values in the interval there is one row: at the first.
            own = [value for value in values if drive.has(value)]
            first = max if self._question.is_descending else min
            return bool(found.value == first(own, default=None))
        return found.value in values

    def _is_met_by(self, record: Record) -> bool:
        try:
            return self._question.is_met_by(record, lambda: self._decode(self._reading.layout, record))
        except ValueNotDecodable:
            return False


def _types_of(fields: Sequence[Field]) -> bytes:
    described = repr([(field.path, field.kind) for field in fields])
    return blake2b(described.encode(), digest_size=TYPES_BYTES).digest()


def _check_types(types: bytes, fields: Sequence[Field]) -> None:
    if types not in {_types_of(fields), ANY_TYPES}:
        raise _changed_index()


def _changed_index() -> BadRequest:
    return BadRequest("the cursor is of an index that the topic no longer has: begin again", "cursor")


def count_members(reading: Reading, drives: Sequence[Drive], lanes: Sequence[Lane]) -> list[int]:
    """Return how many members of these lanes are in each interval, by one round trip to each node."""
    calls: list[Call] = []
    of_drive: list[int | None] = []
    for lane in lanes:
        calls.append(Call(lane.slot, (b"GET", lane.watermark_key)))
        of_drive.append(None)
        for number, drive in enumerate(drives):
            for low, high in drive.all_bounds(is_descending=False, after=None):
                for part in index_keys(reading.layout, lane, drive.index):
                    calls.append(Call(lane.slot, (b"ZLEXCOUNT", part, low, high)))
                    of_drive.append(number)
    counts = [0] * len(drives)
    watermarks = iter(lanes)
    for of_reply, reply in zip(of_drive, reading.run(calls), strict=True):
        if of_reply is None:
            reading.watermarks.note(next(watermarks), reply)
        else:
            counts[of_reply] += reply
    return counts
