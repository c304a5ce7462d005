"""Pauses before restarts, for topics and views alike, and what an unexpected error is to the job."""

from __future__ import annotations

import re
import threading
import time
import traceback

from keylane.errors import KeylaneError, LaneBehind, Unavailable
from keylane_spark.context import JobContext
from keylane_spark.engine.session import REFUSALS, check_running, words_of

_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 10.0
_LONGEST_REASON = 300
_SAY_AGAIN_S = 60.0
_VARYING = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9][0-9,.]*")
"""What two lines about the same may differ in: ids of Spark's queries, and numbers."""


def _same(text: str) -> str:
    """What lines about the same have in common."""
    return _VARYING.sub("#", text)


class RecentLines:
    """What has been said within the last minute, and how often since: a log is for people. Thread-safe."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}
        self._unsaid = 0
        self._lock = threading.Lock()

    def is_new(self, text: str, now_s: float) -> bool:
        """Whether it is to be said, and is not one more time."""
        same = _same(text)
        with self._lock:
            self._said = {each: at_s for each, at_s in self._said.items() if now_s - at_s < _SAY_AGAIN_S}
            if same in self._said:
                self._unsaid += 1
                return False
            self._said[same] = now_s
            return True

    def take_unsaid(self) -> int:
        """How often something was not said since this was asked before."""
        count, self._unsaid = self._unsaid, 0
        return count


_traces = RecentLines()


class Unexpected(Unavailable):
    """Spark, a client or a bug has ended what now begins again."""


def unexpected(error: Exception) -> Unexpected:
    """Return the error to restart with; print the trace.

    A thread of the job must not end without a word: the job would live on without what the thread did.
    """
    words = words_of(error) if isinstance(error, REFUSALS) else str(error).partition("\n")[0]
    found = f"unexpected error: {type(error).__name__}: {words[:_LONGEST_REASON]}"
    print_trace(error, found)
    return Unexpected(found)


def print_trace(error: Exception, reason: str) -> None:
    """Print an error's trace, once a minute for each reason."""
    if _traces.is_new(reason, time.monotonic()):
        traceback.print_exception(error)


class RestartPauses:
    """Pauses that grow while restarts fail; a lane that is behind is repaired at once.

    `title` begins the line that pauses print, once a minute for each reason. What is served meanwhile prints
    by `say`.
    """

    def __init__(self, context: JobContext, stop: threading.Event, title: str = "") -> None:
        self._context = context
        self._stop = stop
        self._title = title
        self._pause_s = 0.0
        self._began_s = 0.0
        self._reasons, self._lines = RecentLines(), RecentLines()
        self._known: set[str] = set()
        """Why attempts have ended since one lasted for a minute."""
        self._is_repeating = False
        self._said: set[str] = set()
        self._said_before: set[str] = set()

    def say(self, text: str) -> None:
        """Print a line of an attempt: once a minute where each says it, and ends for a known reason."""
        same = _same(text)
        is_repeated = self._is_repeating and same in self._said_before
        self._said.add(same)
        if self._lines.is_new(text, self._context.clock.monotonic_s()) or not is_repeated:
            self._context.say(text)

    def begin(self) -> None:
        """Note that an attempt begins: one that lasts for long resets the pauses.

        Raises EngineEnded where no attempt can succeed.
        """
        check_running(self._context.spark)
        self._began_s = self._context.clock.monotonic_s()
        self._said_before, self._said = self._said, set()

    def pause(self, error: KeylaneError) -> None:
        """Wait until the next attempt, then take the current secrets."""
        lasted_s = self._context.clock.monotonic_s() - self._began_s
        if lasted_s > _LAST_PAUSE_S:
            self._pause_s = 0.0
        if lasted_s > _SAY_AGAIN_S:
            self._known.clear()
        if not isinstance(error, LaneBehind):
            self._pause_s = max(self._pause_s, _FIRST_PAUSE_S)
        self._say_reason(str(error))
        self._is_repeating = _same(str(error)) in self._known
        self._known.add(_same(str(error)))
        self._stop.wait(self._pause_s)
        self._pause_s = min(max(self._pause_s * 2, _FIRST_PAUSE_S), _LAST_PAUSE_S)
        self._context.broker.renew()

    def _say_reason(self, reason: str) -> None:
        if self._reasons.is_new(reason, self._context.clock.monotonic_s()):
            count = self._reasons.take_unsaid()
            others = f", after {count} restarts for known reasons" if count else ""
            self._context.say(f"{self._title}restarts in {self._pause_s:.0f} s{others}: {reason}")
