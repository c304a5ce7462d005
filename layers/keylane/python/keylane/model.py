"""The words of Keylane as values. Pure: nothing here knows a server."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Self

_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether Kafka would take it as a topic's name."""
    return _TOPIC_NAME.fullmatch(name) is not None


MAX_LANES = 16384
"""Lanes of one topic: one hash slot each at least."""

_MAX_DIGITS = 18  # below 2**63 for sure


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a topic: what a write returns and what a read can ask for."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """`"3:1042"` -> Position(3, 1042). Raises ValueError, which says what is wrong."""
        partition, separator, offset = text.partition(":")
        if not separator or not _is_u63(partition) or not _is_u63(offset):
            raise ValueError(f"{text!r} is no position: it looks like partition:offset, as in 3:1042")
        return cls(int(partition), int(offset))


def _is_u63(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


@dataclass(frozen=True, slots=True)
class Layout:
    """How a topic lies in the cluster: what a reader must know to find a key."""

    topic: str
    partition_count: int
    stripes: int = 1
    partitioner: str = "murmur2"
    generation: int = 1
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """The latest record of a key as it lies in its lane.

    `partition` is the source partition: the key's own, unless the record is a stray.
    """

    key: bytes
    value: bytes
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def position(self) -> Position:
        """Where in the topic the record stands."""
        return Position(self.partition, self.offset)


@dataclass(frozen=True, slots=True)
class Watermark:
    """What a lane knows of itself.

    `next_offset`: everything below it is in the state.
    `newest_timestamp_ms`: the newest record's timestamp, 0 when there was none.
    `complete_as_of_ms`: a wall-clock time at which the lane held all that the broker had, 0 when never.
    """

    next_offset: int
    epoch: int
    newest_timestamp_ms: int = 0
    complete_as_of_ms: int = 0
    superseded: bool = False
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a read of one key found, with the freshness it was found at. `record` is None: absent."""

    layout: Layout
    partition: int
    record: Record | None
    watermark: Watermark

    def age_ms(self, now_ms: int) -> int:
        """A bound on staleness: nothing acknowledged longer ago than this is missing."""
        return max(0, now_ms - self.watermark.complete_as_of_ms)
