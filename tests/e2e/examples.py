"""An example request for each operation; `python -m tests.e2e.examples` writes their events to `events/`.

tests/e2e/test_examples.py sends each over HTTP, and passes its event to the function.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers.own import eventually
from tests.support.proxy_events import HttpRequest, build_proxy_event

from keylane.model.records import NewRecord
from keylane.model.routes import find
from keylane.produce import message_codec
from keylane_build.openapi import document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.client import ApiResponse, Client

EVENTS = Path(__file__).parents[2] / "events"
REST_PROXY = "application/vnd.kafka.json.v2+json"
NO_CLUSTER = "lkc-0"
"""Kafka makes ids at random: no example can name one that is there. tests/compat does."""
NOW_S = 1_795_257_709.908
REQUEST_ID = "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"


@dataclass(frozen=True, slots=True)
class Example:
    """A request and the status of its answer; `path` is percent-encoded, with its query."""

    method: str
    path: str
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200

    @property
    def function(self) -> str:
        return find(self.method, self.path.partition("?")[0]).function

    def send(self, client: Client) -> ApiResponse:
        """Send the request over HTTP."""
        headers = {name.replace("-", "_"): value for name, value in self.headers.items()}
        return client.request(self.method, self.path, self.body.encode() or None, **headers)

    def event(self) -> dict[str, Any]:
        """Return the event that API Gateway builds from the request."""
        headers = {"Accept": "*/*", "Host": "api.example.org", "User-Agent": "curl/8.5.0"} | self.headers
        request = HttpRequest(
            self.method, self.path, tuple(headers.items()), self.body.encode(), "203.0.113.7"
        )
        return build_proxy_event(request, REQUEST_ID, NOW_S)


def _json(value: Any) -> dict[str, Any]:
    return {"body": json.dumps(value), "headers": {"Content-Type": "application/json"}}


def _of_no_cluster(path: str) -> Example:
    return Example("GET", f"/v3/clusters/{NO_CLUSTER}{path}", status=404)


FLIGHT = {"tailnum": "N14228", "origin": "EWR", "dest": "IAH"}
RECORD = {"key": "N14228", "value": FLIGHT}
TOOL = {"name": "get", "arguments": {"topic": "flights", "key": "N14228", "fields": "origin,dest"}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": TOOL}
EXAMPLES = {
    "put_key": Example("PUT", "/topics/flights/keys/N14228", **_json(FLIGHT), status=201),
    "get_key": Example("GET", "/topics/flights/keys/N14228?envelope=true&fields=origin,dest"),
    "delete_key": Example("DELETE", "/topics/flights/keys/N14229"),
    "read_keys": Example("POST", "/topics/flights/keys:read", **_json({"keys": ["N14228", "N24211"]})),
    "join_topics": Example("GET", "/join/N14228?topics=flights,joined"),
    "get_keys": Example("GET", "/topics/bookings/keys?prefix=ann%7C&limit=10"),
    "get_key_count": Example("GET", "/topics/bookings/count?max_age_ms=60000"),
    "find_records": Example("GET", "/topics/bookings/find?to=Be*&order=to&limit=5"),
    "get_history": Example("GET", "/topics/bookings/keys/ann%7C2026-11-09/history?limit=5"),
    "get_key_changes": Example("GET", "/topics/flights/keys/N14228/changes?fields=origin,dest", status=501),
    "get_snapshot": Example("GET", "/topics/bookings/snapshot?prefix=ann%7C", status=501),
    "get_changes": Example("GET", "/topics/bookings/changes?prefix=ann%7C", status=501),
    "get_topic": Example("GET", "/topics/flights"),
    "get_partitions": Example("GET", "/metadata/partitions?topic=flights"),
    "get_views": Example("GET", "/views"),
    "get_view": Example("GET", "/views/puts"),
    "get_windows": Example("GET", "/views/puts/keys/N14228"),
    "get_view_keys": Example("GET", "/views/puts/keys?prefix=N&limit=5"),
    "push": Example(
        "POST",
        "/push",
        **_json(
            {
                "records": [{"topic": "flights", "key": "N14228", "data": json.dumps(FLIGHT)}],
                "wait_for_send": True,
            }
        ),
    ),
    "post_records": Example(
        "POST",
        "/topics/flights?key_format=text",
        json.dumps({"records": [RECORD]}),
        {"Content-Type": REST_PROXY},
    ),
    "post_records_to_partition": Example(
        "POST",
        "/topics/flights/partitions/2?key_format=text",
        json.dumps({"records": [RECORD]}),
        {"Content-Type": REST_PROXY},
    ),
    "post_v3_records": Example(
        "POST",
        f"/v3/clusters/{NO_CLUSTER}/topics/flights/records",
        **_json({"key": {"type": "STRING", "data": "N14228"}, "value": {"type": "JSON", "data": FLIGHT}}),
    ),
    "post_v3_batch": Example(
        "POST",
        f"/v3/clusters/{NO_CLUSTER}/topics/flights/records:batch",
        **_json({"entries": [{"id": "first", "value": {"type": "JSON", "data": FLIGHT}}]}),
        status=207,
    ),
    "get_topics": Example("GET", "/topics?prefix=fl"),
    "get_kafka_topic": Example("GET", "/topics/flights/partitions"),
    "get_kafka_partition": Example("GET", "/topics/flights/partitions/2"),
    "get_schemas": Example("GET", "/topics/registered/schemas"),
    "get_offset": Example("GET", "/topics/flights/partitions/2/offsets?at=latest"),
    "get_records": Example("GET", "/topics/flights/partitions/2/records?offset=earliest&limit=10"),
    "get_clusters": Example("GET", "/clusters"),
    "get_brokers": Example("GET", "/brokers"),
    "get_v3_clusters": Example("GET", "/v3/clusters"),
    "get_v3_cluster": _of_no_cluster(""),
    "get_v3_brokers": _of_no_cluster("/brokers"),
    "get_v3_broker": _of_no_cluster("/brokers/1"),
    "get_v3_broker_configs": _of_no_cluster("/brokers/1/configs"),
    "get_v3_broker_config": _of_no_cluster("/brokers/1/configs/log.retention.ms"),
    "get_v3_groups": _of_no_cluster("/consumer-groups"),
    "get_v3_group": _of_no_cluster("/consumer-groups/billing"),
    "get_v3_consumers": _of_no_cluster("/consumer-groups/billing/consumers"),
    "get_v3_lag_summary": _of_no_cluster("/consumer-groups/billing/lag-summary"),
    "get_v3_lags": _of_no_cluster("/consumer-groups/billing/lags"),
    "get_v3_topic_configs": _of_no_cluster("/topics/flights/configs"),
    "get_v3_topic_config": _of_no_cluster("/topics/flights/configs/retention.ms"),
    "get_v3_replicas": _of_no_cluster("/topics/flights/partitions/2/replicas"),
    "get_v3_replica": _of_no_cluster("/topics/flights/partitions/2/replicas/1"),
    "get_v3_topics": _of_no_cluster("/topics"),
    "get_v3_topic": _of_no_cluster("/topics/flights"),
    "get_v3_partitions": _of_no_cluster("/topics/flights/partitions"),
    "get_v3_partition": _of_no_cluster("/topics/flights/partitions/2"),
    "get_v3_offsets": _of_no_cluster("/topics/flights/partitions/2/offset"),
    "get_health": Example("GET", "/health"),
    "mcp": Example("POST", "/mcp", **_json(CALL)),
}


def operations() -> Iterator[tuple[str, str, str]]:
    """Return name, method and path of all operations except HEAD."""
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            if method != "head":
                yield operation["operationId"], method.upper(), path


def is_of(example: Example, method: str, path: str) -> bool:
    """Return whether the request belongs to the operation."""
    pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))
    return method == example.method and re.fullmatch(pattern, example.path.partition("?")[0]) is not None


def events() -> dict[str, str]:
    """Return the content of each file of `events/`, by its path there."""
    found = {f"{example.function}/{name}.json": example.event() for name, example in EXAMPLES.items()}
    return {
        name: json.dumps(event, indent=1) + "\n"
        for name, event in {**found, "drain/queued.json": queued()}.items()
    }


def write_records(client: Client) -> None:
    """Write the records that the examples read, and wait until they are readable."""
    records = [
        ("flights", b"N14228", b'{"dest": "IAH"}'),
        ("flights", b"N24211", b'{"dest": "MIA"}'),
        ("joined", b"N14228", b'{"amount": 1}'),
        ("bookings", b"ann|2026-11-09", b'{"to": "Bern"}'),
    ]
    positions = [(topic, key, client.put(topic, key, value)) for topic, key, value in records]
    for topic, key, position in positions:
        assert client.get_at(topic, key, position).status == 200
    eventually(lambda: client.request("GET", "/views/puts/keys/N14228").status == 200, 60)


def queued() -> dict[str, Any]:
    """Return the drain function's event for one message with one record."""
    record = NewRecord("flights", b"N14228", json.dumps(FLIGHT).encode())
    batch = message_codec.MessageBatch(bytes(range(16)), int(NOW_S * 1000), "flights", ((0, record),))
    message = {
        "messageId": REQUEST_ID,
        "receiptHandle": "handle",
        "body": message_codec.to_body(message_codec.encode(batch)),
        "attributes": {"ApproximateReceiveCount": "1", "MessageGroupId": "flights-2"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:keylane-log.fifo",
        "awsRegion": "us-east-1",
    }
    return {"Records": [message]}


if __name__ == "__main__":
    for name, text in events().items():
        (EVENTS / name).parent.mkdir(parents=True, exist_ok=True)
        (EVENTS / name).write_text(text, encoding="utf-8")
