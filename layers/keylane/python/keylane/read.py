"""Reading a key: the latest record, with its lane's freshness, in one round trip where nothing is amiss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane import codec, routing
from keylane.errors import BadRequest, CorruptState, LaneBuilding, PositionNotReached, UnknownTopic
from keylane.keys import check_key, printable
from keylane.model import MAX_LANES, Answer, Position
from keylane.ports import Deadline

if TYPE_CHECKING:
    from keylane.model import Layout, Watermark
    from keylane.ports import Clock, State

FIRST_PAUSE_S = 0.002
LAST_PAUSE_S = 0.010


class Layouts:
    """The topics' layouts, each read once and kept for `ttl_s` seconds. Unknown topics aren't kept.

    One whose record vanished is kept for the rest of its time: the state was lost a moment ago, and the
    writer is about to build it anew.
    """

    def __init__(self, state: State, clock: Clock, ttl_s: float) -> None:
        self._state = state
        self._clock = clock
        self._ttl_s = ttl_s
        self._kept: dict[str, tuple[Layout, float]] = {}

    def get(self, topic: str, deadline: Deadline) -> Layout:
        """Give the topic's layout, not older than `ttl_s`. Errors as `refresh`."""
        kept = self._kept.get(topic)
        if kept is not None and self._clock.monotonic_s() < kept[1]:
            return kept[0]
        return self.refresh(topic, deadline)

    def refresh(self, topic: str, deadline: Deadline) -> Layout:
        """Read the topic's layout anew. Raises UnknownTopic, CorruptState, StateUnavailable."""
        key = codec.layout_key(topic)
        (data,) = self._state.read(routing.key_slot(key), [key], deadline)
        if data is None:
            raise UnknownTopic(topic)
        try:
            layout = codec.decode_layout(data)
            routing.check_partitioning(layout.partition_count, layout.partitioner)
            routing.slot_for(0, 0, layout.partition_count, layout.stripes)  # refuses more lanes than slots
        except ValueError as error:
            raise CorruptState(printable(key), str(error)) from error
        self._kept[topic] = (layout, self._clock.monotonic_s() + self._ttl_s)
        return layout


def latest(
    state: State,
    layouts: Layouts,
    clock: Clock,
    topic: str,
    key: bytes,
    *,
    min_position: Position | int | None = None,
    wait_ms: float = 0,
    timeout_ms: float = 1000,
    partial: bool = False,
) -> Answer:
    """Read the latest record of `key` and how fresh that is; absent is an answer too (`record` is None).

    `min_position` must be in the state first (a bare int is an offset of the key's own partition): it is
    waited for, `wait_ms` at most, and so is a lane that is being built; with `partial` what that has is
    answered as it is. Each round of reads takes `timeout_ms` at most.
    Raises NullKey, TooLarge, BadRequest, UnknownTopic, LaneBuilding, PositionNotReached, StateUnavailable,
    CorruptState.
    """
    check_key(key)
    began_s = clock.monotonic_s()
    pause_s = FIRST_PAUSE_S
    while True:
        deadline = Deadline.after_ms(timeout_ms, clock)
        not_yet: LaneBuilding | PositionNotReached
        try:
            answer = _answer(state, layouts, topic, key, deadline, partial=partial)
            if min_position is None:
                return answer
            wanted = _position(min_position, answer.partition)
            if wanted.partition == answer.partition:
                next_offset = answer.watermark.next_offset
                if next_offset > wanted.offset:
                    return answer
            else:
                # A stray of this key: it is written before its own partition's watermarks move.
                next_offset = _next_offset(
                    state, layouts, topic, key, partition=wanted.partition, deadline=deadline
                )
                if next_offset > wanted.offset:
                    return _answer(state, layouts, topic, key, deadline, partial=partial)
            waited_ms = round((clock.monotonic_s() - began_s) * 1000)
            not_yet = PositionNotReached(str(wanted), next_offset, waited_ms)
        except LaneBuilding as building:
            if min_position is None:
                raise
            not_yet = building
        left_s = began_s + wait_ms / 1000 - clock.monotonic_s()
        if left_s <= 0:
            raise not_yet
        clock.pause_s(min(pause_s, left_s))
        pause_s = min(pause_s * 2, LAST_PAUSE_S)


def _position(wanted: Position | int, partition: int) -> Position:
    return wanted if isinstance(wanted, Position) else Position(partition, wanted)


def _answer(
    state: State, layouts: Layouts, topic: str, key: bytes, deadline: Deadline, *, partial: bool
) -> Answer:
    """Read by the cached layout, and once more by a newer one where the lane says that there may be one.

    A lane that is superseded while the layout record still names its generation is answered as it is: the
    switch is under way, and nobody has seen the next generation yet.
    """
    layout = layouts.get(topic, deadline)
    answer = _answer_by(state, layout, key, deadline)
    if answer is None or answer.watermark.superseded:
        try:
            newer = layouts.refresh(topic, deadline)
        except UnknownTopic:
            # It was there a moment ago: the state is lost, and will be built anew.
            raise _building(layout, key, None) from None
        if newer.generation != layout.generation:
            layout, answer = newer, _answer_by(state, newer, key, deadline)
    if answer is None or (answer.is_building and not partial):
        raise _building(layout, key, answer)
    return answer


def _building(layout: Layout, key: bytes, answer: Answer | None) -> LaneBuilding:
    partition = routing.partition_for(key, layout.partition_count, layout.partitioner)
    if answer is None:
        return LaneBuilding(layout.topic, partition, None)
    return LaneBuilding(layout.topic, partition, answer.watermark.next_offset, answer.watermark.log_end)


def _answer_by(state: State, layout: Layout, key: bytes, deadline: Deadline) -> Answer | None:
    """Read value and watermark in one atomic command; None where the lane has no watermark."""
    partition = routing.partition_for(key, layout.partition_count, layout.partitioner)
    slot, tag, mark_key = _lane(layout, partition, key)
    value_key = codec.value_key(tag, layout.topic, layout.generation, key)
    value, mark = state.read(slot, (value_key, mark_key), deadline)
    if mark is None:
        return None
    watermark = _watermark(mark_key, mark)
    if value is None:
        return Answer(layout, partition, None, watermark)
    try:
        record = codec.decode_record(key, value, partition)
    except codec.CodecError as error:
        raise CorruptState(printable(value_key), str(error)) from error
    return Answer(layout, partition, record, watermark)


def _next_offset(
    state: State, layouts: Layouts, topic: str, key: bytes, *, partition: int, deadline: Deadline
) -> int:
    """How far the lane of `partition` is that has the key's own stripe number (0: not begun).

    A partition beyond the layout's is one by which the topic has grown: it has watermarks too.
    """
    if partition >= MAX_LANES:
        raise BadRequest(
            f"partition {partition} is none of topic {topic!r}: {MAX_LANES} at most are served",
            "min_position",
        )
    layout = layouts.get(topic, deadline)
    slot, _, mark_key = _lane(layout, partition, key)
    (mark,) = state.read(slot, (mark_key,), deadline)
    return 0 if mark is None else _watermark(mark_key, mark).next_offset


def _lane(layout: Layout, partition: int, key: bytes) -> tuple[int, bytes, bytes]:
    """Hash slot, hash tag and watermark's key of the lane of `partition` with the key's stripe number."""
    stripe = routing.stripe_for(key, layout.stripes)
    home = partition % layout.partition_count
    slot = routing.slot_for(home, stripe, layout.partition_count, layout.stripes)
    tag = routing.hash_tag(slot)
    return slot, tag, codec.watermark_key(tag, layout.topic, layout.generation, partition, stripe)


def _watermark(key: bytes, data: bytes) -> Watermark:
    try:
        return codec.decode_watermark(data)
    except codec.CodecError as error:
        raise CorruptState(printable(key), str(error)) from error
