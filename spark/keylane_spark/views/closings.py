"""Which records of a view are late: where its closings cut a range of offsets.

Partitions have no common order, so the log alone does not say when a window was final. The writer decides it,
as a `Closing`: from these offsets on, records are late for windows that end by that event time.

1. The writer gives a closing to every lane.
2. Only then it decides by it, and lanes report windows as final by it (their event-time watermark).
3. Nothing more is decided before the lanes have passed it, so closings rise in offsets and in event time.

A lane that loses commits is filled again from the log. The closings that the other lanes have cut the range
that it reads: the same records are late again, and a window that was reported final ends as it was.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keylane.state.windows import Closing

Offsets = tuple[int, ...]
"""An offset of each partition."""

KEPT = 1000
"""Closings that a lane keeps, as in views.lua."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records that are late for the same windows, those that end by `watermark_ms`: [begin, end)."""

    begin: Offsets
    end: Offsets
    watermark_ms: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return sum(self.end) - sum(self.begin)

    def halves(self) -> "tuple[Stretch, Stretch]":
        """Return two stretches: half of each partition, or of the partitions if none has two offsets.

        The second is empty if there is one offset.
        """
        bounds = list(zip(self.begin, self.end, strict=True))
        middle = tuple((low + high) // 2 for low, high in bounds)
        if middle == self.begin:
            own = [partition for partition, (low, high) in enumerate(bounds) if low < high]
            first = frozenset(own[: (len(own) + 1) // 2])
            middle = tuple(
                high if partition in first else low for partition, (low, high) in enumerate(bounds)
            )
        return Stretch(self.begin, middle, self.watermark_ms), Stretch(middle, self.end, self.watermark_ms)

    def parts(self, count: int) -> "list[Stretch]":
        """Return at least so many stretches, in their order, or one for each offset if there are fewer."""
        parts = [self]
        while len(parts) < min(count, self.size):
            parts = [half for each in parts for half in (each.halves() if each.size > 1 else (each,))]
        return parts


def cut(begin: Offsets, end: Offsets, closings: Sequence[Closing], decided_ms: int = 0) -> list[Stretch]:
    """Return [begin, end) in stretches, in the order in which they are to be counted; never none.

    `closings`: in their order. `decided_ms`: an event time that was decided by at `begin`, whatever they say.
    """
    passed = _count_passed(begin, closings)
    watermark_ms = max(decided_ms, decided(begin, closings))
    found = []
    for closing in closings[passed:]:
        bounds = zip(_padded(closing, len(begin)), begin, end, strict=True)
        at = tuple(min(max(offset, low), high) for offset, low, high in bounds)
        if at != begin:
            found.append(Stretch(begin, at, watermark_ms))
            begin = at
        watermark_ms = max(watermark_ms, closing.watermark_ms)
    if begin != end or not found:
        found.append(Stretch(begin, end, watermark_ms))
    return found


def are_passed(offsets: Offsets, closings: Sequence[Closing]) -> bool:
    """Return whether these offsets have passed all closings; False while records are read again."""
    return _count_passed(offsets, closings) == len(closings)


def decided(offsets: Offsets, closings: Sequence[Closing]) -> int:
    """Return the event time of the last closing that these offsets have passed; 0: none."""
    passed = _count_passed(offsets, closings)
    return closings[passed - 1].watermark_ms if passed else 0


def merged(lists: Iterable[Sequence[Closing]]) -> list[Closing]:
    """Return the closings that any of the lists has, in their order."""
    by_watermark: dict[int, Closing] = {}
    for closings in lists:
        for closing in closings:
            by_watermark.setdefault(closing.watermark_ms, closing)
    return [by_watermark[watermark_ms] for watermark_ms in sorted(by_watermark)][-KEPT:]


def _count_passed(offsets: Offsets, closings: Sequence[Closing]) -> int:
    passed = len(closings)
    # From the end: most often it is the last one.
    while passed and not _has_passed(offsets, closings[passed - 1]):
        passed -= 1
    return passed


def _has_passed(offsets: Offsets, closing: Closing) -> bool:
    pairs = zip(offsets, _padded(closing, len(offsets)), strict=True)
    return all(offset >= own for offset, own in pairs)


def _padded(closing: Closing, partition_count: int) -> Offsets:
    return closing.offsets + (0,) * (partition_count - len(closing.offsets))
