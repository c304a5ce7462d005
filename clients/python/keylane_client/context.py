"""What requests have in common: a client's options, a session's writes, and the terms of a topic's reads."""

import random
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from keylane_client.answers import HistoryEntry, Position, Record
from keylane_client.errors import (
    InvalidArgument,
    KeylaneError,
    ProblemError,
    RateLimited,
    Unavailable,
    Unreachable,
)
from keylane_client.json_text import parse_json
from keylane_client.models import to_model
from keylane_client.wire import (
    ApiRequest,
    ApiResponse,
    Conversation,
    Hook,
    Items,
    Key,
    Loads,
    Moment,
    Stream,
    advance,
    encode_key,
    encode_moment,
)

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")
_WITHOUT_VALUE = frozenset({"left-in-kafka", "null"})
_FIRST_BACKOFF_S, _MOST_DOUBLINGS = 0.1, 16


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Up to `attempts` of each request that may be repeated: reads, and writes with an idempotency key.

    A wait is what `Retry-After` says, else random and growing up to `max_backoff_s`. An answer that asks for
    more than `max_retry_after_s` is an error at once: its `retry_after_s` says how long to wait.
    """

    attempts: int = 4
    max_backoff_s: float = 5.0
    max_retry_after_s: float = 30.0

    def is_transient(self, error: BaseException) -> bool:
        """Return whether the same request may succeed soon; one that may have been done is not done again."""
        if isinstance(error, ProblemError) and error.is_uncertain:
            return False
        if isinstance(error, (RateLimited, Unavailable)):
            return (error.retry_after_s or 0) <= self.max_retry_after_s
        return isinstance(error, Unreachable)

    def wait_s(self, error: BaseException | None, attempt: int) -> float:
        """Return how long to wait after this attempt, counted from 1; `error`: how it failed."""
        if isinstance(error, ProblemError) and error.retry_after_s is not None:
            return error.retry_after_s
        longest_s = min(self.max_backoff_s, _FIRST_BACKOFF_S * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS))
        return random.uniform(0, longest_s)  # noqa: S311 (no secret)

    def repeat(self, steps: Generator[S, ApiResponse, T]) -> Generator[S | ApiRequest, ApiResponse, T]:
        """Return the conversation, or stream, with the attempts of each of its requests."""
        outcome: ApiResponse | KeylaneError | None = None
        while True:
            try:
                step = advance(steps, outcome)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            try:
                outcome = (yield from self._attempt(step)) if isinstance(step, ApiRequest) else (yield step)
            except KeylaneError as error:
                outcome = error

    def _attempt(self, request: ApiRequest) -> Conversation[ApiResponse]:
        attempt = 1
        while True:
            try:
                return (yield request)
            except KeylaneError as error:  # noqa: PERF203 (the next attempt is another)
                is_last = attempt >= self.attempts or not request.is_repeatable
                if is_last or not self.is_transient(error):
                    raise
                request = replace(request, delay_s=self.wait_s(error, attempt))
                attempt += 1


NO_RETRIES = RetryPolicy(attempts=1)
"""Each request is sent once."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """`timeout_s`: for one answer; a read may wait for 20 s, and API Gateway answers within 29 s.

    `idempotent_writes`: each write has an idempotency key of its own, so it can be sent again.

    The service needs an idempotency store for that. `loads` parses JSON: with `parse_exactly` no digit of a
    number is lost. `hooks`: each is entered around each request, the first one outermost; see `Exchange`.
    """

    timeout_s: float = 35.0
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    idempotent_writes: bool = False
    loads: Loads = parse_json
    hooks: Sequence[Hook] = ()


class Ledger:
    """The last position of each key that a session wrote: one entry for each key, for the session's life."""

    def __init__(self) -> None:
        self._positions: dict[str, dict[bytes, Position]] = {}

    def note(self, topic: str, key: Key, position: Position) -> None:
        """Remember a write. A later one in the same partition replaces it, and so does one in another."""
        written = self._positions.setdefault(topic, {})
        data = encode_key(key)
        known = written.get(data)
        if known is None or known.partition != position.partition or known.offset < position.offset:
            written[data] = position

    def position_of(self, topic: str, key: Key) -> Position | None:
        """Return the position that a read of the key must wait for."""
        return self._positions.get(topic, {}).get(encode_key(key))

    def missing(
        self, topic: str, is_wanted: Callable[[bytes], bool], watermarks: Mapping[int, int]
    ) -> list[tuple[bytes, Position]]:
        """Return the writes of wanted keys that an answer with these watermarks lacks, or may lack.

        One for each partition, the last: a read that waits for it has waited for those before it.
        """
        last: dict[int, tuple[bytes, Position]] = {}
        # A copy, which takes one step of the interpreter: threads may share a session, and write meanwhile.
        for key, position in self._positions.get(topic, {}).copy().items():
            is_later = position.partition not in last or last[position.partition][1] < position
            if is_wanted(key) and is_later and watermarks.get(position.partition, 0) <= position.offset:
                last[position.partition] = key, position
        return list(last.values())


@dataclass(frozen=True, slots=True)
class Context:
    """A client, or one of its sessions. `ledger`: the writes that reads must wait for; None for a client.

    `is_batching`: callers that ask at once, ask together.
    """

    options: ClientOptions
    ledger: Ledger | None = None
    is_batching: bool = False

    @property
    def loads(self) -> Loads:
        """What parses JSON."""
        return self.options.loads

    def write_headers(self, idempotency_key: str | None, *, is_async: bool) -> dict[str, str]:
        """Return the headers of a write; with an idempotency key of its own where the client wants one."""
        if idempotency_key is None and self.options.idempotent_writes:
            idempotency_key = str(uuid.uuid4())
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return {**headers, "Prefer": "respond-async"} if is_async else headers


@dataclass(frozen=True, slots=True)
class Terms:
    """Which answers a reader accepts, and how much of them; `as_of` reads an earlier moment."""

    fields: Sequence[str] = ()
    max_age: timedelta | None = None
    is_partial: bool = False
    has_headers: bool = False
    has_events: bool = False
    as_of: Moment | None = None

    def query(self) -> dict[str, str]:
        """Return the query parameters that all reads of records take."""
        query = {"fields": ",".join(self.fields)} if self.fields else {}
        if self.max_age is not None:
            query["max_age_ms"] = str(round(self.max_age.total_seconds() * 1000))
        if self.has_events:
            query["event"] = "true"
        return {**query, "partial": "true"} if self.is_partial else query

    def query_as_of(self) -> dict[str, str]:
        """Return `query`, with the moment."""
        return self.query() if self.as_of is None else {**self.query(), "as_of": encode_moment(self.as_of)}

    def require_now(self, what: str) -> None:
        """Raise InvalidArgument if these terms are of an earlier moment, for what has no such thing."""
        if self.as_of is not None:
            raise InvalidArgument(f"{what} has no `at`: it is about the latest state")


@dataclass(frozen=True, slots=True)
class TopicScope:
    """A topic, and how it is read. `model`: what its values are, None for what JSON has."""

    name: str
    context: Context
    terms: Terms = field(default_factory=Terms)
    model: type | None = None

    def shaped(self, found: R) -> R:
        """Return a record, or an entry of a history, with its JSON as the topic's model."""
        if self.model is None or not isinstance(found, (Record, HistoryEntry)):
            return found
        if found.value_format in _WITHOUT_VALUE:
            return found
        return replace(found, value=to_model(found.value, self.model))

    def shaped_stream(self, stream: Stream[R]) -> Stream[R]:
        """Return the stream with its items as `shaped` has them."""
        outcome: Any = None
        while True:
            try:
                step = advance(stream, outcome)
            except StopIteration:
                return
            try:
                outcome = yield Items(list(map(self.shaped, step.items))) if isinstance(step, Items) else step
            except KeylaneError as error:
                outcome = error
