"""The records of several keys, and which of them are there: one command a lane, all shards at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keylane.ports import Call
from keylane.state import codec, redis_keys
from keylane.state.lanes import decode_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keylane.model.records import Record
    from keylane.ports import Deadline, State
    from keylane.query.freshness import Watermarks
    from keylane.state.lanes import Lane


def latest_of(
    state: State, marks: Watermarks, homes: Mapping[bytes, Lane], deadline: Deadline, *, atomic: bool = False
) -> dict[bytes, Record | None]:
    """Read the records of these keys, and note their lanes' watermarks: one command a lane."""
    by_home: dict[Lane, list[bytes]] = {}
    for key, home in homes.items():
        by_home.setdefault(home, []).append(key)
    layout = marks.layout
    calls = []
    for home, keys in by_home.items():
        prefix = redis_keys.value_key_prefix(home.tag, layout.topic, layout.generation)
        words = (b"MGET", *(prefix + key for key in keys), home.watermark_key)
        calls.append(Call(home.slot, words, atomic))
    records = {}
    for call, (home, keys), reply in zip(calls, by_home.items(), state.run(calls, deadline), strict=True):
        *values, mark = reply
        marks.note(home, mark)
        for where, key, value in zip(call.words[1:-1], keys, values, strict=True):
            records[key] = decode_value(where, key, value, home.partition)
    return records


def present(state: State, marks: Watermarks, homes: Mapping[bytes, Lane], deadline: Deadline) -> set[bytes]:
    """Which of these keys have a value, by first bytes alone; notes their lanes' watermarks."""
    layout = marks.layout
    lanes = list(dict.fromkeys(homes.values()))
    calls = [Call(home.slot, (b"GET", home.watermark_key)) for home in lanes]
    for key, home in homes.items():
        name = redis_keys.value_key(home.tag, layout.topic, layout.generation, key)
        calls.append(Call(home.slot, (b"GETRANGE", name, b"0", b"1")))
    replies = state.run(calls, deadline)
    for home, mark in zip(lanes, replies, strict=False):
        marks.note(home, mark)
    heads = dict(zip(homes, replies[len(lanes) :], strict=True))
    return {key for key, head in heads.items() if head and not (head[-1] & codec.TOMBSTONE and len(head) > 1)}
