"""Waits until reads of a side topic agree with its log, or with its journal, and checks them meanwhile."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from tests.servers.own import CLOCK
from tests.torture.configurations import RETAINED
from tests.torture.sources import LAYOUT_TTL_S, read_key
from tests.torture.stack import rest, wait_until

from keylane.errors import KeylaneError
from keylane.query.layouts import Layouts
from keylane.query.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.torture.sides import Fold, Side

    from keylane.model.records import Answer

AGREES_WITHIN_S = 120


@contextlib.contextmanager
def _reader(side: Side) -> Iterator[Callable[[bytes], Answer]]:
    """A read of a key, over the readers' links. It raises KeylaneError."""
    state = side.world.stack.reader_state()
    store = Store(state, Layouts(state, CLOCK, LAYOUT_TTL_S), CLOCK)
    try:
        yield lambda key: read_key(store, side.name, key)
    finally:
        state.close()


def wait_agrees(side: Side) -> None:
    """Wait until reads of all keys that ever were return the fold of the log, and nothing else."""
    wanted = side.fold()
    keys = [key for topic, key in list(side.world.stack.side_keys) if topic == side.name]
    found: Fold | KeylaneError = {}

    def agrees() -> bool:
        nonlocal found
        try:
            answers = {key: read(key).record for key in keys}
        except KeylaneError as error:
            found = error
            return False
        found = {key: record.value or b"" for key, record in answers.items() if record}
        return found == wanted

    with _reader(side) as read, contextlib.suppress(TimeoutError):
        wait_until(agrees, AGREES_WITHIN_S, "")
        return
    shown: object = repr(found)
    if isinstance(found, dict):
        differing = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        shown = [(key, found.get(key), wanted.get(key)) for key in differing[:4]]
    raise AssertionError(f"reads of {side.name!r} do not return what the log has: (key, read, log) {shown}")


def wait_settled(side: Side, since_s: float, *, judged: bool = True, complete: bool = True) -> None:
    """Wait until all lanes claim to have all that was written, and check every answer meanwhile.

    `since_s`: no key may go back, unless Redis has been in trouble since then (monotonic seconds).
    `judged`: no answer may contradict its own claim. `complete`: in the end no answer may say that it is
    incomplete; otherwise those that lack something must say so. In a topic that forgets, what a trouble
    of Redis makes the job read again may be gone.
    """
    until_s = time.monotonic() + AGREES_WITHIN_S
    partitions, left = len(side.partitions()), "nothing was read"
    answers: dict[bytes, Answer] = {}
    asked_s = time.monotonic()
    with _reader(side) as read:
        while left:
            if time.monotonic() > until_s:
                raise AssertionError(f"{side.name!r} has not settled within {AGREES_WITHIN_S} s: {left}")
            rest(asked_s, 0.02, 0.1)
            asked_s = time.monotonic()
            try:
                answers = {key: read(key) for key in sorted(side.journal.written)}
            except KeylaneError as error:
                left = repr(error)
                continue
            # A job that starts without any trace of a topic takes what is left of its log as all of it.
            forgets = side.name == RETAINED
            is_lost = forgets and side.world.has_trouble(since_s, lost_data=True)
            complete = complete and not (forgets and side.world.has_trouble(since_s))
            for key, answer in answers.items():
                _check(side, key, answer, judged=judged and not is_lost, since_s=since_s)
            lefts = (_left(side, *each, partitions, complete=complete) for each in answers.items())
            left = next(filter(None, lefts), "") if not is_lost else ""
    for key, answer in answers.items():
        if not answer.watermark.incomplete:
            side.journal.note_seen(key, answer)


def _check(side: Side, key: bytes, answer: Answer, *, judged: bool, since_s: float) -> None:
    journal = side.journal
    fault = journal.fault_of(key, answer) if judged else None
    # What is built again from a log that forgets lacks what it has forgotten, and says so.
    is_rebuilt = side.name == RETAINED and answer.watermark.incomplete
    if fault is None and not is_rebuilt and not side.world.has_trouble(since_s):
        fault = journal.went_back(key, answer)
    assert fault is None, f"{side.name}/{key.decode()}: {fault} ({answer.watermark})"


def _left(side: Side, key: bytes, answer: Answer, partitions: int, *, complete: bool) -> str:
    """Why an answer is not the last one; "" if it is."""
    where, watermark = f"{side.name}/{key.decode()}", answer.watermark
    if answer.layout.partition_count != partitions:
        return f"{where} has {answer.layout.partition_count} partitions of {partitions}"
    if watermark.complete_as_of_ms <= side.journal.last_acknowledged_ms:
        return f"{where} is complete as of {watermark.complete_as_of_ms}"
    if watermark.incomplete:
        return f"{where} is incomplete" if complete else ""
    newest = side.journal.written[key][-1].value
    found = answer.record and answer.record.value
    if key in side.journal.may_come_back:
        return ""
    return "" if found == newest else f"{where} has {found!r}, and {newest!r} was written"
