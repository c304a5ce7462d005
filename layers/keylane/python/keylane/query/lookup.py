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
    from keylane.query.row_scopes import TopicScope
    from keylane.state.codec import Expand
    from keylane.state.lanes import Lane


class Lookup(NamedTuple):
    """What to ask for a record's key: the values of `names`, by one atomic command, of its lane's slot.

    `rules`: those of the caller, None for one who may read all. `is_asked`: whether they have the key; one
    that they have not does not exist for the caller, and the watermark alone is asked for.
    """

    layout: Layout
    lane: Lane
    key: bytes
    rules: TopicScope | None = None
    is_asked: bool = True

    @property
    def slot(self) -> int:
        """The lane's hash slot."""
        return self.lane.slot

    @property
    def names(self) -> tuple[bytes, ...]:
        """The Redis keys of the record, if it is asked for, and of its lane's watermark."""
        watermark = self.lane.watermark_key
        return (self.lane.value_prefix + self.key, watermark) if self.is_asked else (watermark,)


def plan_lookup(layout: Layout, key: bytes, rules: TopicScope | None = None) -> Lookup:
    """Return what to ask for a key by a layout, which must be valid, for a caller with these rules."""
    lane = lane_of_key(layout, key)
    return (
        Lookup(layout, lane, key) if rules is None else Lookup(layout, lane, key, rules, rules.has_key(key))
    )


def answer_of(lookup: Lookup, reply: Sequence[bytes | None], expand: Expand) -> Answer | None:
    """Return what the values of the look-up's names say; None where the lane has no watermark.

    The answer of a lane that is superseded, or that still builds, says so in its watermark. A record that the
    caller's rules do not permit is absent. Raises CorruptState, and what `expand` and the rules do.
    """
    layout, lane, key, rules, is_asked = lookup
    value, data = reply if is_asked else (None, *reply)
    watermark = None if data is None else decode_watermark(lane.watermark_key, data)
    record = decode_value(lane, key, value, expand)
    if watermark is None:
        return None
    # Keys that the rules have not are not asked for.
    if rules is not None and rules.judges_rows and record is not None and not rules.permits_record(record):
        record = None
    return Answer(layout, lane.partition, record, watermark)


def is_final(answer: Answer | None) -> bool:
    """Return whether an answer needs no newer layout, and comes from a lane that is complete."""
    return answer is not None and not answer.watermark.superseded and bool(answer.watermark.complete_as_of_ms)
