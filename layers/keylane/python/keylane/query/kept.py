"""Reads what a topic keeps only with an option (an index, a history), and refuses topics without it."""

from collections.abc import Callable
from typing import Concatenate

from keylane.errors import HistoryTooShort, NoHistory, NoIndex, NotKept
from keylane.model.records import Layout
from keylane.ports import Deadline
from keylane.query.store import Found, Reading, ReadTerms, Store, What, begin_reading, read_current


def read_kept(
    store: Store,
    topic: str,
    terms: ReadTerms,
    read: Callable[Concatenate[Reading, What], Found],
    *what: What.args,
    **named: What.kwargs,
) -> tuple[Found, Reading]:
    """As `read_current`, within the terms.

    `read` raises NotKept or HistoryTooShort before it reads by a layout that lacks what it needs. A cached
    layout may be older than the option: a topic is refused by a layout that was just read.
    """
    deadline = Deadline.after_ms(terms.timeout_ms, store.clock)
    try:
        found, reading = read_current(begin_reading(store, topic, deadline), read, *what, **named)
    except (NotKept, HistoryTooShort):
        reading = Reading(store, store.layouts.refresh(topic, deadline), deadline)
        found, reading = read_current(reading, read, *what, **named)
    reading.check(terms)
    return found, reading


def check_index(layout: Layout) -> None:
    """Raise NoIndex for a topic that does not keep its keys in order."""
    if not layout.options.index:
        raise NoIndex(layout.topic)


def check_history(layout: Layout) -> None:
    """Raise NoHistory for a topic that does not keep earlier records."""
    if not layout.options.has_history:
        raise NoHistory(layout.topic)
