"""Reads the latest record of a key with its lane's freshness: one round trip where the layout is current."""

from collections.abc import Callable
from typing import NamedTuple

from keylane.errors import BadRequest, LaneBuilding, PositionNotReached, StateTooOld
from keylane.model.keys import check_key
from keylane.model.records import MAX_LANES, Answer, Layout, Position
from keylane.ports import Deadline
from keylane.query.lookup import answer_of, plan_lookup
from keylane.query.store import Reading, ReadTerms, Store, begin_reading, check_age, read_current
from keylane.query.strays import reached_offset
from keylane.state.lanes import decode_watermark, lane_in_partition, lane_of_key

_MIN_POSITION = "Keylane-Min-Position"
FIRST_PAUSE_S = 0.002
LAST_PAUSE_S = 0.010
FIRST_POLL_PAUSE_S = 0.005
LAST_POLL_PAUSE_S = 0.050
_PAUSE_SHARE = 1 / 8
"""A client that waits for a change waits long: a read every 50 ms is cheap, and nobody sees the delay."""


class Wait(NamedTuple):
    """What a read waits for, and how long.

    `min_position` must be in the state; a bare int is an offset of the key's own partition. It is waited for
    `position_ms` at most, and so is a lane that is still building. `is_known`: whether the caller has an
    answer's record already. For another record, and for a state that is young enough, `change_ms` are waited
    at most.
    """

    min_position: Position | int | None = None
    position_ms: float = 0
    is_known: Callable[[Answer], bool] | None = None
    change_ms: float = 0


NO_WAIT = Wait()


class _Began(NamedTuple):
    """When a read began, by both clocks."""

    monotonic_s: float
    ms: int


def read_latest(store: Store, topic: str, key: bytes, terms: ReadTerms, wait: Wait = NO_WAIT) -> Answer:
    """Read the latest record of a key; `record` is None where it is absent, which is an answer too.

    Each round of reads takes `terms.timeout_ms` at most. A record that is still known when the wait is over
    is returned as it is. Raises NullKey, TooLarge, BadRequest, UnknownTopic, LaneBuilding,
    PositionNotReached, StateTooOld, StateUnavailable, CorruptState.
    """
    check_key(key)
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    return read_key(begin_reading(store, topic, deadline), key, terms, wait)


def longest_pause_s(waited_s: float) -> float:
    """Return how long one may pause that waits for a position: one that is late is looked for less often."""
    return max(LAST_PAUSE_S, min(waited_s * _PAUSE_SHARE, LAST_POLL_PAUSE_S))


def read_key(reading: Reading, key: bytes, terms: ReadTerms, wait: Wait = NO_WAIT) -> Answer:
    """As `read_latest`; the reading is its first round."""
    check_key(key)
    if wait.min_position is None and wait.is_known is None and terms.max_age_ms is None:
        return _read(reading, key, terms)
    clock = reading.store.clock
    began = _Began(clock.monotonic_s(), clock.now_ms())
    pause_s = FIRST_POLL_PAUSE_S if wait.min_position is None else FIRST_PAUSE_S
    while True:
        not_yet: LaneBuilding | PositionNotReached | StateTooOld | None = None
        bound_ms, longest_s = wait.change_ms, LAST_POLL_PAUSE_S
        try:
            answer = _read_from(reading, key, terms, wait.min_position, began=began)
            check_age(answer, clock.now_ms(), terms.max_age_ms)
            if wait.is_known is None or not wait.is_known(answer):
                return answer
        except (LaneBuilding, PositionNotReached) as error:
            if wait.min_position is None:
                raise
            not_yet, bound_ms = error, wait.position_ms
            longest_s = longest_pause_s(clock.monotonic_s() - began.monotonic_s)
        except StateTooOld as error:
            not_yet = error
        left_s = began.monotonic_s + bound_ms / 1000 - clock.monotonic_s()
        if left_s <= 0 and not_yet:
            raise not_yet
        if left_s <= 0:
            return answer
        clock.await_s(min(pause_s, left_s))
        pause_s = min(pause_s * 2, longest_s)
        reading = reading.again(terms.timeout_ms)


def _read(reading: Reading, key: bytes, terms: ReadTerms, *, primary_only: bool = False) -> Answer:
    answer, reading = read_current(reading, _look_up, key, primary_only=primary_only)
    reading.watermarks.check_complete(partial=terms.partial)
    assert answer is not None  # noqa: S101 - for the type checker: its lane has a watermark
    return answer


def _look_up(reading: Reading, key: bytes, *, primary_only: bool) -> Answer | None:
    lookup = plan_lookup(reading.layout, key, reading.scope)
    reply = reading.store.state.read(lookup.slot, lookup.names, reading.deadline, primary_only=primary_only)
    answer = answer_of(lookup, reply, reading.expander())
    reading.watermarks.add(lookup.lane, answer and answer.watermark)
    return answer


def _read_from(
    reading: Reading, key: bytes, terms: ReadTerms, wanted: Position | int | None, *, began: _Began
) -> Answer:
    """As `_read`, from a state that has the position; raises PositionNotReached for one that has not."""
    store, topic, deadline = reading.store, reading.layout.topic, reading.deadline
    answer = _read(reading, key, terms)
    if wanted is None:
        return answer
    position = wanted if isinstance(wanted, Position) else Position(answer.partition, wanted)
    is_stray = position.partition != answer.partition
    next_offset = answer.watermark.next_offset
    if is_stray:
        is_current = answer.watermark.complete_as_of_ms >= began.ms
        next_offset = _next_offset(store, topic, key, position.partition, deadline, is_current=is_current)
    if is_stray and next_offset > position.offset:
        # It is written before the watermarks of its own partition move: its lane's primary has it by now. A
        # replica that lags behind may lack it, and its watermark would not say so.
        answer = _read(begin_reading(store, topic, deadline), key, terms, primary_only=True)
        # Unless a failover has taken it back.
        lane = lane_of_key(answer.layout, key)
        next_offset = reached_offset(begin_reading(store, topic, deadline), position.partition, [lane])
    if next_offset <= position.offset:
        waited_ms = round((store.clock.monotonic_s() - began.monotonic_s) * 1000)
        raise PositionNotReached(str(position), next_offset, waited_ms)
    return answer


def _next_offset(
    store: Store, topic: str, key: bytes, partition: int, deadline: Deadline, *, is_current: bool
) -> int:
    """Return the next offset of the lane with this partition and the key's stripe; 0 before it begins.

    A partition beyond the layout's count was added to the topic later: it has watermarks too, once the job
    has seen it. The job looks for new partitions before it says that a lane is complete. So one without
    watermarks does not exist if a lane `is_current`: complete as of a time after the read began. Until then
    it is waited for, unless the topic would have to have doubled for it.
    """
    if partition >= MAX_LANES:
        raise BadRequest(
            f"partition {partition} can't exist: topic {topic!r} has {MAX_LANES} partitions at most",
            _MIN_POSITION,
        )
    layout = store.layouts.get(topic, deadline)
    data, redis_key = _watermark_of(store, layout, partition, key, deadline)
    if data is None and _is_beyond(layout, partition, is_current=is_current):
        # The kept layout may be older than the topic's growth, and a replica than the job's last look.
        layout = store.layouts.refresh(topic, deadline)
        data, redis_key = _watermark_of(store, layout, partition, key, deadline, primary_only=True)
        if data is None and _is_beyond(layout, partition, is_current=is_current):
            raise BadRequest(
                f"topic {topic!r} has no partition {partition}: its last one is {layout.partition_count - 1}",
                _MIN_POSITION,
            )
    return 0 if data is None else decode_watermark(redis_key, data).next_offset


def _is_beyond(layout: Layout, partition: int, *, is_current: bool) -> bool:
    return partition >= layout.partition_count * (1 if is_current else 2)


def _watermark_of(
    store: Store,
    layout: Layout,
    partition: int,
    key: bytes,
    deadline: Deadline,
    *,
    primary_only: bool = False,
) -> tuple[bytes | None, bytes]:
    """Return the watermark record of the lane with this partition and the key's stripe, and its Redis key."""
    lane = lane_in_partition(layout, partition, key)
    (data,) = store.state.read(lane.slot, (lane.watermark_key,), deadline, primary_only=primary_only)
    return data, lane.watermark_key
