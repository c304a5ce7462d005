"""What the client says and hears, without a network: requests, responses, and conversations of them.

A conversation is a generator: it yields a request, is sent the response, and returns its result. A driver
(`drivers`) carries it out, blocking or asynchronously, so the logic exists once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from keylane_client.events import ServerEvent

T = TypeVar("T")
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request. `path` is percent-encoded, and relative to the API's URL.

    `is_repeatable`: sent twice it does what it does once. `also_answers`: statuses besides 2xx that are
    answers and not errors. `delay_s`: how long to wait before it is sent.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    is_repeatable: bool = True
    also_answers: frozenset[int] = frozenset()
    delay_s: float = 0


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """One response; the names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Conversation = Generator[ApiRequest, ApiResponse, T]
"""A conversation whose result is a T."""


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """The items that one step of a stream brought, and where the next one begins; None at the end."""

    items: Sequence[T]
    next: Any | None


@dataclass(frozen=True, slots=True)
class LiveStream(Generic[T]):
    """Items that arrive as Server-Sent Events. `request` and `take` get what the step before returned."""

    request: Callable[[Any], ApiRequest]
    take: Callable[[ServerEvent, Any], Step[T]]


@dataclass(frozen=True, slots=True)
class Stream(Generic[T]):
    """Items that arrive step by step, such as the pages of a range: `step` takes where it begins.

    `live`: how the service may stream what follows the first step; where it does not, steps go on.
    """

    step: Callable[[Any], Conversation[Step[T]]]
    start: Any
    live: LiveStream[T] | None = None
