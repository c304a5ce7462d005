"""Parts of windows into the windows that a lane has: what a commit changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from keylane.state.aggregates import merged
from keylane.state.windows import encode_window, is_final, split, window_key
from keylane_spark.adapters.view_lanes import Changes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from keylane.state.windows import Definition
    from keylane_spark.views.partials import Part

Window = tuple[int | None, list[Any]]
"""Its end and the states of its columns."""


class Windows(Protocol):
    """The windows that a lane has."""

    def windows(self, names: Sequence[bytes]) -> dict[bytes, Window]:
        """Those of these window keys that there are."""

    def around(self, spans: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """Of each span of window keys those that there are, and the one before it."""


def changes_of(
    view: Definition, parts: Sequence[Part], there: Windows, watermark_ms: int
) -> tuple[Changes, int]:
    """What these parts change, and how many of their records are late: of windows that are final.

    A window is final once the event-time watermark has reached its end; it does not change from then on.
    """
    open_parts = [part for part in parts if not is_final(part.end_ms, watermark_ms)]
    late = sum(part.records for part in parts) - sum(part.records for part in open_parts)
    if view.is_session:
        changes, too_late = _sessions(view, open_parts, there, watermark_ms)
        return changes, late + too_late
    return Changes(_fixed(view, open_parts, there)), late


def _fixed(view: Definition, parts: Sequence[Part], there: Windows) -> dict[bytes, bytes]:
    named = [(window_key(part.key or b"", part.start_ms), part) for part in parts]
    found = there.windows(list(dict.fromkeys(name for name, _ in named)))
    for name, part in named:
        known = found.get(name)
        states = merged(view.columns, known[1], part.states) if known else part.states
        found[name] = part.end_ms, states
    return {name: encode_window(*window) for name, window in found.items()}


def _sessions(
    view: Definition, parts: Sequence[Part], there: Windows, watermark_ms: int
) -> tuple[Changes, int]:
    """A part joins all open sessions of its key that it overlaps; they become one."""
    spans = [
        (window_key(part.key or b"", part.start_ms), window_key(part.key or b"", part.end_ms or 0))
        for part in parts
    ]
    stored = there.windows(there.around(spans))
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
    for part in sorted(parts, key=lambda each: each.start_ms):
        key, start_ms, end_ms, states = part.key or b"", part.start_ms, part.end_ms or 0, part.states
        others = []
        for session in sessions.get(key, []):
            if session[0] < end_ms and session[1] > start_ms:
                start_ms, end_ms = min(start_ms, session[0]), max(end_ms, session[1])
                states = merged(view.columns, session[2], states)
                touched.add(window_key(key, session[0]))
            else:
                others.append(session)
        name = window_key(key, start_ms)
        if name in final:
            late += part.records
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
