"""Callers that ask at once, ask together: what each of several callers asks leaves in one request.

A caller yields its part, `Together`. The driver collects the parts of one batch: those of one tick of an
event loop, and while two requests of the batch are under way; or, of threads, those of one millisecond. It is
sent what became of its part, or ALONE: then it asks by itself, and the error of one part is nobody else's.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from keylane_client import reads, writes
from keylane_client.answers import Record, WriteFailed, Written
from keylane_client.context import TopicScope
from keylane_client.errors import KeylaneError, ProblemError, Unavailable, Unreachable
from keylane_client.wire import ApiRequest, Conversation, Key, Together, advance
from keylane_client.writes import NewRecord

MOST_PARTS = reads.MAX_KEYS
WINDOW_S = 0.001
"""How long a thread waits for others before it asks."""
UNDER_WAY = 2
"""How many requests of a batch are under way at a time: meanwhile the next one grows."""
ALONE: Any = object()
"""What a part is sent whose caller has to ask by itself."""
_UNACKNOWLEDGED = 504
_NOT_WRITTEN = frozenset({*range(400, 500), 503})
"""Statuses after which nothing of a push was written. After 500, say, it may have been."""


def get(topic: TopicScope, key: Key) -> Conversation[Record | None]:
    """Read one key together with others; as `TopicCalls.get` without conditions."""
    found = yield from _ask(Together(("get", topic), partial(_get_all, topic), key, ALONE))
    if found is ALONE:
        return (yield from reads.read_key(topic, key, reads.KeyRead()))
    return found  # type: ignore[no-any-return]


def write(topic: TopicScope, record: NewRecord) -> Conversation[Written | None]:
    """Write one record together with others; None if its caller has to write it alone.

    Raises Unavailable for a record that may have been written, or whose newer one was.
    """
    interrupted = Unreachable("whoever sent this record with its own was interrupted: it may be written")
    found = yield from _ask(Together(("write", topic), partial(_write_all, topic), record, interrupted))
    if isinstance(found, WriteFailed):
        if not found.is_uncertain and not found.is_superseded:
            return None
        problem = {"type": "unacknowledged", "detail": found.message, "code": found.code}
        raise Unavailable(_UNACKNOWLEDGED, {**problem, "uncertain": found.is_uncertain}, {})
    return None if found is ALONE else found


def _ask(together: Together) -> Conversation[Any]:
    step: Any = together
    return (yield step)


def _get_all(topic: TopicScope, keys: Sequence[Key]) -> Conversation[Sequence[Any]]:
    if len(keys) == 1:
        return [ALONE]
    try:
        found = yield from _once(reads.read_many(topic, keys, atomic=False))
    except KeylaneError:
        return [ALONE] * len(keys)
    return [found[key] for key in keys]


def _write_all(topic: TopicScope, records: Sequence[NewRecord]) -> Conversation[Sequence[Any]]:
    if len(records) == 1:
        return [ALONE]
    try:
        return (yield from writes.push(topic, records, {}))
    except ProblemError as error:
        if error.is_uncertain or error.status not in _NOT_WRITTEN:
            raise
        return [ALONE] * len(records)


def _once(conversation: Conversation[Any]) -> Conversation[Any]:
    """Carry out a conversation without repetitions: whoever has to ask alone has some of its own."""
    outcome: Any = None
    while True:
        try:
            step = advance(conversation, outcome)
        except StopIteration as done:
            return done.value
        try:
            outcome = yield replace(step, is_repeatable=False) if isinstance(step, ApiRequest) else step
        except KeylaneError as error:
            outcome = error


@dataclass(eq=False)
class _Batch:
    """Parts that leave together. `ready`: set once there are results, or the error of all."""

    first: Together
    ready: Any
    parts: list[Any] = field(default_factory=list)
    full: threading.Event = field(default_factory=threading.Event)
    is_sent: bool = False
    results: Sequence[Any] = ()
    error: KeylaneError | None = None

    def send(self) -> Conversation[Sequence[Any]]:
        """Ask all parts."""
        self.is_sent = True
        return self.first.ask(self.parts)

    def result(self, index: int, step: Together) -> Any:
        """Return what became of a part, or the error of all; else whoever asked was interrupted."""
        if self.error is not None:
            return self.error
        if self.results:
            return self.results[index]
        return step.interrupted if self.is_sent else ALONE


class _Batches:
    """The batches of a driver that take further parts."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Batch] = {}

    def _join(self, step: Together, make_event: Callable[[], Any]) -> tuple[_Batch, int]:
        """Add a part; return its batch, and its index in it. The one of the first part sends the batch."""
        batch = self._open.get(step.batch)
        if batch is None:
            batch = self._open[step.batch] = _Batch(step, make_event())
        batch.parts.append(step.part)
        if len(batch.parts) >= MOST_PARTS:
            self._close(batch)
        return batch, len(batch.parts) - 1

    def _close(self, batch: _Batch) -> None:
        """Let no further part into a batch."""
        if self._open.get(batch.first.batch) is batch:
            del self._open[batch.first.batch]
            batch.full.set()


class BlockingBatches(_Batches):
    """The batches of a driver's threads. `run`: carries out a conversation."""

    def __init__(self, run: Callable[[Conversation[Any]], Any]) -> None:
        super().__init__()
        self._run = run
        self._lock = threading.Lock()

    def ask(self, step: Together) -> Any:
        """Return what became of a part, or its error."""
        with self._lock:
            batch, index = self._join(step, threading.Event)
        if index:
            batch.ready.wait()
        else:
            self._send(batch)
        return batch.result(index, step)

    def _send(self, batch: _Batch) -> None:
        try:
            batch.full.wait(WINDOW_S)
            with self._lock:
                self._close(batch)
            batch.results = self._run(batch.send())
        except KeylaneError as error:
            batch.error = error
        finally:
            with self._lock:
                self._close(batch)
            batch.ready.set()


class AsyncBatches(_Batches):
    """The batches of a driver's event loop. `run`: carries out a conversation."""

    def __init__(self, run: Callable[[Conversation[Any]], Awaitable[Any]]) -> None:
        super().__init__()
        self._run = run
        self._turns: dict[Hashable, Any] = {}

    async def ask(self, step: Together) -> Any:
        """Return what became of a part, or its error."""
        import anyio  # noqa: PLC0415 (as in `drivers`)

        batch, index = self._join(step, anyio.Event)
        if index:
            await batch.ready.wait()
        else:
            await self._send(batch)
        return batch.result(index, step)

    async def _send(self, batch: _Batch) -> None:
        import anyio  # noqa: PLC0415 (as in `drivers`)
        from anyio.lowlevel import checkpoint  # noqa: PLC0415

        name = batch.first.batch
        turns = self._turns.setdefault(name, anyio.Semaphore(UNDER_WAY))
        try:
            await checkpoint()  # whatever else asks in this tick
            async with turns:
                self._close(batch)
                # Others have parts in it: the end of this caller is not theirs.
                with anyio.CancelScope(shield=True):
                    batch.results = await self._run(batch.send())
        except KeylaneError as error:
            batch.error = error
        finally:
            self._close(batch)
            batch.ready.set()
            if turns.value == UNDER_WAY and name not in self._open:
                self._turns.pop(name, None)
