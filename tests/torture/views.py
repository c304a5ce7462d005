"""Views under torture, by the log: counts of how often a key was set, and documents with poison among them.

`dated` has windows by a field of the value, `picky` a condition that fails on some values, and `late` windows
that no record may come late for. All keep the newest large value of each window.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.views import all_windows
from tests.torture.configurations import (
    COUNTS,
    DATED,
    DOCUMENTS,
    GAP_MS,
    PICKY,
    PLAIN,
    SESSIONS,
    WINDOW_MS,
    WINDOWS,
)
from tests.torture.stack import wait_until

from keylane.errors import KeylaneError
from keylane.query.span import Span
from keylane.query.store import ReadTerms
from keylane.query.views import describe_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.oracle import Log, Logged
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


_TIMEOUT_MS = 5_000
_LAST_MS = 253_402_300_799_999
_KINDS = 13
_SMALL_BYTES = 300
Window = tuple[bytes, int | None]
Windows = dict[Window, tuple[int, Any]]
"""Records and the newest value of `p`, by key and start."""


def document(text: bytes, serial: int, at_ms: int) -> bytes:
    """A value: mostly a JSON object with a time, a number and a text, at times one that views can't take."""
    # Not all of them are large: the views are read as a whole again and again.
    shown = text if serial % 10 == 0 else text[:_SMALL_BYTES]
    fields: dict[str, Any] = {"n": serial, "at": at_ms - serial % 5 * 400, "p": shown.decode()}
    match serial % _KINDS:
        case 0:
            return text
        case 1:
            fields["at"] = at_ms * 1_000_000  # in nanoseconds
        case 2:
            fields["n"] = "many"
        case 3:
            fields["at"] = "soon"
        case 4:
            del fields["at"]
        case 5:
            fields["n"] = -1
        case 6:
            del fields["p"]
    return json.dumps(fields).encode()


@dataclass(slots=True)
class Expected:
    """What a view has of the log. Which records are late depends on when they were read: it is not here."""

    windows: Windows = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _newest: dict[Window, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, view: str, key: bytes, record: Logged) -> None:
        """Add a record to its window, or to the counts of those that are in none."""
        fields = _fields(record.value)
        if view == PICKY:
            number = fields.get("n")
            if number is None or (isinstance(number, int) and number < 0):
                return
            if not isinstance(number, int):
                self.counts["failed"] += 1
                return
            at_ms, window = record.timestamp_ms, (key, None)
        else:
            at_ms = fields.get("at")
            if not isinstance(at_ms, int) or at_ms > _LAST_MS:
                self.counts["invalid"] += 1
                return
            window = key, at_ms - at_ms % WINDOW_MS
        self.counts["records"] += 1
        count, value = self.windows.get(window, (0, None))
        place = at_ms, record.partition, record.offset
        if "p" in fields and place > self._newest.get(window, (-1, 0, 0)):
            self._newest[window], value = place, fields["p"]
        self.windows[window] = count + 1, value


def _fields(value: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(value or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def expected(view: str, log: Log) -> Expected:
    """What the view must have of everything in the log."""
    found = Expected()
    for topic, key in list(log.keys):
        if topic == DOCUMENTS:
            for records in log.of(topic, key).records.values():
                for record in records:
                    if record.value is not None:
                        found.add(view, key, record)
    return found


def check_documents(view: str, log: Log, stack: TortureStack) -> list[str]:
    """Wait until the view has what the log says; returns what differs at the end."""
    wanted = expected(view, log)
    found: list[str] = []

    def is_equal() -> bool:
        try:
            found[:] = _differences(view, wanted, *_read(view, stack))
        except KeylaneError as error:
            found[:] = [f"view {view} can't be read: {error}"]
        return not found

    try:
        wait_until(is_equal, REACHED_WITHIN_S, f"view {view}")
    except TimeoutError:
        return list(found)
    return []


def _differences(view: str, wanted: Expected, windows: Windows, counts: Counter[str]) -> list[str]:
    """What a view has that the log does not say. Late records are in no window, and the others in one."""
    found = [
        f"view {view} has {counts[name]} {name} records, the log {wanted.counts[name]}"
        for name in ("invalid", "failed")
        if counts[name] != wanted.counts[name]
    ]
    records, late = wanted.counts["records"], counts["late"]
    total = sum(count for count, _ in windows.values()) + late
    if total != records:
        found.append(f"view {view} has {total} records, {late} of them late; the log {records}")
    if view == DATED and late:
        found.append(f"view {view} has {late} late records, and none comes an hour late")
    if not late:
        differing = (
            at for at in wanted.windows.keys() | windows.keys() if wanted.windows.get(at) != windows.get(at)
        )
        found += [
            f"view {view} has {_shown(windows.get(at))} of {at}, the log {_shown(wanted.windows.get(at))}"
            for at in differing
        ]
    return found


def _shown(window: tuple[int, Any] | None) -> str:
    return "nothing" if window is None else f"{window[0]} records, the newest {window[1]!r:.40}"


def _read(view: str, stack: TortureStack) -> tuple[Windows, Counter[str]]:
    """The view's windows and counts as its readers see them. Raises KeylaneError."""
    windows: Windows = {}
    counts: Counter[str] = Counter()
    with stack.store() as store:
        for row in all_windows(store, view, ReadTerms(timeout_ms=_TIMEOUT_MS), limit=100):
            columns = json.loads(row.columns)
            windows[row.key, row.start_ms] = columns["n"], columns["p"]
        for lane in describe_view(store, view, _TIMEOUT_MS).lanes:
            if lane.progress is not None:
                counts.update(
                    late=lane.progress.late, invalid=lane.progress.invalid, failed=lane.progress.failed
                )
    return windows, counts
