"""Merges partial windows into the windows that a lane has: what a commit changes."""

from collections.abc import Sequence
from typing import Any

from keylane.state.aggregates import merge_states
from keylane.state.windows import Definition, encode_window, is_final, split, window_key
from keylane_spark.lanes.view_lanes import Changes, LaneWindows
from keylane_spark.views.partials import PartialWindow


def merge_partials(
    view: Definition, partials: Sequence[PartialWindow], stored: LaneWindows, watermark_ms: int
) -> tuple[Changes, int]:
    """What partial windows change, and how many of their records are late.

    A window is final once the event-time watermark has reached its end. Records for it are late and change
    nothing.
    """
    open_ = [partial for partial in partials if not is_final(partial.end_ms, watermark_ms)]
    late = sum(partial.records for partial in partials) - sum(partial.records for partial in open_)
    if view.is_session:
        changes, too_late = _merge_sessions(view, open_, stored, watermark_ms)
        return changes, late + too_late
    return Changes(_merge_fixed(view, open_, stored)), late


def _merge_fixed(
    view: Definition, partials: Sequence[PartialWindow], stored: LaneWindows
) -> dict[bytes, bytes]:
    named = [(window_key(partial.key or b"", partial.start_ms), partial) for partial in partials]
    found = stored.windows(list(dict.fromkeys(name for name, _ in named)))
    for name, partial in named:
        known = found.get(name)
        states = merge_states(view.columns, known[1], partial.states) if known else partial.states
        found[name] = partial.end_ms, states
    return {name: encode_window(*window) for name, window in found.items()}


def _merge_sessions(
    view: Definition, partials: Sequence[PartialWindow], lane: LaneWindows, watermark_ms: int
) -> tuple[Changes, int]:
    """Merge each partial session with all open sessions of its key that it overlaps into one."""
    spans = [
        (
            window_key(partial.key or b"", partial.start_ms),
            window_key(partial.key or b"", partial.end_ms or 0),
        )
        for partial in partials
    ]
    stored = lane.windows(lane.around(spans))
    sessions: dict[bytes, list[tuple[int, int, list[Any]]]] = {}
    final = set()
    for name, (end_ms, states) in stored.items():
        key, start_ms = split(name)
        if is_final(end_ms, watermark_ms):
            final.add(name)
        else:
            sessions.setdefault(key, []).append((start_ms, end_ms or 0, states))
    late = 0
    touched: set[bytes] = set()
    for partial in sorted(partials, key=lambda each: each.start_ms):
        key, start_ms, end_ms = partial.key or b"", partial.start_ms, partial.end_ms or 0
        states = partial.states
        others = []
        for session in sessions.get(key, []):
            if session[0] < end_ms and session[1] > start_ms:
                start_ms, end_ms = min(start_ms, session[0]), max(end_ms, session[1])
                states = merge_states(view.columns, session[2], states)
                touched.add(window_key(key, session[0]))
            else:
                others.append(session)
        name = window_key(key, start_ms)
        if name in final:
            late += partial.records
            continue
        sessions[key] = [*others, (start_ms, end_ms, states)]
        touched.add(name)
    written = {
        name: encode_window(end_ms, states)
        for key, those in sessions.items()
        for start_ms, end_ms, states in those
        if (name := window_key(key, start_ms)) in touched
    }
    return Changes(written, [name for name in stored if name in touched - written.keys()]), late
