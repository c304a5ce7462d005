"""Callers that ask at once, ask together: what each of several callers asks leaves in one request.

A caller yields its part, `Together`. The driver collects the parts of one batch: those of one tick of an
event loop, and while two requests of the batch are under way; or, of threads, those of one millisecond. It is
sent what became of its part, or ALONE: then it asks by itself, and the error of one part is nobody else's.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
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
    found = yield from _ask(("get", topic), partial(_get_all, topic), key)
    if found is ALONE:
        return (yield from reads.read_key(topic, key, reads.KeyRead()))
    return found  # type: ignore[no-any-return]


def write(topic: TopicScope, record: NewRecord) -> Conversation[Written | None]:
    """Write one record together with others; None if its caller has to write it alone.

    Raises Unavailable for a record that may have been written, or whose newer one was.
    """
    found = yield from _ask(("write", topic), partial(_write_all, topic), record)
    if isinstance(found, WriteFailed):
        if not found.is_uncertain and not found.is_superseded:
            return None
        problem = {"type": "unacknowledged", "detail": found.message, "code": found.code}
        raise Unavailable(_UNACKNOWLEDGED, {**problem, "uncertain": found.is_uncertain}, {})
    return None if found is ALONE else found


def _ask(batch: Hashable, ask: Callable[[Sequence[Any]], Conversation[Any]], part: Any) -> Conversation[Any]:
    step: Any = Together(batch, ask, part)
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

    ask: Callable[[Sequence[Any]], Conversation[Sequence[Any]]]
    parts: list[Any]
    ready: Any
    results: Sequence[Any] = ()
    error: BaseException | None = None

    def result(self, index: int) -> Any:
        """Return what became of a part, or the error of all."""
        return self.error if self.error is not None else self.results[index]


class BlockingBatches:
    """The batches of a driver's threads. `run`: carries out a conversation."""

    def __init__(self, run: Callable[[Conversation[Any]], Any]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._open: dict[Hashable, _Batch] = {}
        self._full: dict[int, threading.Event] = {}

    def ask(self, step: Together) -> Any:
        """Return what became of a part, or its error."""
        with self._lock:
            batch = self._open.get(step.batch)
            is_first = batch is None
            if batch is None:
                batch = self._open[step.batch] = _Batch(step.ask, [], threading.Event())
                self._full[id(batch)] = threading.Event()
            index = len(batch.parts)
            batch.parts.append(step.part)
            if len(batch.parts) >= MOST_PARTS:
                self._close(step.batch, batch)
        if is_first:
            self._send(step.batch, batch)
        else:
            batch.ready.wait()
        return batch.result(index)

    def _send(self, name: Hashable, batch: _Batch) -> None:
        self._full[id(batch)].wait(WINDOW_S)
        with self._lock:
            self._close(name, batch)
            del self._full[id(batch)]
        try:
            batch.results = self._run(batch.ask(batch.parts))
        except KeylaneError as error:
            batch.error = error
        except BaseException:
            batch.error = Unreachable("the thread that asked for this one, too, was interrupted")
            raise
        finally:
            batch.ready.set()

    def _close(self, name: Hashable, batch: _Batch) -> None:
        """Let no further part into a batch. The caller has the lock."""
        if self._open.get(name) is batch:
            del self._open[name]
            self._full[id(batch)].set()


class AsyncBatches:
    """The batches of a driver's event loop. `run`: carries out a conversation."""

    def __init__(self, run: Callable[[Conversation[Any]], Awaitable[Any]]) -> None:
        self._run = run
        self._open: dict[Hashable, _Batch] = {}
        self._turns: dict[Hashable, Any] = {}

    async def ask(self, step: Together) -> Any:
        """Return what became of a part, or its error."""
        import anyio  # noqa: PLC0415 (as in `drivers`)

        batch = self._open.get(step.batch)
        is_first = batch is None
        if batch is None:
            batch = self._open[step.batch] = _Batch(step.ask, [], anyio.Event())
        index = len(batch.parts)
        batch.parts.append(step.part)
        if len(batch.parts) >= MOST_PARTS:
            del self._open[step.batch]
        if is_first:
            await self._send(step.batch, batch)
        else:
            await batch.ready.wait()
        return batch.result(index)

    async def _send(self, name: Hashable, batch: _Batch) -> None:
        import anyio  # noqa: PLC0415 (as in `drivers`)
        from anyio.lowlevel import checkpoint  # noqa: PLC0415

        turns = self._turns.setdefault(name, anyio.Semaphore(UNDER_WAY))
        batch.results = ()
        try:
            await checkpoint()  # whatever else asks in this tick
            async with turns:
                self._close(name, batch)
                # Others have parts in it: the end of this caller is not theirs.
                with anyio.CancelScope(shield=True):
                    batch.results = await self._run(batch.ask(batch.parts))
        except KeylaneError as error:
            batch.error = error
        finally:
            self._close(name, batch)
            batch.results = batch.results or [ALONE] * len(batch.parts)
            batch.ready.set()
            if turns.value == UNDER_WAY and name not in self._open:
                self._turns.pop(name, None)

    def _close(self, name: Hashable, batch: _Batch) -> None:
        if self._open.get(name) is batch:
            del self._open[name]
