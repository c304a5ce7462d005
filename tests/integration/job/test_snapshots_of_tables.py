"""Debezium's snapshots while rows change, by a real broker and a real job: events in the documented shapes.

initial        op "r" of each row; one that breaks off begins again, with the rows as they are then
incremental    op "r" of chunks, between the events of what changes meanwhile; a chunk's row that changes
               in its window is dropped, so that no "r" is older than what is before it in the log
blocking       the stream stands still, and continues behind the "r" of all rows
"""

from __future__ import annotations

import itertools
import json
import random
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.servers.own import create_topic
from tests.support import jobs
from tests.support.views import Query, eventually_equal

from keylane import routing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

PARTITIONS = 3
STATES = ["new", "paid", "sent", None]
CONFIG = """[job]
heartbeat_ms = 100
[topics.{topic}]
envelope = "debezium"
key_fields = {{ id = "integer" }}
history_count = 100
fields = {{ status = "text" }}
[views.by-status-{topic}]
topic = "{topic}"
key = "status"
[views.by-status-{topic}.columns]
rows = "count()"
worth = "sum(price)"
"""


@dataclass
class Connector:
    """A table, and the connector that writes its changes and snapshots.

    `unseen`: rows that were deleted without an event. `log`: what events say of each row, oldest first; None:
    it was deleted.
    """

    kafka: str
    topic: str
    chance: random.Random
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    unseen: set[int] = field(default_factory=set)
    log: dict[int, list[dict[str, Any] | None]] = field(default_factory=dict)
    _lsn: Iterator[int] = field(default_factory=lambda: itertools.count(24023128))

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.kafka, "linger.ms": 5})

    def execute(self, numbers: Iterable[int], *, streams: bool = True) -> list[int]:
        """Insert, update and delete rows, without `streams` unseen by the connector. Returns which."""
        changed = []
        for number in numbers:
            before = self.rows.get(number)
            if before is not None and self.chance.random() < 0.3:
                del self.rows[number]
                operation = "d"
            else:
                self.rows[number] = self._row(number)
                operation = "c" if before is None else "u"
            if streams:
                self._send(number, operation, "false")
            elif operation == "d":
                self.unseen.add(number)
            changed.append(number)
        return changed

    def snapshot(self, numbers: Iterable[int], kind: str) -> None:
        """Send "r" of those rows that the table has; of an initial one the first and the last are marked."""
        found = [number for number in numbers if number in self.rows]
        for at, number in enumerate(found):
            mark = kind
            if kind == "true":
                mark = "first" if at == 0 else "last" if at == len(found) - 1 else "true"
            self._send(number, "r", mark)

    def incremental(self, chunk: Collection[int], meanwhile: Iterable[int]) -> None:
        """Read a chunk while rows change, and send of it what did not change in the window."""
        changed = self.execute(meanwhile)
        self.snapshot(sorted(set(chunk) - {*changed}), "incremental")

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def _row(self, number: int) -> dict[str, Any]:
        return {"id": number, "status": self.chance.choice(STATES), "price": f"{number}.25"}

    def _send(self, number: int, operation: str, snapshot: str) -> None:
        row = self.rows.get(number)
        self.unseen.discard(number)
        self.log.setdefault(number, []).append(row)
        lsn = next(self._lsn)
        source = {
            "version": "3.4.0.Final",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": 1_795_670_972_789 + lsn,
            "snapshot": snapshot,
            "db": "postgres",
            "sequence": f'["{lsn - 1}","{lsn}"]',
            "schema": "public",
            "table": "orders",
            "txId": None if operation == "r" else lsn % 1000,
            "lsn": lsn,
            "xmin": None,
        }
        event = {
            "before": {"id": number, "status": None, "price": None} if operation == "d" else None,
            "after": row,
            "source": source,
            "transaction": None,
            "op": operation,
            "ts_ms": source["ts_ms"],
        }
        document = {"schema": {"type": "struct"}, "payload": event} if number % 2 else event
        self._produce(number, json.dumps(document).encode())
        if operation == "d":
            self._produce(number, None)

    def _produce(self, number: int, value: bytes | None) -> None:
        key = b'{"id":%d}' % number
        self._producer.produce(self.topic, value, key, routing.partition_for(key, PARTITIONS))
        self._producer.poll(0)

    @property
    def served(self) -> dict[int, dict[str, Any]]:
        """The rows by their last events."""
        return {number: events[-1] for number, events in self.log.items() if events[-1] is not None}

    def groups(self) -> dict[tuple[str, None, None], dict[str, Any]]:
        """GROUP BY status."""
        found: dict[tuple[str, None, None], dict[str, Any]] = {}
        for row in self.served.values():
            if row["status"] is not None:
                group = found.setdefault((row["status"], None, None), {"rows": 0, "worth": 0})
                group["rows"] += 1
                group["worth"] += row["id"] + 0.25
        return found


@pytest.fixture
def query(redis_cluster: str, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(redis_cluster, monkeypatch)


def found(query: Query, topic: str, **conditions: str) -> dict[int, dict[str, Any]]:
    """All rows that a find returns, by their id."""
    rows: dict[int, dict[str, Any]] = {}
    conditions = {"limit": "1000"} | conditions
    while True:
        status, page = query.ask(f"/topics/{topic}/find", **conditions)
        if status != 200:
            return {}
        rows |= {each["key"]["id"]: each["value"] for each in page["records"]}
        if "next" not in page:
            return rows
        conditions["cursor"] = page["next"]


def listed(query: Query, topic: str) -> dict[int, dict[str, Any]]:
    """All rows of the topic, by their id."""
    status, page = query.ask(f"/topics/{topic}/keys", limit="1000")
    return {each["key"]["id"]: each["value"] for each in page["records"]} if status == 200 else {}


def groups(query: Query, topic: str) -> dict[Any, dict[str, Any]]:
    """The groups of the view, once there is one."""
    status, _ = query.ask(f"/views/by-status-{topic}/keys")
    return query.windows(f"by-status-{topic}") if status == 200 else {}


def history(query: Query, topic: str, number: int) -> list[dict[str, Any] | None]:
    """What the row was, oldest first; each deletion once, with or without its tombstone."""
    _, document = query.ask(f"/topics/{topic}/keys/{number}/history", limit="100")
    rows = [each.get("value") for each in reversed(document["records"])]
    return [row for at, row in enumerate(rows) if row is not None or rows[at - 1] is not None]


def check(query: Query, table: Connector) -> None:
    """All that is served is what the table's log says."""
    table.flush()
    topic = table.topic
    eventually_equal(lambda: listed(query, topic), table.served)
    for state in ("new", "paid", "sent"):
        wanted = {number: row for number, row in table.served.items() if row["status"] == state}
        eventually_equal(lambda state=state: found(query, topic, status=state), wanted)
    eventually_equal(lambda: groups(query, topic), table.groups())
    for number in list(table.log)[::7]:
        assert history(query, topic, number) == table.log[number]


def test_rows_histories_finds_and_views_are_those_of_the_table_through_all_kinds_of_snapshots(
    kafka: str, redis_cluster: str, query: Query, tmp_path: Path
):
    topic = "snapshots-of-tables"
    create_topic(kafka, topic, PARTITIONS)
    table = Connector(kafka, topic, random.Random(52))
    table.execute(range(60), streams=False)
    # The initial snapshot breaks off; rows change, and some are deleted, before it begins again.
    table.snapshot(range(35), "true")
    config = CONFIG.format(topic=topic)
    running = jobs.start(kafka, redis_cluster, tmp_path, config)
    try:
        check(query, table)
        table.execute(range(20, 60), streams=False)
        table.snapshot(range(60), "true")
        check(query, table)
        gone = table.served.keys() - table.rows.keys()
        assert gone, "rows that were deleted without an event stay, as docs/use/databases.md says"
        assert gone <= table.unseen
        # An incremental one reads chunks while rows change; one of them twice, after a restart.
        for first in (0, 20, 20, 40):
            table.incremental(range(first, first + 20), table.chance.sample(range(70), 15))
        running.signal(signal.SIGKILL)
        running.exit_code()
        table.incremental(range(60, 80), table.chance.sample(range(80), 30))
        running = jobs.start(kafka, redis_cluster, tmp_path, config)
        check(query, table)
        # A blocking one: all rows, then the stream goes on.
        table.snapshot(range(80), "true")
        table.execute(table.chance.sample(range(80), 30))
        check(query, table)
        assert table.rows.items() <= table.served.items()
    finally:
        running.end()
