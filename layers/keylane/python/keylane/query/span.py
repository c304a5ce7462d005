"""A span of keys in bytewise order, and a page of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from keylane import routing
from keylane.state.lanes import lane_of_partition_key, lanes_of_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.model.records import Layout
    from keylane.state.lanes import Lane


@dataclass(frozen=True, slots=True)
class Span:
    """Keys from `low` on and below `high` (None: to the end), in bytewise order."""

    low: bytes = b""
    high: bytes | None = None

    @classmethod
    def of_prefix(cls, prefix: bytes) -> Self:
        """Return the span of all keys that begin with the prefix."""
        trimmed = prefix.rstrip(b"\xff")
        return cls(prefix, trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else None)

    def has(self, key: bytes) -> bool:
        """Return whether the key is one of the span."""
        return self.low <= key and (self.high is None or key < self.high)

    def common(self, other: Span) -> Span | None:
        """Return the span of the keys that are in both; None where no key can be."""
        low = max(self.low, other.low)
        highs = [high for high in (self.high, other.high) if high is not None]
        high = min(highs, default=None)
        return None if high is not None and high <= low else Span(low, high)

    def bounds(self, after: bytes | None) -> tuple[bytes, bytes]:
        """Return the bounds of ZRANGEBYLEX for the span's keys that come after `after`."""
        low = b"(" + after if after is not None else b"[" + self.low if self.low else b"-"
        return low, b"+" if self.high is None else b"(" + self.high

    def partition_key(self, partition_by: str) -> bytes | None:
        """Return the partition key that all keys of the span share; None where they may differ."""
        separator = routing.separator_of(partition_by)
        if not separator or separator not in self.low or self.high is None:
            return None
        part = routing.partition_key(self.low, partition_by)
        end = Span.of_prefix(part + separator).high
        return part if end is not None and self.high <= end else None

    def lanes(self, layout: Layout) -> list[Lane]:
        """Return the lanes that may hold keys of the span: one where its keys share a partition key."""
        part = self.partition_key(layout.partition_by)
        return lanes_of_topic(layout) if part is None else [lane_of_partition_key(layout, part)]


@dataclass(frozen=True, slots=True)
class RangeScan:
    """A page of a span of keys: those after `after`, at most `limit`.

    `keys_only`: without their records. `as_of_ms`: their records as of that time. `is_wanted`: which of the
    keys are read at all, None for all.
    """

    span: Span
    limit: int
    after: bytes | None = None
    keys_only: bool = False
    as_of_ms: int | None = None
    is_wanted: Callable[[bytes], bool] | None = None
