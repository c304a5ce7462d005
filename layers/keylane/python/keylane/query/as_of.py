"""A key's history: the records of a time, and the one that was in force at a moment.

A history is ordered by timestamp, and within one by offset. What it no longer holds is told, never guessed:
by count everything is there until it is full; by age all that is younger, and the newest of what is older.
What Kafka had lost before the state was built was never in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.errors import CorruptState, HistoryTooShort, TooLarge
from keylane.model.keys import printable
from keylane.ports import Call
from keylane.state import codec, redis_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.model.records import HistoryEntry, Layout, Position, Record
    from keylane.ports import Deadline, State
    from keylane.query.freshness import Watermarks
    from keylane.state.lanes import Lane

SCANNED_AT_ONCE = 200


def in_force(
    state: State,
    marks: Watermarks,
    homes: Mapping[bytes, Lane],
    *,
    as_of_ms: int,
    now_ms: int,
    deadline: Deadline,
) -> dict[bytes, Record | HistoryTooShort | None]:
    """Of each key the record that was in force at a time by the records' timestamps.

    None: there was none then; HistoryTooShort: nobody knows. Notes the lanes' watermarks.
    """
    layout = marks.layout
    lanes = list(dict.fromkeys(homes.values()))
    names = {key: _name(layout, home, key) for key, home in homes.items()}
    calls = [Call(home.slot, (b"GET", home.watermark_key)) for home in lanes]
    for key, home in homes.items():
        newest = (b"ZREVRANGEBYSCORE", names[key], b"%d" % as_of_ms, b"-inf", b"LIMIT", b"0", b"1")
        calls += Call(home.slot, newest), Call(home.slot, (b"ZCARD", names[key]))
    replies = state.run(calls, deadline)
    for home, mark in zip(lanes, replies, strict=False):
        marks.note(home, mark)
    members = dict(zip(homes, replies[len(lanes) :: 2], strict=True))
    counts = dict(zip(homes, replies[len(lanes) + 1 :: 2], strict=True))
    lacking = [key for key in homes if not members[key]]
    oldest = _oldest(state, homes, names, [key for key in lacking if counts[key]], deadline)
    found: dict[bytes, Record | HistoryTooShort | None] = {}
    for key, home in homes.items():
        if members[key]:
            found[key] = _unless_expired(_decode(names[key], key, members[key][0], home), layout, as_of_ms)
            continue
        first_ms = oldest[key].timestamp_ms if key in oldest else None
        since_ms = _held_since_ms(layout, counts[key], first_ms, now_ms)
        is_unknown = since_ms is not None and as_of_ms < since_ms
        found[key] = HistoryTooShort(layout.topic, since_ms) if is_unknown and since_ms else None
    return found


def in_force_at(
    state: State,
    marks: Watermarks,
    key: bytes,
    home: Lane,
    *,
    position: Position,
    now_ms: int,
    deadline: Deadline,
) -> Record | HistoryTooShort | None:
    """The key's record that was in force when a partition's log stood at this offset, that one included.

    Timestamps may go back within a partition, so the whole history is looked through.
    """
    layout = marks.layout
    name = _name(layout, home, key)
    best: HistoryEntry | None = None
    oldest: HistoryEntry | None = None
    count = 0
    is_over = False
    while not is_over:
        members, is_over = _newest(
            state,
            marks,
            home,
            name,
            high=b"+inf",
            low=b"-inf",
            skip=count,
            count=SCANNED_AT_ONCE,
            deadline=deadline,
        )
        for member in members:
            oldest = _decode(name, key, member, home)
            at = oldest.position
            if at.partition == position.partition and at.offset <= position.offset:
                best = oldest if best is None or at > best.position else best
        count += len(members)
    if best is not None:
        return best.record
    since_ms = _held_since_ms(layout, count, oldest.timestamp_ms if oldest else None, now_ms)
    return None if since_ms is None else HistoryTooShort(layout.topic, since_ms)


def entries(
    state: State,
    marks: Watermarks,
    key: bytes,
    home: Lane,
    *,
    from_ms: int | None,
    to_ms: int | None,
    after: bytes | None,
    limit: int,
    most_bytes: int,
    deadline: Deadline,
) -> tuple[list[HistoryEntry], bytes | None]:
    """Newest first, those from `from_ms` on and before `to_ms` that come behind the place `after`.

    And the place where they ended, None where there is nothing behind. Tombstones are entries too.
    """
    name = _name(marks.layout, home, key)
    low = b"-inf" if from_ms is None else b"%d" % from_ms
    high = b"+inf" if to_ms is None else b"(%d" % to_ms
    if after is not None:
        high = b"%d" % int.from_bytes(after[:8], "big")
    found: list[bytes] = []
    seen = size_bytes = 0
    is_over = False
    while not is_over and len(found) <= limit and size_bytes <= most_bytes:
        count = min(limit + 1 - len(found), SCANNED_AT_ONCE)
        members, is_over = _newest(
            state, marks, home, name, high=high, low=low, skip=seen, count=count, deadline=deadline
        )
        seen += len(members)
        # Records of one timestamp may lie on both sides of the place.
        behind = [member for member in members if after is None or _place(member)[: len(after)] < after]
        found += behind
        size_bytes += sum(map(len, behind))
    kept = _within(found[:limit], most_bytes)
    return (
        [_decode(name, key, member, home) for member in kept],
        _place(kept[-1]) if len(kept) < len(found) else None,
    )


def _newest(
    state: State,
    marks: Watermarks,
    home: Lane,
    name: bytes,
    *,
    high: bytes,
    low: bytes,
    skip: int,
    count: int,
    deadline: Deadline,
) -> tuple[list[bytes], bool]:
    """Members newest first, and whether there are no more; fewer where they are too large together."""
    while True:
        words = (b"ZREVRANGEBYSCORE", name, high, low, b"LIMIT", b"%d" % skip, b"%d" % count)
        calls = [Call(home.slot, (b"GET", home.watermark_key)), Call(home.slot, words)]
        try:
            mark, members = state.run(calls, deadline)
        except TooLarge:
            if count == 1:
                raise
            count = max(1, count // 8)
            continue
        marks.note(home, mark)
        return members, len(members) < count


def _within(members: list[bytes], most_bytes: int) -> list[bytes]:
    """As many as fit, one at least."""
    size_bytes = 0
    for number, member in enumerate(members):
        size_bytes += len(member)
        if number and size_bytes > most_bytes:
            return members[:number]
    return members


def _place(member: bytes) -> bytes:
    """Where a member stands among its key's: timestamp, then what tells it from others of the same."""
    is_stray = len(member) > 9 and member[9] & codec.STRAY  # noqa: PLR2004 (the flags' byte; see codec)
    return member[10:18] + member[: 22 if is_stray else 18]


def _name(layout: Layout, home: Lane, key: bytes) -> bytes:
    return redis_keys.history_key(home.tag, layout.topic, layout.generation, key)


def _decode(name: bytes, key: bytes, member: bytes, home: Lane) -> HistoryEntry:
    try:
        return codec.decode_history_entry(key, member, home.partition)
    except codec.CodecError as error:
        raise CorruptState(printable(name), str(error)) from error


def _unless_expired(entry: HistoryEntry, layout: Layout, as_of_ms: int) -> Record | None:
    ttl_ms = layout.options.ttl_ms
    is_over = ttl_ms is not None and entry.timestamp_ms + ttl_ms <= as_of_ms
    return None if is_over else entry.record


def _oldest(
    state: State,
    homes: Mapping[bytes, Lane],
    names: Mapping[bytes, bytes],
    keys: list[bytes],
    deadline: Deadline,
) -> dict[bytes, HistoryEntry]:
    calls = [Call(homes[key].slot, (b"ZRANGE", names[key], b"0", b"0")) for key in keys]
    replies = state.run(calls, deadline) if calls else []
    return {
        key: _decode(names[key], key, members[0], homes[key])
        for key, members in zip(keys, replies, strict=True)
        if members
    }


def _held_since_ms(layout: Layout, count: int, oldest_ms: int | None, now_ms: int) -> int | None:
    """From when on the history tells all; None: it holds everything that the key ever was."""
    options = layout.options
    is_full = options.history_count is not None and count >= options.history_count
    horizon_ms = None if options.history_age_ms is None else now_ms - options.history_age_ms
    if oldest_ms is None:
        return horizon_ms
    is_cut = horizon_ms is not None and oldest_ms < horizon_ms
    return oldest_ms if is_full or is_cut else None
