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
from confluent_kafka import Producer
from tests.servers.own import create_topic, eventually, grow_topic
from tests.support import jobs
from tests.support import lanes as t
from tests.support.views import Query, StoredLane, eventually_equal

from keylane import routing
from keylane_spark.views.table_writer import SLICE_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = itertools.count()
PARTITIONS = 3
TABLES = """[job]
heartbeat_ms = 100
[topics.{topic}]
envelope = "debezium"
[views.{view}]
topic = "{topic}"
key = "status"
where = "try_variant_get(json, '$.hidden', 'boolean') is not true"
[views.{view}.columns]
n = "count()"
noted = "count(note)"
total = "sum(price)"
mean = "avg(price)"
"""


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
        producer = Producer({"bootstrap.servers": self.kafka, "linger.ms": 5})
        for key, value in events:
            producer.produce(self.topic, value, key, routing.partition_for(key, self.partitions))
            producer.poll(0)
        assert producer.flush(60) == 0

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
def query(redis_cluster, monkeypatch):
    return Query(redis_cluster, monkeypatch)


@pytest.fixture
def view():
    return f"table-{next(NUMBERS)}"


@pytest.fixture
def table(kafka, view):
    topic = f"of-{view}"
    create_topic(kafka, topic, PARTITIONS)
    return Table(kafka, topic, random.Random(7))


@pytest.fixture
def start(kafka, redis_cluster, tmp_path, view, table):
    """Start a job over the table's topic."""
    started = []

    def start(tables: str = TABLES) -> jobs.RunningJob:
        config = tables.replace("{topic}", table.topic).replace("{view}", view)
        started.append(jobs.start(kafka, redis_cluster, tmp_path, config))
        return started[-1]

    yield start
    for each in started:
        each.end()


def whole(query: Query, view: str) -> dict | None:
    status, _ = query.ask(f"/views/{view}/keys")
    return query.windows(view) if status == 200 else None


def test_groups_are_of_the_rows_as_they_are_whatever_is_repeated_killed_or_lost(
    redis_cluster, query, view, table, start: Callable[[], jobs.RunningJob]
):
    table.change(300)
    running = start()
    eventually_equal(lambda: whole(query, view), table.groups())
    taken = StoredLane(t.client(redis_cluster), view)
    table.change(200)
    table.repeat(150)
    table.snapshot()
    eventually_equal(lambda: whole(query, view), table.groups())
    running.signal(signal.SIGKILL)
    running.exit_code()
    # As a replica that was behind: the lane has rows that are in other groups by now.
    taken.restore()
    table.change(200)
    running = start()
    table.send([(b'{"id":900}', b"no event"), (b'{"id":901}', b'{"op":"u"}')])
    eventually_equal(lambda: whole(query, view), table.groups())
    eventually(lambda: query.ask(f"/views/{view}")[1]["invalid"] >= 2)
    for number in list(table.rows):
        table.log.append((b'{"id":%d}' % number, None))
    table.send(table.log[-len(table.rows) :])
    eventually_equal(lambda: whole(query, view), {})
    assert not query.ask(f"/views/{view}")[1]["incomplete"]


def test_a_view_that_is_added_once_the_topic_has_grown_counts_no_deleted_row(
    kafka, redis_cluster, query, tmp_path, view
):
    """Rows that were in partition 1 of two belong in partition 0 of three, which is read first."""
    topic = f"of-{view}"
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
    running = jobs.start(
        kafka, redis_cluster, tmp_path, TABLES.replace("{topic}", topic).replace("{view}", view)
    )
    try:
        eventually_equal(lambda: whole(query, view), table.groups())
        assert not query.ask(f"/views/{view}")[1]["incomplete"]
    finally:
        running.end()


KEYS = """[job]
heartbeat_ms = 100
reader = "{reader}"
[topics.{topic}]
[views.{view}]
topic = "{topic}"
of = "keys"
key = "status"
where = "try_variant_get(json, '$.hidden', 'boolean') is not true"
[views.{view}.columns]
n = "count()"
noted = "count(note)"
total = "sum(price)"
mean = "avg(price)"
"""
ADDED = """[views.{view}-added]
topic = "{topic}"
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
    kafka, redis_cluster, query, tmp_path, view, reader
):
    topic = f"of-{view}"
    create_topic(kafka, topic, 2)
    table = KeyedRecords(kafka, topic, random.Random(9), partitions=2)

    def start(more: str = "") -> jobs.RunningJob:
        text = (KEYS + more).replace("{topic}", topic).replace("{view}", view).replace("{reader}", reader)
        return jobs.start(kafka, redis_cluster, tmp_path, text)

    table.change(300)
    running = start()
    try:
        eventually_equal(lambda: whole(query, view), table.groups())
        table.change(200)
        # The same records again: no key has another one by that.
        table.repeat(1)
        grow_topic(kafka, topic, PARTITIONS)
        table.partitions = PARTITIONS
        table.change(200)
        eventually_equal(lambda: whole(query, view), table.groups())
        running.signal(signal.SIGKILL)
        running.exit_code()
        table.change(100)
        table.delete(*list(table.rows)[::3])
        running = start(ADDED)
        eventually_equal(lambda: whole(query, view), table.groups())
        eventually_equal(lambda: whole(query, f"{view}-added"), table.totals())
        # A value that is not valid JSON has no status: its key leaves its group until its next value.
        number = next(iter(table.rows))
        row = table.rows.pop(number)
        table.send([(b'{"id":%d}' % number, b"no json")])
        eventually_equal(lambda: whole(query, view), table.groups())
        table.rows[number] = row
        table.send([(b'{"id":%d}' % number, json.dumps(row).encode())])
        eventually_equal(lambda: whole(query, view), table.groups())
        table.delete(*list(table.rows))
        eventually_equal(lambda: whole(query, view), {})
        eventually_equal(lambda: whole(query, f"{view}-added"), {})
        assert not query.ask(f"/views/{view}")[1]["incomplete"]
    finally:
        running.end()


def test_a_view_of_keys_counts_records_whose_keys_are_empty_or_too_long_for_a_path(
    kafka, redis_cluster, query, tmp_path, view
):
    """Ranges, finds and counts have them too."""
    topic = f"of-{view}"
    create_topic(kafka, topic, PARTITIONS)
    table, keys = KeyedRecords(kafka, topic, random.Random(1)), (b"", b"k" * 70_000, b"plain")
    table.send([(key, b'{"status": "new", "price": 1}') for key in keys])
    text = KEYS.replace("{topic}", topic).replace("{view}", view).replace("{reader}", "direct")
    with jobs.running(kafka, redis_cluster, tmp_path, text):

        def counts() -> dict[str, int] | None:
            found = whole(query, view)
            return found and {name[0]: columns["n"] for name, columns in found.items()}

        eventually_equal(counts, {"new": 3})
        table.send([(key, b'{"status": "paid"}') for key in keys[:2]])
        eventually_equal(counts, {"new": 1, "paid": 2})
        table.send([(key, None) for key in keys])
        eventually_equal(counts, {})
