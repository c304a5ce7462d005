"""Reading one key of several topics at one moment: they lie in one hash slot where their layouts agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import BadRequest, UnknownTopic
from keylane.model.keys import check_key
from keylane.ports import Call, Deadline
from keylane.query.freshness import Watermarks
from keylane.state import redis_keys
from keylane.state.lanes import decode_value, lane_of_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.model.records import Answer, Layout
    from keylane.ports import Clock, State
    from keylane.query.layouts import Layouts

_MUST_AGREE = ("partition_count", "stripes", "partitioner", "partition_by")


def join(
    state: State,
    layouts: Layouts,
    clock: Clock,
    topics: Sequence[str],
    key: bytes,
    *,
    atomic: bool = True,
    max_age_ms: int | None = None,
    timeout_ms: float = 1000,
    partial: bool = False,
) -> list[Answer]:
    """Read the latest record of `key` in each topic, all by one command on one node.

    Without `atomic` they may be read one after the other while their slot moves to another node.
    Raises as `read.latest`, and BadRequest where the topics' layouts differ.
    """
    check_key(key)
    deadline = Deadline.after_ms(timeout_ms, clock)
    used = [layouts.get(topic, deadline) for topic in topics]
    fresh = False
    if _difference(used):
        used, fresh = [layouts.refresh(topic, deadline) for topic in topics], True
    _check_agree(used)
    found = _ask(state, used, key, deadline, atomic=atomic)
    if not fresh and any(marks.is_stale for _, marks in found):
        newer = [_newer(layouts, marks, deadline) if marks.is_stale else marks.layout for _, marks in found]
        if newer != used:
            _check_agree(newer)
            found = _ask(state, newer, key, deadline, atomic=atomic)
    for answer, marks in found:
        marks.check_whole(partial=partial)
        assert answer is not None  # noqa: S101 (a lane that has not begun was refused)
        marks.check_age(clock.now_ms(), max_age_ms)
    return [answer for answer, _ in found if answer is not None]


def _newer(layouts: Layouts, marks: Watermarks, deadline: Deadline) -> Layout:
    try:
        return layouts.refresh(marks.layout.topic, deadline)
    except UnknownTopic:
        # It was there a moment ago: the state is lost, and will be built anew.
        raise marks.building() from None


def _ask(
    state: State, layouts: Sequence[Layout], key: bytes, deadline: Deadline, *, atomic: bool
) -> list[tuple[Answer | None, Watermarks]]:
    """One command for all values, then all watermarks."""
    homes = [lane_of_key(layout, key) for layout in layouts]
    pairs = list(zip(layouts, homes, strict=True))
    names = [redis_keys.value_key(home.tag, layout.topic, layout.generation, key) for layout, home in pairs]
    words = (b"MGET", *names, *(home.watermark_key for home in homes))
    (reply,) = state.run([Call(homes[0].slot, words, atomic)], deadline)
    found: list[tuple[Answer | None, Watermarks]] = []
    for (layout, home), name, value, mark in zip(
        pairs, names, reply[: len(pairs)], reply[len(pairs) :], strict=True
    ):
        marks = Watermarks(layout)
        marks.note(home, mark)
        record = decode_value(name, key, value, home.partition)
        found.append((marks.answer(home, record) if mark is not None else None, marks))
    return found


def _difference(layouts: Sequence[Layout]) -> str | None:
    first = layouts[0]
    for other in layouts[1:]:
        for field in _MUST_AGREE:
            if getattr(first, field) != getattr(other, field):
                return (
                    f"topics {first.topic!r} and {other.topic!r} can't be joined: {field} is "
                    f"{getattr(first, field)!r} of the one and {getattr(other, field)!r} of the other"
                )
    return None


def _check_agree(layouts: Sequence[Layout]) -> None:
    difference = _difference(layouts)
    if difference:
        raise BadRequest(difference, "topics")
