"""Strays: what partitions gave to other lanes than their own, and what these lanes have taken.

A stray is in the lane of its key before the watermarks of its own partition move. The partition's first lane
notes up to which offset it gave strays to each lane, and that lane up to where it has taken them. A failover
that loses writes takes strays and the note of them back together. Then the lane has taken less than it was
given, until the job has read these records again, and its own watermark says nothing of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.ports import Call
from keylane.state.lanes import given_key, lane_at, strays_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from keylane.model.records import Layout
    from keylane.query.store import Reading
    from keylane.state.lanes import Lane


def read_taken(layout: Layout, lane: Lane) -> Call:
    """Return the call that reads of which partitions the lane has strays, for `parse_taken`."""
    return Call(lane.slot, (b"HGETALL", strays_key(layout, lane)))


def parse_taken(reply: Sequence[bytes]) -> dict[int, int]:
    """Return source partition -> offset below which all strays of it are in the lane."""
    offsets = map(int, reply)
    return dict(zip(offsets, offsets, strict=True))


def read_given(
    reading: Reading, giving: Iterable[int], lanes: Collection[Lane], *, primary_only: bool = False
) -> dict[Lane, dict[int, int]]:
    """Return up to which offset these partitions gave strays to each lane, without those that got none.

    Notes the watermarks of the partitions' first lanes: what a partition gave below that is in the answer, of
    a replica, too. Raises StateUnavailable, CorruptState.
    """
    layout = reading.layout
    firsts = [lane_at(layout, partition, 0) for partition in giving]
    names = [str(lane).encode() for lane in lanes]
    calls = [
        Call(first.slot, words)
        for first in firsts
        for words in ((b"GET", first.watermark_key), (b"HMGET", given_key(layout, first), *names))
    ]
    replies = iter(reading.store.state.run(calls, reading.deadline, primary_only=primary_only))
    given: dict[Lane, dict[int, int]] = {}
    for first, watermark, noted in zip(firsts, replies, replies, strict=True):
        reading.watermarks.note(first, watermark)
        for lane, to in zip(lanes, noted, strict=True):
            if to is not None:
                given.setdefault(lane, {})[first.partition] = int(to)
    return given


def has_taken(taken: Mapping[int, int], given: Mapping[int, int]) -> bool:
    """Return whether a lane has all strays that it was given; both are offsets by source partition."""
    return all(taken.get(source, 0) >= to for source, to in given.items())


def reached_offset(reading: Reading, partition: int, lanes: Collection[Lane]) -> int:
    """Return the offset below which these lanes have all that a partition is to give them.

    The reading is for that alone. Raises as `read_given`.
    """
    given = read_given(reading, [partition], lanes)
    if partition not in reading.watermarks.next_offsets:  # a replica may not know one that was added
        given = read_given(reading, [partition], lanes, primary_only=True)
    reached = reading.watermarks.next_offsets.get(partition, 0)
    calls = [read_taken(reading.layout, lane) for lane in given]
    replies = reading.store.state.run(calls, reading.deadline, primary_only=True) if calls else []
    for own, reply in zip(given.values(), replies, strict=True):
        taken = parse_taken(reply)
        if not has_taken(taken, own):
            reached = min(reached, taken.get(partition, 0))
    return reached
