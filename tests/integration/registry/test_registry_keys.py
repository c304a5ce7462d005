"""Keys that confluent-kafka's own serializers wrote, asked for by their values, on a real cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from tests.servers import schema_registry as sr
from tests.support import lanes as t
from tests.support.served import Served

from keylane.adapters.redis.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ask = Callable[..., dict[str, Any]]

INT, LONG = (
    json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": kind}]})
    for kind in ("int", "long")
)
SECOND_MS = 1_000


@pytest.fixture
def ask(reading: Callable[[str], Ask], registry: sr.Registry) -> Ask:
    """`ask(path, **query)` returns the status and the document."""
    function = reading(registry.url)

    def request(path: str, method: str = "GET", body: bytes | None = None, **query: str) -> Any:
        answer = function(path, method=method, query=query or None, body=body)
        return answer["statusCode"], json.loads(answer["body"])

    return request


@pytest.fixture
def served(redis_cluster: str) -> Iterator[Served]:
    cluster = Cluster(t.settings(redis_cluster))
    yield Served(redis_cluster, cluster, index=True, history_count=10, key_format="registry")
    cluster.close()


def keys_of(registry: sr.Registry, topic: str, number: int) -> tuple[bytes, bytes]:
    """The key under the older and the newer of two schemas."""
    old, new = (sr.avro_key(registry.client, topic, schema, {"id": number}) for schema in (INT, LONG))
    return old, new


def test_records_under_several_schemas_are_one_key(ask: Ask, served: Served, registry: sr.Registry):
    topic, now_ms = served.topic, served.now_ms - 60 * SECOND_MS
    old, new = keys_of(registry, topic, 7)
    moments = [now_ms + number * SECOND_MS for number in range(4)]
    for key, value, at_ms in zip((old, new, new, old), (b"1", b"2", None, b"4"), moments, strict=True):
        served.put(key, value, at_ms)
    assert ask(f"/topics/{topic}/keys/7") == (200, 4)
    found = [ask(f"/topics/{topic}/keys/7", as_of=str(each + 1)) for each in moments]
    assert [status for status, _ in found] == [200, 200, 404, 200]
    assert [value for status, value in found if status == 200] == [1, 2, 4]
    shown: list[Any] = []
    query: dict[str, str] = {}
    for _ in range(5):
        status, page = ask(f"/topics/{topic}/keys/7/history", limit="1", **query)
        assert (status, page["key"], page["key_format"]) == (200, {"id": 7}, "json")
        shown += [each.get("value") for each in page["records"]]
        if "next" not in page:
            break
        query = {"cursor": page["next"]}
    assert shown == [4, None, 2, 1]
    status, page = ask(f"/topics/{topic}/keys", keys_only="true")
    assert page["records"] == [{"key": {"id": 7}, "key_format": "json"}]
    body = json.dumps({"keys": ["8", '{"id": 7}']}).encode()
    _, many = ask(f"/topics/{topic}/keys:read", "POST", body)
    assert [(each["key"], each.get("value")) for each in many["records"]] == [
        ({"id": 8}, None),
        ({"id": 7}, 4),
    ]
    status, refused = ask(f"/topics/{topic}/keys:read", "POST", body, atomic="true")
    assert (status, refused["parameter"]) == (400, "atomic")


def by_json_schema(registry: sr.Registry, topic: str) -> bytes:
    schema = {
        "title": "Key",
        "type": "object",
        "properties": {"region": {"type": "string"}, "n": {"type": "integer"}},
    }
    serializer = JSONSerializer(json.dumps(schema), registry.client, conf={"auto.register.schemas": True})
    written = serializer({"region": "eu", "n": 7}, SerializationContext(topic, MessageField.KEY))
    # Python's serializer puts white space into it, Java's does not.
    return written.replace(b": ", b":").replace(b", ", b",")


def by_protobuf(registry: sr.Registry, topic: str) -> bytes:
    file = FileDescriptorProto(name=f"{topic}.proto", package="keys", syntax="proto3")
    message = file.message_type.add(name="Key")
    for number, (name, kind) in enumerate((("region", 9), ("n", 5)), 1):
        message.field.append(FieldDescriptorProto(name=name, number=number, type=kind, label=1))
    key = sr.message_type([file], "keys.Key")(region="eu", n=7)
    context = SerializationContext(topic, MessageField.KEY)
    written: bytes = ProtobufSerializer(type(key), registry.client)(key, context)
    return written


@pytest.mark.parametrize("write", [by_json_schema, by_protobuf])
def test_keys_of_other_formats_are_found_by_their_fields(
    ask: Ask, served: Served, registry: sr.Registry, write
):
    served.put(write(registry, served.topic), b'{"n": 1}')
    status, found = ask(
        f"/topics/{served.topic}/keys/%7B%22n%22%3A7%2C%22region%22%3A%22eu%22%7D", envelope="true"
    )
    assert (status, found["key"], found["value"]) == (200, {"region": "eu", "n": 7}, {"n": 1})
    status, refused = ask(f"/topics/{served.topic}/keys/7")
    assert (status, refused["parameter"]) == (400, "key")
