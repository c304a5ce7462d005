"""The names of all topics, or of all views, as the job lists them in the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keylane import routing
from keylane.ports import Call, Deadline
from keylane.state import redis_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.model.records import Layout
    from keylane.query.store import Store

MOST_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Layouts of topics in the order of their names. `next_after`: where the page ends, None at the end."""

    layouts: Sequence[Layout]
    next_after: str | None


def read_names(store: Store, key_of: Callable[[bytes], bytes], deadline: Deadline) -> list[str]:
    """Return the names of a list, in order. `key_of`: the list's key by a tag. Raises StateUnavailable.

    A copy may lack some: its shard may have lost them, and the job writes them again.
    """
    keys = [key_of(tag) for tag in redis_keys.ALL_TAGS]
    calls = [
        Call(routing.key_slot(key), (b"ZRANGEBYLEX", key, b"-", b"+", b"LIMIT", b"0", b"%d" % MOST_NAMES))
        for key in keys
    ]
    return sorted({name.decode() for names in store.state.run(calls, deadline) for name in names})


def list_kept_topics(
    store: Store, is_wanted: Callable[[str], bool], after: str, limit: int, timeout_ms: float
) -> TopicPage:
    """Return a page of the topics that have a state, are wanted, and come after a name.

    Raises StateUnavailable.
    """
    deadline = Deadline.after_ms(timeout_ms, store.clock)
    names = read_names(store, redis_keys.topics_key, deadline)
    wanted = [name for name in names if name > after and is_wanted(name)]
    page = wanted[:limit]
    layouts = store.layouts.refresh_all(page, deadline)
    found = [layout for layout in layouts.values() if layout is not None]
    return TopicPage(found, page[-1] if len(wanted) > limit else None)
