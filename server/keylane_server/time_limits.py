"""Time limits of many waits, with one timer for all of them.

A timer for each wait is dear where most waits are short: `asyncio.timeout` around each body, and a timer
around each wait for Kafka's reports, took 25 of the 155 us that a push takes of the loop.
"""

import asyncio
import time
from typing import Protocol


class LimitedWait(Protocol):
    """What waits, and takes the news that its time is over."""

    def give_up(self) -> None:
        """End the wait."""


class TimeLimits:
    """Ends the waits that take too long, at most `look_s` late. For the loop's thread."""

    def __init__(self, look_s: float) -> None:
        self._look_s = look_s
        self._expires_s: dict[LimitedWait, float] = {}
        self._is_looking = False

    def begin(self, wait: LimitedWait, timeout_s: float) -> None:
        """Give a wait so much time from now on; `end` follows."""
        self._expires_s[wait] = time.monotonic() + timeout_s
        if not self._is_looking:
            self._look_later()

    def end(self, wait: LimitedWait) -> None:
        """Forget a wait that is over."""
        self._expires_s.pop(wait, None)

    def _look_later(self) -> None:
        self._is_looking = True
        asyncio.get_running_loop().call_later(self._look_s, self._look)

    def _look(self) -> None:
        now_s = time.monotonic()
        late = [wait for wait, expires_s in self._expires_s.items() if expires_s <= now_s]
        for wait in late:
            self.end(wait)
        self._is_looking = False
        if self._expires_s:
            self._look_later()
        for wait in late:
            wait.give_up()  # which may begin the next wait
