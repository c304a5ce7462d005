"""Values and keys that do not fit their topic, by a real job and a real Schema Registry.

Of each kind: what reads answer, what the job counts and says, and that nothing else stops. The words are
those of docs/operate/troubleshooting.md.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers import schema_registry as sr
from tests.servers.own import create_topic, eventually, produce
from tests.support import jobs
from tests.support.jobs import scrape
from tests.support.views import Query, eventually_equal

from keylane_local.process.ports import Ports
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.servers.schema_registry import Registry

TABLE = "shop.public.orders"
ENVELOPE = sr.envelope_schema(TABLE, {"id": "int", "note": "string"})
KEY = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]})
OTHER_KEY = json.dumps({"type": "record", "name": "Other", "fields": [{"name": "id", "type": "int"}]})
UNKNOWN_ID = 65_000_000
KEYS = "bad-keys"
REASONS = {
    "bad-op": "it has no op",
    "bad-cut": "cannot be decoded by schema",
    "bad-id": f"does not have schema {UNKNOWN_ID}",
    "bad-subject": "it has no op",
}
"""What `detail` of a read contains, by the topic that has such a value."""
CONFIG = (
    """[job]
heartbeat_ms = 100
metrics = "openmetrics"
metrics_port = {port}
[topics.bad-op]
envelope = "debezium"
"""
    + "".join(
        f'[topics.{topic}]\nenvelope = "debezium"\nvalue_format = "registry"\n'
        for topic in REASONS
        if topic != "bad-op"
    )
    + f"""[topics.{KEYS}]
envelope = "debezium"
value_format = "registry"
key_format = "registry"
index = true
"""
)


@dataclass
class World:
    """The job, the topics in Kafka, and a warm query function."""

    registry: Registry
    query: Query
    kafka: str
    job: jobs.RunningJob
    metrics_port: int

    def row(self, number: int, note: str, subject: str = TABLE) -> bytes:
        """An event that sets a row, in Avro."""
        event = {"before": None, "after": {"id": number, "note": note}, "op": "c"}
        return sr.avro(self.registry.client, subject, ENVELOPE, event)

    def event(self, topic: str, number: int, note: str) -> bytes:
        """An event that sets a row, as the topic has them."""
        if topic == "bad-op":
            return json.dumps({"op": "c", "after": {"id": number, "note": note}}).encode()
        return self.row(number, note)

    def bad(self, topic: str) -> bytes:
        return {
            "bad-op": lambda: b'{"id": 1, "note": "no event"}',
            "bad-cut": lambda: self.row(1, "cut")[:-3],
            "bad-id": lambda: b"\0" + UNKNOWN_ID.to_bytes(4, "big") + self.row(1, "id")[5:],
            "bad-subject": lambda: sr.avro_key(self.registry.client, TABLE, KEY, {"id": 1}),
        }[topic]()

    def produce(self, topic: str, records: Mapping[bytes, bytes]) -> None:
        produce(self.kafka, topic, records.items())

    def read(self, topic: str, key: bytes, **query: str) -> tuple[int, Any]:
        return self.query.ask(f"/topics/{topic}/keys/{key.decode()}", **query)

    def invalid(self, topic: str) -> float:
        return scrape(self.metrics_port)["keylane_topic_invalid_events_total", topic]


@pytest.fixture(scope="module")
def world(
    kafka: str, redis_cluster: str, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    for topic in (*REASONS, KEYS):
        create_topic(kafka, topic, 1)
    port = Ports().any()
    variables = {
        "KEYLANE_SCHEMA_REGISTRY_URL": registry.url,
        "KEYLANE_SCHEMA_REGISTRY_TIMEOUT_MS": "20000",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        query = Query(redis_cluster, patch)
        folder = tmp_path_factory.mktemp("bad-events")
        config = CONFIG.replace("{port}", str(port))
        with jobs.running(kafka, redis_cluster, folder, config, **variables) as job:
            job.wait_for("keylane: ready")
            yield World(registry, query, kafka, job, port)


@pytest.mark.parametrize("topic", REASONS)
def test_a_value_that_is_no_event_is_named_by_reads_metric_and_log_and_stops_nothing(
    world: World, topic: str
):
    world.produce(topic, {b"1": world.event(topic, 1, "old"), b"before": world.event(topic, 2, "kept")})
    world.produce(topic, {b"1": world.bad(topic), b"after": world.event(topic, 3, "applied")})
    eventually_equal(lambda: world.read(topic, b"after"), (200, {"id": 3, "note": "applied"}))
    assert world.read(topic, b"before") == (200, {"id": 2, "note": "kept"})
    status, problem = world.read(topic, b"1")
    assert (status, problem["type"]) == (422, "urn:keylane:problem:value-not-decodable")
    assert REASONS[topic] in problem["detail"]
    documents = (project_root() / "docs" / "operate" / "troubleshooting.md").read_text()
    assert f"`{REASONS[topic].removesuffix(f' {UNKNOWN_ID}')}`" in documents
    world.job.wait_for(
        f"topic {topic!r} has values that are not change events, the first at 0:2: "
        "they are stored, and reads of them are answered why"
    )
    eventually(lambda: world.invalid(topic) == 1)
    world.produce(topic, {b"1": world.event(topic, 1, "new")})
    eventually_equal(lambda: world.read(topic, b"1"), (200, {"id": 1, "note": "new"}))
    assert world.invalid(topic) == 1
    assert not [line for line in world.job.lines if "restarts in" in line or "holds partition" in line]


def test_a_key_and_a_value_of_other_subjects_are_a_row_that_is_found_by_the_key_s_bytes(world: World):
    foreign = sr.avro_key(world.registry.client, "elsewhere", OTHER_KEY, {"id": 7})
    own = sr.avro_key(world.registry.client, KEYS, KEY, {"id": 8})
    assert foreign[:5] != own[:5], "schemas with one id would be one subject's as well"
    rows = {foreign: world.row(7, "foreign", "elsewhere"), own: world.row(8, "own")}
    world.produce(KEYS, rows)
    eventually_equal(lambda: world.read(KEYS, b"8"), (200, {"id": 8, "note": "own"}))
    status, problem = world.read(KEYS, b"7")
    assert (status, problem["type"]) == (404, "urn:keylane:problem:key-absent")
    listed = world.query.ask(f"/topics/{KEYS}/keys")[1]["records"]
    assert sorted((each["key"]["id"], each["value"]["note"]) for each in listed) == [
        (7, "foreign"),
        (8, "own"),
    ]
    raw = base64.urlsafe_b64encode(foreign)
    assert world.read(KEYS, raw, key_format="base64") == (200, {"id": 7, "note": "foreign"})
    assert world.invalid(KEYS) == 0
