"""Follows a stream of events, whichever driver reads it: where it is, and what to do when it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane_client.errors import KeylaneError
    from keylane_client.events import ServerEvent
    from keylane_client.retries import RetryPolicy
    from keylane_client.wire import ApiRequest, LiveStream

T = TypeVar("T")
FIRST_PAUSE_S = 0.1
SILENCE_S = 45.0
"""A server sends a comment every 15 s: one that is silent for that long is gone."""


class Follower(Generic[T]):
    """The state of one stream; `begin` is that of the polls before it."""

    def __init__(self, live: LiveStream[T], begin: Any, retries: RetryPolicy) -> None:
        self.state = begin
        self._live = live
        self._retries = retries
        self._failures = 0

    def request(self) -> ApiRequest:
        """Return the request that begins the stream, or resumes it."""
        return self._live.request(self.state)

    def take(self, event: ServerEvent) -> Sequence[T]:
        """Return the items that an event brings."""
        self._failures = 0
        step = self._live.take(event, self.state)
        self.state = step.next
        return step.items

    def is_refused(self, error: KeylaneError) -> bool:
        """Return whether the service has no stream, or not for this caller: polls will say what is wrong."""
        return not self._retries.is_transient(error)

    def pause_s(self, error: KeylaneError | None) -> float:
        """Return how long to wait before the next attempt. Raises the error after too many in a row."""
        if error is None:
            return FIRST_PAUSE_S  # the server is being stopped, or a proxy ends what takes long
        self._failures += 1
        if self._failures >= self._retries.attempts:
            raise error
        pause_s: float = FIRST_PAUSE_S * 2.0**self._failures
        return min(pause_s, self._retries.max_backoff_s)
