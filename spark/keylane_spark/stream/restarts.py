"""Pauses before restarts, for topics and views alike, and what an unexpected error is to the job."""

from __future__ import annotations

import threading
import traceback

from keylane.errors import KeylaneError, LaneBehind, Unavailable
from keylane_spark.context import JobContext
from keylane_spark.engine.session import check_running

_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 10.0
_LONGEST_REASON = 300


def unexpected(error: Exception) -> Unavailable:
    """Return the error to restart with after one of Spark's, of a client's, or a bug; print its trace.

    A thread of the job must not end without a word: the job would live on without what the thread did.
    """
    traceback.print_exception(error)
    reason = str(error).partition("\n")[0][:_LONGEST_REASON]
    return Unavailable(f"unexpected error: {type(error).__name__}: {reason}")


class RestartPauses:
    """Pauses that grow while restarts fail; a lane that is behind is repaired at once.

    `title` begins the line that each pause prints, for a view.
    """

    def __init__(self, context: JobContext, stop: threading.Event, title: str = "") -> None:
        self._context = context
        self._stop = stop
        self._title = title
        self._pause_s = 0.0
        self._began_s = 0.0

    def begin(self) -> None:
        """Note that an attempt begins: one that lasts for long resets the pauses.

        Raises EngineEnded where no attempt can succeed.
        """
        check_running(self._context.spark)
        self._began_s = self._context.clock.monotonic_s()

    def pause(self, error: KeylaneError) -> None:
        """Wait until the next attempt, then take the current secrets."""
        if self._context.clock.monotonic_s() - self._began_s > _LAST_PAUSE_S:
            self._pause_s = 0.0
        if not isinstance(error, LaneBehind):
            self._pause_s = max(self._pause_s, _FIRST_PAUSE_S)
        self._context.say(f"{self._title}restarts in {self._pause_s:.0f} s: {error}")
        self._stop.wait(self._pause_s)
        self._pause_s = min(max(self._pause_s * 2, _FIRST_PAUSE_S), _LAST_PAUSE_S)
        self._context.broker.renew()
