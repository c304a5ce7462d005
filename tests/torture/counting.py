"""A view under torture: it counts how often each key was set, and no trouble may change a count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.servers.own import CLOCK
from tests.torture.stack import PLAIN, VIEW, wait_until

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.errors import KeylaneError
from keylane.query.layouts import Layouts
from keylane.query.span import Span
from keylane.query.store import ReadTerms, Store
from keylane.query.views import WindowScan, read_windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.oracle import Log
    from tests.torture.stack import TortureStack

REACHED_WITHIN_S = 120
Counts = dict[bytes, str]


def check_view(log: Log, stack: TortureStack) -> Iterator[str]:
    """Wait until the view has the counts of the log; yields the keys whose counts differ at the end."""
    wanted = {
        key: f'{{"n": {count}}}'
        for (topic, key), records in log.keys.items()
        if topic == PLAIN
        and (count := sum(each.value is not None for own in records.records.values() for each in own))
    }
    found: Counts | str = {}

    def is_equal() -> bool:
        nonlocal found
        found = counts(stack)
        return found == wanted

    try:
        wait_until(is_equal, REACHED_WITHIN_S, "the view")
    except TimeoutError:
        if isinstance(found, str):
            yield f"the view can't be read: {found}"
            return
        for key in sorted(wanted.keys() | found.keys()):
            if wanted.get(key) != found.get(key):
                yield f"the view has {found.get(key)} of {key!r}, the log {wanted.get(key)}"


def counts(stack: TortureStack) -> Counts | str:
    """All windows of the view, as a reader sees them; or why it can't."""
    state = RedisState(Cluster(stack.redis))
    store = Store(state, Layouts(state, CLOCK, 30), CLOCK)
    rows: Counts = {}
    after = None
    try:
        while True:
            scan = WindowScan(VIEW, Span(), limit=1000, after=after)
            page = read_windows(store, scan, ReadTerms(timeout_ms=5000))
            rows |= {window.key: window.columns for window in page.rows}
            after = page.next_after
            if after is None:
                return rows
    except KeylaneError as error:
        return str(error)
    finally:
        state.close()
