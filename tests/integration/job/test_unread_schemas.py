"""A real job and a Schema Registry that answers, and does not: topics, and views of their values."""

from __future__ import annotations

import json
import threading

import pytest
from tests.servers.own import create_topic, eventually, produce
from tests.servers.registry_double import RegistryDouble
from tests.support.views import eventually_equal

from keylane.formats.avro_writer import encoder
from keylane.formats.confluent import join

ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "status", "type": "string"},
        {"name": "__deleted", "type": "string"},
    ],
}
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "of", "type": "string"}, {"name": "amount", "type": "double"}],
}
CONFIG = """[job]
heartbeat_ms = 100
[topics.unread-orders]
envelope = "debezium"
value_format = "registry"
[topics.unread-payments]
value_format = "registry"
[topics.unread-found]
value_format = "registry"
fields = { of = "text" }
[views.unread-orders]
topic = "unread-orders"
key = "status"
columns = { n = "count()" }
[views.unread-payments]
topic = "unread-payments"
key = "of"
columns = { n = "count()", total = "sum(amount)" }
"""


@pytest.fixture
def registry():
    with RegistryDouble() as double:
        for schema_id, schema in ((6, ROW), (8, PAYMENT)):
            double.has(f"/schemas/ids/{schema_id}", {"schema": json.dumps(schema)})
        double.has("/schemas/ids/9", {"schema": "{}", "schemaType": "JSON"})
        double.lacks("/schemas/ids/10")
        double.has("/schemas/ids/11", {"message": "the database is away"}, 500)
        over = threading.Event()
        double.answers["/schemas/ids/7"] = lambda _: over.wait()  # it never answers
        yield double
        over.set()


def row(number: int, status: str, schema_id: int, deleted: str = "false") -> bytes:
    fields = {"id": number, "status": status, "__deleted": deleted}
    return join(schema_id, encoder(json.dumps(ROW))(fields))


def payment(of: str, amount: float) -> bytes:
    return join(8, encoder(json.dumps(PAYMENT))({"of": of, "amount": amount}))


@pytest.mark.long
def test_a_registry_that_is_away_holds_back_one_partition_and_views_read_its_values(
    kafka, query, start, state_of, registry
):
    for topic in ("unread-orders", "unread-payments", "unread-found"):
        create_topic(kafka, topic, 2)
    produce(kafka, "unread-orders", [(b"1", row(1, "new", 6), 0), (b"2", row(2, "new", 6), 1)])
    payments = [(b"a", payment("x", 1.5), 0), (b"b", payment("x", 2), 1)]
    payments += [(b"c", join(9, b'{"of":"y","amount":"3"}'), 1), (b"e", None, 0)]
    payments += [(b"d", bad, 0) for bad in (b"no schema", join(10, b""), join(8, b"\x02"), b"\0")]
    produce(kafka, "unread-payments", payments)
    job = start(CONFIG, KEYLANE_SCHEMA_REGISTRY_URL=registry.url)
    eventually_equal(lambda: query.groups("unread-orders"), {"new": {"n": 2}})
    paid = {"x": {"n": 2, "total": 3.5}, "y": {"n": 1, "total": 3}}
    eventually_equal(lambda: query.groups("unread-payments"), paid)
    assert query.ask("/views/unread-payments")[1]["invalid"] == 4
    later = join(11, encoder(json.dumps(PAYMENT))({"of": "x", "amount": 2}))
    produce(kafka, "unread-found", [(b"a", payment("x", 1.5), 0), (b"b", later, 1), (b"c", later, 0)])
    job.wait_for("holds partition 1 of topic 'unread-found' back: schema 11: the Schema Registry")
    found = state_of("unread-found")
    assert found.watermarks()[1, 0].next_offset == 0
    registry.has("/schemas/ids/11", {"schema": json.dumps(PAYMENT)})
    eventually(lambda: [mark.next_offset for mark in found.watermarks().values()] == [2, 1])
    status, page = query.ask("/topics/unread-found/find", of="x")
    assert (status, [row["key"] for row in page["records"]]) == (200, ["a", "b", "c"])
    produce(kafka, "unread-orders", [(b"1", row(1, "paid", 7), 0), (b"2", row(2, "sent", 6), 1)])
    job.wait_for("holds partition 0 of topic 'unread-orders' back: schema 7: the Schema Registry")
    job.wait_for("view 'unread-orders' restarts")
    before = len(job.lines)
    positions = state_of("unread-orders")
    eventually(lambda: [mark.next_offset for mark in positions.watermarks().values()] == [1, 2])
    produce(kafka, "unread-orders", [(b"2", row(2, "gone", 6, "true"), 1)])
    produce(kafka, "unread-payments", [(b"f", payment("z", 1), 0)])
    eventually(lambda: [mark.next_offset for mark in positions.watermarks().values()] == [1, 3])
    eventually_equal(lambda: query.groups("unread-payments"), paid | {"z": {"n": 1, "total": 1}})
    assert not [line for line in job.lines[before:] if "keylane: restarts in" in line]
    registry.has("/schemas/ids/7", {"schema": json.dumps(ROW)})
    eventually(lambda: [mark.next_offset for mark in positions.watermarks().values()] == [2, 3])
    eventually_equal(lambda: query.groups("unread-orders"), {"paid": {"n": 1}})
