"""The guards that a request to write must pass first: rate limits, idempotency keys; what readers expect."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from keylane.access.callers import SOURCES
from keylane.metrics.meter import NO_METER, Meter
from keylane.produce.rate_limits import RateLimits
from keylane.produce.topic_formats import TopicFormats


class Claimed(NamedTuple):
    """A request's claim on its idempotency key, and the saved response if the key has one."""

    token: bytes
    response: bytes | None


class IdempotencyStore(Protocol):
    """The saved responses of idempotency keys; `name` stands for a key and its caller."""

    def claim(self, name: str, fingerprint: bytes) -> Claimed:
        """Return the saved response, or claim the key for this request.

        Raises IdempotencyKeyReused, RequestInProgress, StateUnavailable.
        """

    def settle(self, name: str, token: bytes, response: bytes | None) -> None:
        """Save the response to the request that has the claim; None frees the key."""


@dataclass(frozen=True, slots=True)
class Guards:
    """Rate limits (None: none) and the store of idempotency keys (None: keys are rejected).

    `formats`: what readers expect of topics, None without a Redis.
    `caller`: what identifies a caller, tried in this order. `idempotency` makes the store when the first
    request with a key arrives. `meter` counts the records that a limit refuses.
    """

    caller: tuple[str, ...] = SOURCES
    limits: RateLimits | None = None
    idempotency: Callable[[], IdempotencyStore] | None = None
    meter: Meter = NO_METER
    formats: TopicFormats | None = None


NO_GUARDS = Guards()
