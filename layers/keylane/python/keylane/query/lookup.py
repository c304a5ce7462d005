"""The look-up of one key: what to ask of Redis, and what the reply says. No I/O.

Every read of a key goes by this plan and this answer, whoever sends it: `read_latest` for any request on both
hosts, and the server's fast path, which sends the plans of plain requests from its loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from keylane.model.records import Answer
from keylane.state.lanes import decode_value, decode_watermark, lane_of_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.model.records import Layout
    from keylane.state.codec import Expand
    from keylane.state.lanes import Lane


class Lookup(NamedTuple):
    """What to ask for a record's key: the values of `names`, by one atomic command, of its lane's slot."""

    layout: Layout
    lane: Lane
    key: bytes

    @property
    def slot(self) -> int:
        """The lane's hash slot."""
        return self.lane.slot

    @property
    def names(self) -> tuple[bytes, bytes]:
        """The Redis keys of the record and of its lane's watermark."""
        return self.lane.value_prefix + self.key, self.lane.watermark_key


def plan_lookup(layout: Layout, key: bytes) -> Lookup:
    """Return what to ask for a key by a layout, which must be valid."""
    return Lookup(layout, lane_of_key(layout, key), key)


def answer_of(lookup: Lookup, reply: Sequence[bytes | None], expand: Expand) -> Answer | None:
    """Return what the values of the look-up's names say; None where the lane has no watermark.

    The answer of a lane that is superseded, or that still builds, says so in its watermark. Raises
    CorruptState, and what `expand` does.
    """
    layout, lane, key = lookup
    value, data = reply
    watermark = None if data is None else decode_watermark(lane.watermark_key, data)
    record = decode_value(lane, key, value, expand)
    return None if watermark is None else Answer(layout, lane.partition, record, watermark)


def is_final(answer: Answer | None) -> bool:
    """Return whether an answer needs no newer layout, and comes from a lane that is complete."""
    return answer is not None and not answer.watermark.superseded and bool(answer.watermark.complete_as_of_ms)
