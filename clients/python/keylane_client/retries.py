"""When a request is sent again, and after how long. Tenacity carries it out for both drivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from tenacity import RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from keylane_client.errors import ProblemError, RateLimited, Unavailable, Unreachable

if TYPE_CHECKING:
    from tenacity.retry import retry_base
    from tenacity.stop import stop_base
    from tenacity.wait import WaitBaseT

    from keylane_client.wire import ApiRequest


class TenacityOptions(TypedDict):
    """What tenacity's `Retrying` and `AsyncRetrying` both take."""

    stop: stop_base
    wait: WaitBaseT
    retry: retry_base
    reraise: bool


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Up to `attempts` of each request that may be repeated: reads, and writes with an idempotency key.

    A wait is what `Retry-After` says, else random and growing up to `max_backoff_s`. An answer that asks for
    more than `max_retry_after_s` is an error at once: its `retry_after_s` says how long to wait.
    """

    attempts: int = 4
    max_backoff_s: float = 5.0
    max_retry_after_s: float = 30.0

    def options(self, request: ApiRequest) -> TenacityOptions:
        """Return tenacity's options for a request."""
        return {
            "stop": stop_after_attempt(self.attempts if request.is_repeatable else 1),
            "wait": self.wait_s,
            "retry": retry_if_exception(self.is_transient),
            "reraise": True,
        }

    def is_transient(self, error: BaseException) -> bool:
        """Return whether the same request may succeed soon."""
        if isinstance(error, (RateLimited, Unavailable)):
            return (error.retry_after_s or 0) <= self.max_retry_after_s
        return isinstance(error, Unreachable)

    def wait_s(self, state: RetryCallState) -> float:
        """Return how long to wait after a failed attempt."""
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, ProblemError) and error.retry_after_s is not None:
            return error.retry_after_s
        return wait_random_exponential(multiplier=0.1, max=self.max_backoff_s)(state)


NO_RETRIES = RetryPolicy(attempts=1)
"""Each request is sent once."""
