"""The keys that a caller's rules may permit, in key order: from the index of keys, or from those of fields.

A rule of keys alone leads to spans of the index of keys. A rule that compares fields leads to the members of
one field's index that have one of its values: these are in the order of keys, too. So a caller who may see
ten records of a million looks at ten, and no page is made of what others have.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from keylane.errors import OutsideScope, called
from keylane.ports import Call
from keylane.query.merged_index import MergedIndex
from keylane.state import redis_keys
from keylane.state.field_index import KEYS, FieldIndex
from keylane.state.ordered import END, up_to

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.query.merged_index import IndexKey
    from keylane.query.row_scopes import Permit, TopicScope
    from keylane.query.span import RangeScan, Span
    from keylane.query.store import Reading
    from keylane.state.lanes import Lane

MOST_SOURCES = 64
"""Spans of keys and values of fields by which one request reads: each is a part of every lane's index."""


class ScopedIndex:
    """As `MergedIndex`, of the keys that the rules may permit. `index_key`: that of the index of keys.

    `lanes`: those that an unscoped read asks. The answer is as fresh as that: all their watermarks are read.
    """

    def __init__(
        self, reading: Reading, scope: TopicScope, lanes: Sequence[Lane], scan: RangeScan, index_key: IndexKey
    ) -> None:
        _note_watermarks(reading, lanes)
        unscoped = frozenset(lanes)
        self.last: bytes | None = None
        self._sources: list[MergedIndex] = []
        for own, prefix, name in _sources_of(scope, scan.span, index_key):
            bounds = _bounds(own, scan.after, prefix)
            asked = [lane for lane in own.lanes(reading.layout) if lane in unscoped]
            self._sources.append(MergedIndex(reading, asked, name, bounds, scan.limit + 1, prefix))
            if len(self._sources) > MOST_SOURCES:
                raise OutsideScope(
                    f"the caller's rules for {called(reading.layout.topic)} have more than {MOST_SOURCES}"
                    " keys and values of fields: its keys can't be listed, but read one by one"
                )
        self._heap: list[tuple[bytes, int, Lane]] = []
        self._empty = list(range(len(self._sources)))

    def take(self, count: int) -> list[tuple[bytes, Lane]]:
        """Return the next keys in order with their lanes; fewer than `count` only at the end."""
        taken: list[tuple[bytes, Lane]] = []
        while len(taken) < count and self.has_more():
            key, number, lane = heappop(self._heap)
            self._empty.append(number)
            if key != self.last:  # several rules may lead to it
                taken.append((key, lane))
            self.last = key
        return taken

    def has_more(self) -> bool:
        """Return whether there is a next key. Reads on where it must."""
        empty, self._empty = self._empty, []
        for number in empty:
            for key, lane in self._sources[number].take(1):
                heappush(self._heap, (key, number, lane))
        return bool(self._heap)


def _sources_of(scope: TopicScope, span: Span, index_key: IndexKey) -> Iterator[tuple[Span, bytes, IndexKey]]:
    """Yield spans of keys, what members have before the keys, and what names the indexes they are in."""
    for permit in scope.permits:
        for own in permit.spans:
            common = own.common(span)
            if common is None:
                continue
            for form, number in _forms_of(permit):
                name = index_key if number is None else partial(redis_keys.field_index_key, number=number)
                yield common, b"" if number is None else form + END, name


def _bounds(span: Span, after: bytes | None, prefix: bytes) -> tuple[bytes, bytes]:
    """Return the bounds of ZRANGEBYLEX for the keys of a span behind what members have before them."""
    # The page before may have ended below this span.
    low, high = span.bounds(None if after is not None and after < span.low else after)
    if prefix:
        low = b"[" + prefix if low == b"-" else low[:1] + prefix + low[1:]
        high = b"(" + (up_to(prefix[:-1]) if high == b"+" else prefix + high[1:])
    return low, high


def exact_intervals(scope: TopicScope) -> list[tuple[FieldIndex, bytes, bytes]] | None:
    """Return indexes with bounds whose members are the permitted records, one for each; None without such.

    That is of one rule, which looks at one field at most, and at whole values of it.
    """
    if len(scope.permits) != 1:
        return None
    (permit,) = scope.permits
    indexes = [(KEYS, b"")]
    if permit.where:
        (of, *others) = permit.where
        if others or of.cut or (of.field.type.is_many and len(of.exact) > 1):
            return None
        index = FieldIndex(of.field.number, of.field.name, (of.field,))
        indexes = [(index, form + END) for form in sorted(of.exact)]
    if len(permit.spans) * len(indexes) > MOST_SOURCES:
        return None
    return [(index, *_bounds(span, None, prefix)) for index, prefix in indexes for span in permit.spans]


def _forms_of(permit: Permit) -> list[tuple[bytes, int | None]]:
    """Return the values by which a rule's records are found, with the numbers of their indexes."""
    if not permit.where:
        return [(b"", None)]
    least = min(permit.where, key=lambda each: len(each.forms))
    return [(form, least.field.number) for form in least.forms]


def _note_watermarks(reading: Reading, lanes: Sequence[Lane]) -> None:
    replies = reading.run([Call(lane.slot, (b"GET", lane.watermark_key)) for lane in lanes])
    for lane, watermark in zip(lanes, replies, strict=True):
        reading.watermarks.note(lane, watermark)
