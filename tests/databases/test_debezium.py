"""Rows of PostgreSQL over HTTP: Debezium writes, and GET of each primary key is what SELECT says."""

from __future__ import annotations

import contextlib
import json
import os
import random
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from tests.databases.tables import GROUPS, SCHEMA, TABLES, Table, statements
from tests.e2e.client import Client
from tests.servers.debezium import Debezium, avro_converters
from tests.servers.own import deadline, eventually, guarded, wait_writable
from tests.servers.postgres import Postgres

from keylane.adapters.redis.cluster import Cluster
from keylane.config.functions import redis_settings
from keylane_client.cli.commands import keylane
from keylane_local.process.ports import Ports
from keylane_local.stack.stack import Stack
from keylane_spark.config.config_file import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.schema_registry import Registry

pytestmark = [pytest.mark.databases, pytest.mark.timeout(1800)]
SEED = int(os.environ.get("SEED", "20261126"))
STATEMENTS = int(os.environ.get("STATEMENTS", "10000"))
CONNECTORS = {
    "shop": {"table.include.list": "public.orders,public.items,public.devices,public.marks"},
    "store": {
        "table.include.list": "public.prices,public.docs,public.papers,public.orders,public.marks",
        "tombstones.on.delete": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
    },
    "flat": {
        "table.include.list": "public.orders,public.marks",
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
    },
    "avro": {
        "table.include.list": ",".join(f"public.{table.name}" for table in TABLES) + ",public.marks",
        # The connector's default: a decimal of Avro, which is the digits that the others have as text.
        "decimal.handling.mode": "precise",
    },
}
TOPICS = {
    "shop.public.orders": TABLES[0],
    "flat.public.orders": TABLES[0],
    "shop.public.items": TABLES[1],
    "shop.public.devices": TABLES[2],
    "store.public.prices": TABLES[3],
    "store.public.docs": TABLES[4],
    "store.public.orders": TABLES[0],
    **{f"avro.public.{table.name}": table for table in TABLES},
}
WHERE = {"store.public.orders": "status in ('new', 'paid')"}
"""The rows that a topic has, as SQL; of the others it has all."""
WITHIN_S = 240
"""Enough for a machine that is busy with other tests: what holds is not waited for."""
CONFIG = Path(__file__).with_name("databases.toml")


def primary_ports(nodes: str) -> set[int]:
    """Return the ports of a cluster's primaries."""
    cluster = Cluster(redis_settings({"KEYLANE_REDIS_NODES": nodes}))
    with contextlib.closing(cluster):
        cluster.refresh(deadline())
        return {node.port for node in cluster.primaries()}


def asked_for(columns: dict[str, Any]) -> bytes:
    """What a client asks for: the value of the only column, or all in any order."""
    if len(columns) == 1:
        return str(*columns.values()).encode()
    return json.dumps(dict(sorted(columns.items()))).encode()


def shown_key(record: dict[str, Any]) -> bytes:
    key = record["key"]
    return (json.dumps(key, separators=(",", ":")) if record["key_format"] == "json" else key).encode()


@dataclass
class World:
    """The database, the worker, and the stack that has the tables' topics."""

    database: Postgres
    connect: Debezium
    stack: Stack
    client: Client
    rounds: int = 0

    def wait_until_applied(self) -> None:
        """Wait until the state has all that the database has committed so far.

        A connector sends in the order of commits, but one batch of each partition at a time: what it sent
        before the last one may come to Kafka behind it, so the callers poll.
        """
        self.client.close()  # the next read opens a new one: servers close connections that were idle
        self.rounds += 1
        values = f"values (1, {self.rounds})"
        self.database.run(f"insert into marks {values} on conflict (id) do update set round = {self.rounds};")
        for prefix in CONNECTORS:
            eventually(lambda topic=f"{prefix}.public.marks": self._round(topic) == self.rounds, WITHIN_S)
        for topic in (*TOPICS, "store.public.papers"):
            for partition, end in enumerate(self._ends(topic)):
                if end:
                    key = asked_for(TOPICS[topic].keys[0]) if topic in TOPICS else b"any"
                    answer = self.client.get_at(topic, key, f"{partition}:{end - 1}")
                    assert answer.status in (200, 404), (answer.status, answer.body)

    def _round(self, topic: str) -> int | None:
        answer = self.client.get(topic, b'{"id":1}')
        return answer.json["round"] if answer.status == 200 else None

    def _ends(self, topic: str) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.stack.kafka_bootstrap, "group.id": "ends"})
        try:
            count = len(consumer.list_topics(topic, 20).topics[topic].partitions)
            return [
                consumer.get_watermark_offsets(TopicPartition(topic, number), 20)[1]
                for number in range(count)
            ]
        finally:
            consumer.close()

    def select(self, statement: str) -> list[dict[str, Any]]:
        """Return the JSON documents that a statement selects."""
        lines = self.database.run(statement).splitlines()
        return [json.loads(line, parse_float=Decimal) for line in lines]

    def check_views(self) -> None:
        """Wait until each view's windows are what GROUP BY says: a view reads once a second."""
        for view, statement in GROUPS.items():
            wanted = {row.pop("key"): row for row in self.select(statement)}
            assert len(wanted) > 1, (view, wanted)
            try:
                eventually(lambda view=view, wanted=wanted: self._windows(view) == wanted, WITHIN_S)
            except AssertionError:
                assert self._windows(view) == wanted, (view, SEED)

    def _windows(self, view: str) -> dict[str, Any]:
        answer = self.client.request("GET", f"/views/{view}/keys?limit=1000")
        assert answer.status == 200, answer.body
        windows = json.loads(answer.body, parse_float=Decimal)["windows"]
        return {each["key"]: each["values"] for each in windows}

    def _found(self, topic: str, table: Table, added: str) -> dict[bytes, Any]:
        """Return the row of each possible key that has one."""
        rows = {}
        for columns in table.keys:
            key = table.key_of(columns)
            answer = self.client.get(topic, key if topic.startswith("flat.") else asked_for(columns))
            assert answer.status in (200, 404), (topic, key, answer.body)
            if answer.status == 200:
                rows[key] = answer.json
                if topic.startswith("flat."):
                    assert rows[key].pop("__deleted") == "false"
                if added:
                    rows[key].setdefault(added, None)
        return rows

    def check(self, topic: str, table: Table, added: str = "") -> int:
        """Compare each possible key's answer, and the index, with the table; return how many rows it has.

        `added`: a column that rows may lack which have not changed since it was added.
        """
        rows = self.select(f"select {table.row} from {table.name} where {WHERE.get(topic, 'true')};")
        wanted = {table.key_of({name: row[name] for name in table.keys[0]}): row for row in rows}
        with contextlib.suppress(AssertionError):
            eventually(lambda: self._found(topic, table, added) == wanted, WITHIN_S)
        assert self._found(topic, table, added) == wanted, (topic, SEED)
        page = self.client.request("GET", f"/topics/{topic}/keys?limit=1000&keys_only=true").json["records"]
        assert {shown_key(each) for each in page} == wanted.keys(), (topic, SEED)
        return len(rows)

    def check_all(self) -> None:
        self.wait_until_applied()
        counts = {topic: self.check(topic, table) for topic, table in TOPICS.items()}
        assert all(counts.values()), counts
        self.check_views()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Iterator[World]:
    data, ports, source = tmp_path_factory.mktemp("databases"), Ports(), random.Random(SEED)
    variables = {"KEYLANE_SCHEMA_REGISTRY_URL": registry.url}
    with guarded(data), Stack(data, CONFIG, variables=variables) as stack:
        wait_writable(stack.kafka)
        database = Postgres(data, ports.any())
        try:
            database.start()
            # The snapshot has these rows.
            database.run(SCHEMA + statements(source, 300))
            connectors = CONNECTORS | {"avro": CONNECTORS["avro"] | avro_converters(registry)}
            connect = Debezium(data, stack.kafka_bootstrap, ports.any(), database.port, connectors)
            connect.start()
            client = Client(stack.http_url)
            yield World(database, connect, stack, client)
            client.close()
            connect.program.stop()
        finally:
            database.close()


def test_a_snapshot_is_every_row(world: World):
    world.check_all()


def test_after_any_statements_each_row_is_what_select_says(world: World):
    source = random.Random(SEED + 1)
    for _ in range(4):
        world.database.run(statements(source, STATEMENTS // 8))
        world.check_all()


def test_a_connector_and_a_job_that_are_killed_lose_nothing_and_bring_nothing_back(world: World):
    source = random.Random(SEED + 2)
    world.database.run(statements(source, STATEMENTS // 8))
    world.connect.kill()
    world.database.run(statements(source, STATEMENTS // 8))
    world.connect.start()
    world.stack.job.kill()
    world.database.run(statements(source, STATEMENTS // 4))
    world.stack.job.start()
    world.stack.job.wait_ready(WITHIN_S)
    world.check_all()


def test_an_update_of_the_primary_key_moves_the_row(world: World):
    topic = "shop.public.orders"
    world.database.run("insert into orders values (1001, 'new', 1.50, null);")
    world.database.run("update orders set id = 1002 where id = 1001;")
    world.wait_until_applied()
    assert world.client.get(topic, b"1001").status == 404
    moved = world.client.get(topic, b"1002")
    assert moved.json == {"id": 1002, "status": "new", "price": "1.50", "op": None}
    path = "/topics/shop.public.orders/keys/1001/history"
    kinds = [each.get("deleted", False) for each in world.client.request("GET", path).json["records"]]
    assert kinds == [True, True, False], "the deletion, its tombstone, and the row"
    world.database.run("delete from orders where id = 1002;")


def test_keylane_new_finds_the_tables_and_their_keys(world: World, tmp_path: Path):
    kafka = ["--kafka", world.stack.kafka_bootstrap]
    registry = {"KEYLANE_SCHEMA_REGISTRY_URL": world.stack.environment()["KEYLANE_SCHEMA_REGISTRY_URL"]}
    result = CliRunner().invoke(keylane, ["new", str(tmp_path), *kafka, "--stack", "x"], env=registry)
    assert result.exit_code == 0, result.output
    found, own = (load(path).topics for path in (tmp_path / "keylane.toml", CONFIG))
    for topic in TOPICS:
        assert found[topic].envelope == "debezium"
        assert found[topic].value_format == own[topic].value_format
        assert found[topic].key_format == own[topic].key_format
        if own[topic].key_format != "registry":
            assert found[topic].key_fields == (own[topic].key_fields or {"id": "integer"})


def test_a_row_that_a_topic_s_condition_leaves_out_is_gone_until_it_fits_again(world: World):
    topic, path = "store.public.orders", "/topics/store.public.orders/keys/1003"
    world.database.run("insert into orders values (1003, 'new', 1.50, null);")
    for status, is_there in (("sent", False), ("paid", True), ("sent", False), ("new", True), (None, False)):
        value = f"'{status}'" if status else "null"
        world.database.run(f"update orders set status = {value} where id = 1003;")
        world.wait_until_applied()
        row = {"id": 1003, "status": status, "price": "1.50", "op": None}
        assert world.client.get("avro.public.orders", b"1003").json == row
        answer = world.client.get(topic, b"1003")
        assert answer.status == (200 if is_there else 404), (status, answer.body)
        if is_there:
            assert answer.json == row
            assert world.client.request("GET", f"{path}?event=true").json["payload"]["op"] == "u"
    world.database.run("delete from orders where id = 1003;")


def test_a_large_column_that_did_not_change_is_there_with_the_full_identity_alone(world: World):
    body = "x" * 9_000
    world.database.run(
        f"insert into papers values (1, '{body}', 1);\nupdate papers set version = 2 where id = 1;\n"
        f"insert into docs values (1, '{body}', 1);\nupdate docs set version = 2 where id = 1;\n"
    )
    world.wait_until_applied()
    paper = world.client.get("store.public.papers", b'{"id":1}').json
    assert paper == {"id": 1, "body": "__debezium_unavailable_value", "version": 2}
    assert world.client.get("store.public.docs", b"1").json == {"id": 1, "body": body, "version": 2}
    world.database.run("delete from docs where id = 1;")


def test_a_redis_primary_that_is_killed_takes_no_row_with_it(world: World):
    source = random.Random(SEED + 3)
    redis = world.stack.redis
    ports = primary_ports(world.stack.redis_nodes)
    victim = next(node for node in redis.nodes if node.port in ports)
    world.database.run(statements(source, STATEMENTS // 16))
    victim.program.kill()
    try:
        world.database.run(statements(source, STATEMENTS // 16))
        world.check_all()
    finally:
        redis.start()
        redis.wait_ready()


def test_a_column_that_is_added_meanwhile_is_there_from_the_rows_next_change_on(world: World):
    source, items = random.Random(SEED + 4), TABLES[1]
    world.database.run("alter table items add column extra text;")
    wide = replace(
        items,
        row=items.row.replace(")", ", 'extra', extra)"),
        values=lambda source: items.values(source) | {"extra": source.choice(["'more'", "null"])},
    )
    world.database.run("".join(wide.statement(source) + "\n" for _ in range(200)))
    world.wait_until_applied()
    assert world.check("shop.public.items", wide, added="extra")
    world.check_views()
    assert world.select("select json_build_object('n', count(extra)) from items;")[0]["n"]


def test_a_key_whose_column_gets_another_type_is_found_by_whichever_schema_wrote_it_last(world: World):
    topic = "avro.public.orders"
    rows = ", ".join(f"({number}, 'old', 1.50, null)" for number in (2001, 2002, 2003))
    world.database.run(f"insert into orders values {rows};")
    world.wait_until_applied()
    world.database.run(
        "alter table orders alter id type bigint;\n"
        "update orders set status = 'changed' where id = 2001;\ndelete from orders where id = 2002;\n"
    )
    world.wait_until_applied()
    statuses = {2001: "changed", 2002: None, 2003: "old"}

    def found(each: str) -> dict[int, str | None]:
        answers = {number: world.client.get(each, str(number).encode()) for number in statuses}
        return {
            number: answer.json["status"] if answer.status == 200 else None
            for number, answer in answers.items()
        }

    # A new version of the subject is found within ten seconds.
    for each in (topic, "shop.public.orders"):
        eventually(lambda each=each: found(each) == statuses, WITHIN_S)
    # What was written by the old schema stays in lists: docs/use/databases.md says so.
    page = world.client.request("GET", f"/topics/{topic}/keys?limit=1000&keys_only=true").json["records"]
    counts = [sum(shown_key(row) == b'{"id":%d}' % number for row in page) for number in statuses]
    assert counts == [2, 1, 1]
