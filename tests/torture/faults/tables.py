"""Faults of what values are: rows of a table whose topic grows before a view is added, and large values."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.servers.own import CLOCK
from tests.support.views import all_windows
from tests.torture.configurations import LARGE, ROWS, TABLE
from tests.torture.faults.job import kill_driver
from tests.torture.sides import AGREES_WITHIN_S, Side
from tests.torture.sources import LAYOUT_TTL_S
from tests.torture.stack import wait_until

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.state import RedisState
from keylane.errors import KeylaneError
from keylane.query.conditions import EQUAL, Asked
from keylane.query.find import find
from keylane.query.finder import FindScan
from keylane.query.layouts import Layouts
from keylane.query.range_rows import PAGE_BYTES
from keylane.query.store import ReadTerms, Store
from keylane_spark.views.table_writer import SLICE_RECORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.torture.faults.world import World
    from tests.torture.schedule import Event

    from keylane.ports import Call, Deadline

_ROWS, _LARGE_VALUES, _LARGE_BYTES = 60, 24, 900_000
_GROUPS = 4
_TERMS = ReadTerms(timeout_ms=10_000)
_MOST_READ = 3 * PAGE_BYTES
"""Bytes that one page may read: its own, and what lanes answer with beside them."""


def grow_table(world: World, event: Event) -> None:
    """Let a table's topic grow, change rows in their new partitions, then add a view, or another one.

    Rows that were in partition 1 of two belong in partition 0 of three, which has so many records that the
    view writes what is in it before it meets what the rows were before. `variant`: rows go astray, too.
    `choice`: the job is killed once more while it builds the view.
    """
    side = Side(world, TABLE)
    side.create_again(2)
    keys = [b"%d-row-%d" % (world.seed, number) for number in range(_ROWS)]
    moved = [key for key in keys if routing.partition_for(key, 6) == 3]
    staying = next(key for key in keys if not routing.partition_for(key, 6))
    rows: dict[bytes, str] = {}

    def write(some: Sequence[bytes], *, is_stray: bool = False) -> None:
        numbers = {key: next(world.stack.side_numbers) for key in some}
        rows.update({key: f"group {number % _GROUPS}" for key, number in numbers.items()})
        side.send([(key, _row(rows[key]), is_stray) for key in some])

    write(keys)
    side.grow()
    for key in moved[::2]:
        del rows[key]
    side.send([(key, b'{"op":"d","after":null}', False) for key in moved[::2]])
    write(moved[1::2])
    write([staying] * SLICE_RECORDS)
    if event.variant:
        write(keys[::7], is_stray=True)
    column = f"n{next(world.stack.side_numbers)}"
    world.stack.define_rows(
        f'topic = "{TABLE}"\nkey = "status"\n[views.{ROWS}.columns]\n{column} = "count()"\n'
    )
    for _ in range(1 + (event.choice == 0)):
        kill_driver(world, event)
    wanted, found = Counter(rows.values()), Counter[str]()

    def is_equal() -> bool:
        with contextlib.suppress(KeylaneError, KeyError), world.stack.store() as store:
            windows = {each.key: json.loads(each.columns) for each in all_windows(store, ROWS, _TERMS)}
            found.clear()
            found.update({key.decode(): columns[column] for key, columns in windows.items()})
        return found == wanted

    with contextlib.suppress(TimeoutError):
        wait_until(is_equal, AGREES_WITHIN_S, "the view is GROUP BY")
    assert found == wanted, f"the view over {TABLE!r} has {dict(found)}, GROUP BY {dict(wanted)}"


def _row(status: str) -> bytes:
    return json.dumps({"op": "u", "after": {"status": status}}).encode()


def write_large_values(world: World, _: Event) -> None:
    """Write large values that an index in parts leads to, and find all: a page reads about what it has."""
    side = Side(world, LARGE)
    side.create_again(1)
    keys = [b"%d-large-%d" % (world.seed, number) for number in range(_LARGE_VALUES)]
    value = json.dumps({"s": "x", "p": "x" * _LARGE_BYTES}).encode()
    with contextlib.closing(_CountedState(Cluster(world.stack.redis))) as state:
        store = Store(state, Layouts(state, CLOCK, LAYOUT_TTL_S), CLOCK)
        side.send([(key, value, False) for key in keys])
        try:
            _find_all(store, state, keys)
        finally:
            side.send([(key, None, False) for key in keys])


def _find_all(store: Store, state: _CountedState, keys: Sequence[bytes]) -> None:
    found: list[bytes] = []

    def has_all() -> bool:
        found.clear()
        after = None
        with contextlib.suppress(KeylaneError):
            for number in itertools.count():
                state.read_bytes = 0
                scan = FindScan((Asked("s", EQUAL, "x"),), None, 1_000, after)
                page = find(store, LARGE, scan, _TERMS, lambda _, record: record)
                read = state.read_bytes
                assert read <= _MOST_READ, f"page {number} of {len(page.rows)} rows has read {read:,} bytes"
                found.extend(key for key, _ in page.rows)
                after = page.next_after
                if after is None:
                    break
        return sorted(found) == sorted(keys)

    with contextlib.suppress(TimeoutError):
        wait_until(has_all, AGREES_WITHIN_S, "all are found")
    assert sorted(found) == sorted(keys), f"{len(found)} of {len(keys)} large values are found"


class _CountedState(RedisState):
    """Counts the bytes of replies."""

    read_bytes = 0

    def run(self, calls: Sequence[Call], deadline: Deadline, *, primary_only: bool = False) -> list[Any]:
        replies = super().run(calls, deadline, primary_only=primary_only)
        self.read_bytes += _size(replies)
        return replies


def _size(reply: Any) -> int:
    return (
        sum(map(_size, reply)) if isinstance(reply, list) else len(reply) if isinstance(reply, bytes) else 0
    )
