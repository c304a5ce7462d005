"""Views under torture: they count how often each key was set, and no trouble may change a count."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING

from tests.support.view_pages import all_windows
from tests.torture.configurations import COUNTS, GAP_MS, PLAIN, SESSIONS, WINDOW_MS, WINDOWS
from tests.torture.stack import wait_until

from keylane.errors import KeylaneError
from keylane.query.span import Span
from keylane.query.store import ReadTerms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.oracle import Log
    from tests.torture.reading import Seen
    from tests.torture.stack import TortureStack

REACHED_WITHIN_S = 120
Counts = dict[tuple[bytes, int | None, int | None], int]
"""Records by key, start and end of the window."""


def check_view(view: str, log: Log, stack: TortureStack, prefix: bytes) -> Iterator[str]:
    """Wait until the view has the counts of all keys with a prefix; yields what differs at the end."""
    wanted: Counts = {}
    for topic, key in list(log.keys):
        if topic == PLAIN and key.startswith(prefix):
            wanted |= {(key, *window): count for window, count in counted(view, log, key).items()}
    found: Counts | str = {}

    def is_equal() -> bool:
        nonlocal found
        found = counts(view, stack, prefix)
        return found == wanted

    try:
        wait_until(is_equal, REACHED_WITHIN_S, f"view {view}")
    except TimeoutError:
        if isinstance(found, str):
            yield f"view {view} can't be read: {found}"
            return
        for window in wanted.keys() | found.keys():
            if wanted.get(window) != found.get(window):
                yield f"view {view} has {found.get(window)} of {window}, the log {wanted.get(window)}"


def counted(view: str, log: Log, key: bytes) -> Counter[tuple[int | None, int | None]]:
    """What the log has of a key, by the windows of a view."""
    records = itertools.chain.from_iterable(log.of(PLAIN, key).records.values())
    return COUNTED[view]([record.timestamp_ms for record in records if record.value is not None])


def check_counts(
    now: Seen, before: Seen | None, in_the_end: Counter[tuple[int | None, int | None]]
) -> Iterator[str]:
    """No window of fixed bounds has more than the log in the end, or less than the same reader saw before."""
    assert now.counts is not None
    if now.view == SESSIONS:
        if sum(now.counts.values()) > in_the_end.total():
            yield f"view {now.view} counts {now.counts}, more than the log has"
        return
    for window, count in now.counts.items():
        if count > in_the_end[window]:
            yield f"view {now.view} has {count} of {window}, the log has {in_the_end[window]} in the end"
    for window, count in (before.counts if before and before.counts else {}).items():
        if count > now.counts.get(window, 0):
            yield f"view {now.view} had {count} of {window}, then {now.counts.get(window)}"


def _in_all(times_ms: list[int]) -> Counter[tuple[int | None, int | None]]:
    return Counter([(None, None)] * len(times_ms))


def _in_windows(times_ms: list[int]) -> Counter[tuple[int | None, int | None]]:
    starts = (time_ms - time_ms % WINDOW_MS for time_ms in times_ms)
    return Counter((start, start + WINDOW_MS) for start in starts)


def _in_sessions(times_ms: list[int]) -> Counter[tuple[int | None, int | None]]:
    """A session ends once there was no record for the length of the gap."""
    found: Counter[tuple[int | None, int | None]] = Counter()
    begin = count = last = 0
    for time_ms in sorted(times_ms):
        if count and time_ms >= last + GAP_MS:
            found[begin, last + GAP_MS] = count
            count = 0
        begin, count, last = (begin if count else time_ms), count + 1, time_ms
    if count:
        found[begin, last + GAP_MS] = count
    return found


COUNTED = {COUNTS: _in_all, WINDOWS: _in_windows, SESSIONS: _in_sessions}


def counts(view: str, stack: TortureStack, prefix: bytes) -> Counts | str:
    """The windows of keys with a prefix, as a reader sees them; or why it can't."""
    try:
        with stack.store() as store:
            return {
                (window.key, window.start_ms, window.end_ms): json.loads(window.columns)["n"]
                for window in all_windows(store, view, ReadTerms(timeout_ms=5000), Span.of_prefix(prefix))
            }
    except KeylaneError as error:
        return str(error)
