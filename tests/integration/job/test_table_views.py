"""Views over change events: a real job, its windows against GROUP BY over the rows as they are."""

from __future__ import annotations

import itertools
import json
import random
import signal
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import create_topic, grow_topic, produce
from tests.support.views import eventually_equal

from keylane import routing
from keylane_spark.views.table_writer import SLICE_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import jobs

NUMBERS = itertools.count()
PARTITIONS = 3
JOB = "[job]\nheartbeat_ms = 100\n"
BY_STATUS = """key = "status"
where = "try_variant_get(json, '$.hidden', 'boolean') is not true"
[views.{view}.columns]
n = "count()"
noted = "count(note)"
total = "sum(price)"
mean = "avg(price)"
"""
TABLES = f"[topics.of-{{view}}]\nenvelope = 'debezium'\n[views.{{view}}]\ntopic = 'of-{{view}}'\n{BY_STATUS}"
KEYS = f"[topics.of-{{view}}]\n[views.{{view}}]\ntopic = 'of-{{view}}'\nof = 'keys'\n{BY_STATUS}"


def filled(tables: str, view: str) -> str:
    """The tables for a view, and for its topic, which is named after it."""
    return tables.replace("{view}", view)


@dataclass
class Table:
    """A table in memory whose changes are written as a connector writes them."""

    kafka: str
    topic: str
    chance: random.Random
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    partitions: int = PARTITIONS

    def change(self, count: int) -> None:
        """Insert, update and delete rows at random; the events have no row before the change."""
        first = len(self.log)
        for _ in range(count):
            number = self.chance.randrange(60)
            if self.chance.random() < 0.25 and number in self.rows:
                self._delete(number)
            else:
                self._set(number)
        self.send(self.log[first:])

    def set(self, *numbers: int) -> None:
        """Insert or update rows."""
        first = len(self.log)
        for number in numbers:
            self._set(number)
        self.send(self.log[first:])

    def delete(self, *numbers: int) -> None:
        first = len(self.log)
        for number in numbers:
            self._delete(number)
        self.send(self.log[first:])

    def repeat(self, count: int) -> None:
        """Send the last events again, as a connector does after a crash."""
        self.send(self.log[-count:])

    def snapshot(self) -> None:
        """Send every row again."""
        first = len(self.log)
        for number, row in self.rows.items():
            self._add(number, {"before": None, "after": row, "op": "r"})
        self.send(self.log[first:])

    def groups(self) -> dict[tuple[str, None, None], dict[str, Any]]:
        """GROUP BY status."""
        found: dict[tuple[str, None, None], list[dict[str, Any]]] = {}
        for row in self.rows.values():
            if row["status"] is not None and not row["hidden"]:
                found.setdefault((row["status"], None, None), []).append(row)
        return {name: _columns(rows) for name, rows in found.items()}

    def send(self, events: list[tuple[bytes, bytes | None]]) -> None:
        placed = ((key, value, routing.partition_for(key, self.partitions)) for key, value in events)
        produce(self.kafka, self.topic, placed)

    def _set(self, number: int) -> None:
        operation = "u" if number in self.rows else "c"
        self.rows[number] = self._row(number)
        self._add(number, {"before": None, "after": self.rows[number], "op": operation})

    def _delete(self, number: int) -> None:
        self._add(number, {"before": {"id": number}, "after": None, "op": "d"})
        if self.chance.random() < 0.5:
            self.log.append((b'{"id":%d}' % number, None))
        del self.rows[number]

    def _row(self, number: int) -> dict[str, Any]:
        return {
            "id": number,
            "status": self.chance.choice(["new", "paid", "sent", "lost", None]),
            "note": self.chance.choice(["x", None]),
            "price": self.chance.choice([None, f"{self.chance.randrange(-9999, 9999) / 100:.2f}"]),
            "hidden": self.chance.random() < 0.1,
        }

    def _add(self, number: int, event: dict[str, Any]) -> None:
        if event["after"] and number % 5 == 0:  # as MongoDB's are
            event = event | {"after": json.dumps(event["after"] | {"_id": {"$numberLong": str(number)}})}
        document = {"schema": {"type": "struct"}, "payload": event} if number % 2 else event
        self.log.append((b'{"id":%d}' % number, json.dumps(document).encode()))


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    prices = [Decimal(row["price"]) for row in rows if row["price"] is not None]
    return {
        "n": len(rows),
        "noted": sum(row["note"] is not None for row in rows),
        "total": sum(prices) if prices else None,
        "mean": round(sum(prices) / len(prices), 9) if prices else None,
    }


@pytest.fixture
def view():
    return f"table-{next(NUMBERS)}"


ADDED = """[views.{view}-added]
topic = "of-{view}"
of = "keys"
[views.{view}-added.columns]
n = "count()"
total = "sum(price)"
"""


class KeyedRecords(Table):
    """A table in memory whose rows are records of a keyed topic: a tombstone deletes one."""

    def _delete(self, number: int) -> None:
        self.log.append((b'{"id":%d}' % number, None))
        del self.rows[number]

    def _add(self, number: int, event: dict[str, Any]) -> None:
        self.log.append((b'{"id":%d}' % number, json.dumps(event["after"]).encode()))

    def totals(self) -> dict[tuple[str, None, None], dict[str, Any]]:
        """Each key with the row that it has."""
        found = {number: _columns([row]) for number, row in self.rows.items()}
        return {
            (json.dumps({"id": number}, separators=(",", ":")), None, None): {
                name: each[name] for name in ("n", "total")
            }
            for number, each in found.items()
        }


@pytest.mark.long
@pytest.mark.parametrize("reader", ["direct", "spark"])
def test_a_view_of_keys_is_of_each_key_s_latest_record_whatever_grows_or_is_killed(
    kafka, query, view, reader, start
):
    topic = f"of-{view}"
    create_topic(kafka, topic, 2)
    table = KeyedRecords(kafka, topic, random.Random(9), partitions=2)
    config = f"{JOB}reader = '{reader}'\n{filled(KEYS, view)}"
    table.change(300)
    running = start(config)
    eventually_equal(lambda: query.whole(view), table.groups())
    table.change(200)
    # The same records again: no key has another one by that.
    table.repeat(1)
    grow_topic(kafka, topic, PARTITIONS)
    table.partitions = PARTITIONS
    table.change(200)
    eventually_equal(lambda: query.whole(view), table.groups())
    running.signal(signal.SIGKILL)
    running.exit_code()
    table.change(100)
    table.delete(*list(table.rows)[::3])
    start(config + filled(ADDED, view))
    eventually_equal(lambda: query.whole(view), table.groups())
    eventually_equal(lambda: query.whole(f"{view}-added"), table.totals())
    # A value that is not valid JSON has no status: its key leaves its group until its next value.
    number = next(iter(table.rows))
    row = table.rows.pop(number)
    table.send([(b'{"id":%d}' % number, b"no json")])
    eventually_equal(lambda: query.whole(view), table.groups())
    table.rows[number] = row
    table.send([(b'{"id":%d}' % number, json.dumps(row).encode())])
    eventually_equal(lambda: query.whole(view), table.groups())
    table.delete(*list(table.rows))
    eventually_equal(lambda: query.whole(view), {})
    eventually_equal(lambda: query.whole(f"{view}-added"), {})
    assert not query.ask(f"/views/{view}")[1]["incomplete"]


def test_deleted_rows_of_a_grown_topic_and_odd_keys_count_as_they_should(
    kafka, query, view, start: Callable[..., jobs.RunningJob]
):
    """One job for two topics, which have had their records before it began."""
    grown, odd = f"grown-{view}", f"odd-{view}"
    table = a_grown_table(kafka, f"of-{grown}")
    create_topic(kafka, f"of-{odd}", PARTITIONS)
    # Keys that are empty or too long for a path: ranges, finds and counts have them too.
    keyed, keys = KeyedRecords(kafka, f"of-{odd}", random.Random(1)), (b"", b"k" * 70_000, b"plain")
    keyed.send([(key, b'{"status": "new", "price": 1}') for key in keys])
    start(JOB + filled(TABLES, grown) + filled(KEYS, odd))

    def counts() -> dict[str, int] | None:
        found = query.groups(odd)
        return found and {status: columns["n"] for status, columns in found.items()}

    eventually_equal(lambda: query.whole(grown), table.groups())
    assert not query.ask(f"/views/{grown}")[1]["incomplete"]
    eventually_equal(counts, {"new": 3})
    keyed.send([(key, b'{"status": "paid"}') for key in keys[:2]])
    eventually_equal(counts, {"new": 1, "paid": 2})
    keyed.send([(key, None) for key in keys])
    eventually_equal(counts, {})


def a_grown_table(kafka: str, topic: str) -> Table:
    """Rows that were in partition 1 of two change when they belong in partition 0, which is read first."""
    create_topic(kafka, topic, 2)
    table = Table(kafka, topic, random.Random(8), partitions=2)
    keys = {number: b'{"id":%d}' % number for number in range(400)}
    moved = [
        n for n, key in keys.items() if routing.partition_for(key, 2) and not routing.partition_for(key, 3)
    ]
    staying = next(n for n, key in keys.items() if not routing.partition_for(key, 6))
    table.set(*keys)
    grow_topic(kafka, topic, PARTITIONS)
    table.partitions = PARTITIONS
    table.delete(*moved[::2])
    table.set(*moved[1::2])
    # So many that what comes behind them is written later.
    table.set(*[staying] * SLICE_RECORDS)
    return table
