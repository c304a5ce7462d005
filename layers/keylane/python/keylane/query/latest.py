"""Reading a key: the latest record, with its lane's freshness, in one round trip where nothing is amiss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import (
    BadRequest,
    LaneBuilding,
    PositionNotReached,
    StateTooOld,
    UnknownTopic,
)
from keylane.model.keys import check_key
from keylane.model.records import MAX_LANES, Answer, Position
from keylane.ports import Deadline
from keylane.state import redis_keys
from keylane.state.lanes import decode_value, decode_watermark, lane_in_partition, lane_of_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.model.records import Layout
    from keylane.ports import Clock, State
    from keylane.query.layouts import Layouts

FIRST_PAUSE_S = 0.002
LAST_PAUSE_S = 0.010
FIRST_POLL_PAUSE_S = 0.005
LAST_POLL_PAUSE_S = 0.050
"""Who waits for a change has waited long: a read every 50 ms is cheap, and nobody sees the difference."""


def latest(
    state: State,
    layouts: Layouts,
    clock: Clock,
    topic: str,
    key: bytes,
    *,
    min_position: Position | int | None = None,
    max_age_ms: int | None = None,
    is_known: Callable[[Answer], bool] | None = None,
    wait_ms: float = 0,
    patience_ms: float = 0,
    timeout_ms: float = 1000,
    partial: bool = False,
) -> Answer:
    """Read the latest record of `key` and how fresh that is; absent is an answer too (`record` is None).

    `min_position` must be in the state first (a bare int is an offset of the key's own partition): it is
    waited for, `wait_ms` at most, and so is a lane that is being built; with `partial` what that has is
    answered as it is. For a state not older than `max_age_ms`, and for an answer that the caller does not
    know yet (`is_known`), `patience_ms` at most are waited. Each round of reads takes `timeout_ms` at most.
    Raises NullKey, TooLarge, BadRequest, UnknownTopic, LaneBuilding, PositionNotReached, StateTooOld,
    StateUnavailable, CorruptState.
    """
    check_key(key)
    if min_position is None and max_age_ms is None and is_known is None:
        deadline = Deadline.after_ms(timeout_ms, clock)
        return _answer(state, layouts, topic, key, deadline, partial=partial)
    began_s = clock.monotonic_s()
    pause_s = FIRST_POLL_PAUSE_S if min_position is None else FIRST_PAUSE_S
    while True:
        deadline = Deadline.after_ms(timeout_ms, clock)
        not_yet: LaneBuilding | PositionNotReached | StateTooOld | None = None
        bound_ms, longest_s = patience_ms, LAST_POLL_PAUSE_S
        try:
            answer = _answer(state, layouts, topic, key, deadline, partial=partial)
            if min_position is not None and not _has(
                state, layouts, answer, key, min_position=min_position, deadline=deadline, began_s=began_s
            ):
                answer = _answer(state, layouts, topic, key, deadline, partial=partial)
            _check_age(answer, clock, max_age_ms)
            if is_known is None or not is_known(answer):
                return answer
        except (LaneBuilding, PositionNotReached) as error:
            if min_position is None:
                raise
            not_yet, bound_ms, longest_s = error, wait_ms, LAST_PAUSE_S
        except StateTooOld as error:
            not_yet = error
        left_s = began_s + bound_ms / 1000 - clock.monotonic_s()
        if left_s <= 0 and not_yet:
            raise not_yet
        if left_s <= 0:
            return answer
        clock.pause_s(min(pause_s, left_s))
        pause_s = min(pause_s * 2, longest_s)


def _has(
    state: State,
    layouts: Layouts,
    answer: Answer,
    key: bytes,
    *,
    min_position: Position | int,
    deadline: Deadline,
    began_s: float,
) -> bool:
    """Whether the answer has the position; False: the state has it now, so ask again.

    Raises PositionNotReached.
    """
    wanted = _position(min_position, answer.partition)
    if wanted.partition == answer.partition:
        next_offset = answer.watermark.next_offset
        if next_offset > wanted.offset:
            return True
    else:
        # A stray of this key: it is written before its own partition's watermarks move.
        topic = answer.layout.topic
        next_offset = _next_offset(state, layouts, topic, key, partition=wanted.partition, deadline=deadline)
        if next_offset > wanted.offset:
            return False
    waited_ms = round((deadline.clock.monotonic_s() - began_s) * 1000)
    raise PositionNotReached(str(wanted), next_offset, waited_ms)


def _check_age(answer: Answer, clock: Clock, max_age_ms: int | None) -> None:
    if max_age_ms is None:
        return
    age_ms = None if answer.is_building else answer.age_ms(clock.now_ms())
    if age_ms is None or age_ms > max_age_ms:
        raise StateTooOld(age_ms, max_age_ms)


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
    partition = lane_of_key(layout, key).partition
    if answer is None:
        return LaneBuilding(layout.topic, partition, None)
    return LaneBuilding(layout.topic, partition, answer.watermark.next_offset, answer.watermark.log_end)


def _answer_by(state: State, layout: Layout, key: bytes, deadline: Deadline) -> Answer | None:
    """Read value and watermark in one atomic command; None where the lane has no watermark."""
    home = lane_of_key(layout, key)
    value_key = redis_keys.value_key(home.tag, layout.topic, layout.generation, key)
    value, mark = state.read(home.slot, (value_key, home.watermark_key), deadline)
    if mark is None:
        return None
    watermark = decode_watermark(home.watermark_key, mark)
    record = decode_value(value_key, key, value, home.partition)
    return Answer(layout, home.partition, record, watermark)


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
    home = lane_in_partition(layout, partition, key)
    (mark,) = state.read(home.slot, (home.watermark_key,), deadline)
    return 0 if mark is None else decode_watermark(home.watermark_key, mark).next_offset
