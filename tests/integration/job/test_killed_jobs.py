"""A job that is killed again and again: rows, groups and windows are those of their logs all the same.

The rows are written as by Debezium, in the documented shapes of its snapshots:

initial        op "r" of each row; one that breaks off begins again, with the rows as they are then
incremental    op "r" of chunks, between the events of what changes meanwhile; a chunk's row that changes
               in its window is dropped, so that no "r" is older than what is before it in the log
blocking       the stream stands still, and continues behind the "r" of all rows
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.integration.job.test_table_views import JOB, TABLES, Table, filled
from tests.integration.job.test_views import MINUTE_MS, MINUTES_AND_VISITS, some_events
from tests.integration.job.test_views import filled as of_events
from tests.servers.own import create_topic, eventually
from tests.support import lanes as t
from tests.support import views
from tests.support.views import StoredLane, eventually_equal, produce

from keylane import routing
from keylane.state import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from tests.support import jobs
    from tests.support.views import Event, Query

PARTITIONS = 3
STATES = ["new", "paid", "sent", None]
KILL, START = "kill", "start"
CONFIG = """[topics.{topic}]
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
    eventually_equal(lambda: query.whole(f"by-status-{topic}"), table.groups())
    for number in list(table.log)[::7]:
        assert history(query, topic, number) == table.log[number]


def snapshots(kafka: str, query: Query) -> Iterator[str]:
    """Rows, histories, finds and views are those of the table through all kinds of snapshots."""
    topic = "snapshots-of-tables"
    create_topic(kafka, topic, PARTITIONS)
    table = Connector(kafka, topic, random.Random(52))
    table.execute(range(60), streams=False)
    # The initial snapshot breaks off; rows change, and some are deleted, before it begins again.
    table.snapshot(range(35), "true")
    yield CONFIG.format(topic=topic)
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
    yield KILL
    table.incremental(range(60, 80), table.chance.sample(range(80), 30))
    yield START
    check(query, table)
    # A blocking one: all rows, then the stream goes on.
    table.snapshot(range(80), "true")
    table.execute(table.chance.sample(range(80), 30))
    yield from (KILL, START)
    check(query, table)
    assert table.rows.items() <= table.served.items()
    yield KILL


def groups(kafka: str, redis_cluster: str, query: Query) -> Iterator[str]:
    """The groups of a view are of the rows as they are, whatever is repeated or lost."""
    view = "killed-groups"
    create_topic(kafka, f"of-{view}", PARTITIONS)
    table = Table(kafka, f"of-{view}", random.Random(7))
    table.change(300)
    yield filled(TABLES, view)
    eventually_equal(lambda: query.whole(view), table.groups())
    taken = StoredLane(t.client(redis_cluster), view)
    table.change(200)
    table.repeat(150)
    table.snapshot()
    eventually_equal(lambda: query.whole(view), table.groups())
    yield KILL
    # As a replica that was behind: the lane has rows that are in other groups by now.
    taken.restore()
    table.change(200)
    yield START
    table.send([(b'{"id":900}', b"no event"), (b'{"id":901}', b'{"op":"u"}')])
    eventually_equal(lambda: query.whole(view), table.groups())
    eventually(lambda: query.ask(f"/views/{view}")[1]["invalid"] >= 2)
    yield from (KILL, START)
    table.send([(b'{"id":%d}' % number, None) for number in table.rows])
    eventually_equal(lambda: query.whole(view), {})
    assert not query.ask(f"/views/{view}")[1]["incomplete"]
    yield KILL


def windows(kafka: str, redis_cluster: str, query: Query) -> Iterator[str]:
    """Every event counts once; the windows of one view are compressed."""
    view, topic = "killed-windows", "of-killed-windows"
    create_topic(kafka, topic, PARTITIONS)
    written: list[Event] = []
    yield of_events(MINUTES_AND_VISITS, topic, view)
    for turn in range(3):
        written += produce(kafka, topic, some_events(400, 10 + turn))
        if turn < 2:
            # In the middle of its first batches: some lanes have them, some don't.
            eventually(lambda: any(lane["offsets"] != [0, 0, 0] for lane in lanes_of(query, view)))
            yield from (KILL, START)
    eventually_equal(lambda: query.whole(view), views.fixed(written, MINUTE_MS, MINUTE_MS))
    eventually_equal(lambda: query.whole(f"{view}-visits"), views.sessions(written, 15_000))
    assert [are_compressed(redis_cluster, each) for each in (view, f"{view}-visits")] == [False, True]
    yield KILL


def lanes_of(query: Query, view: str) -> list[dict[str, Any]]:
    status, document = query.ask(f"/views/{view}")
    return document["lanes"] if status == 200 else []


def are_compressed(nodes: str, view: str) -> bool:
    """Whether most windows of a view are, as Redis has them."""
    with t.client(nodes) as client:
        names = list(client.scan_iter(f"*:~{view}:*:v:*", target_nodes="primaries"))
        flags = [envelope[1] & codec.COMPRESSED for envelope in client.mget_nonatomic(names)]
    return sum(map(bool, flags)) > len(names) / 2


@pytest.mark.long
@pytest.mark.timeout(900)  # three starts of Spark and of four views, on a machine that does other things too
def test_rows_groups_and_windows_are_those_of_their_logs_though_the_job_is_killed_again_and_again(
    kafka: str, redis_cluster: str, query: Query, start: Callable[[str], jobs.RunningJob]
):
    """One job for all: each says what it needs of the file, and when the job is to be killed or started."""
    scenes = [
        snapshots(kafka, query),
        groups(kafka, redis_cluster, query),
        windows(kafka, redis_cluster, query),
    ]
    config = JOB + "".join(next(each) for each in scenes)
    for turn in range(3):
        running = start(config)
        assert {next(each) for each in scenes} == {KILL}
        running.kill()
        if turn < 2:
            assert {next(each) for each in scenes} == {START}
