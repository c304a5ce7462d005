"""The real servers of a recording, and what requests need to know of them."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import secrets
import socket
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from tests.contract.hosts.case import Names
from tests.contract.hosts.seeding import KEPT, seed
from tests.contract.hosts.topics import OUT, OUT_CONFIG
from tests.servers import schema_registry as sr
from tests.servers.own import eventually
from tests.support import lanes as t

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message
    from tests.servers.aws import Aws

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "namespace": "org.example",
        "fields": [
            {"name": "dest", "type": "string"},
            {"name": "delay", "type": ["null", "int"]},
            {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
JSON = json.dumps({"title": "Flight", "type": "object", "properties": {"dest": {"type": "string"}}})
LIMITS = b"{keylane:limit:*"
STRING, INT64 = 9, 3


@dataclass(frozen=True, slots=True)
class Servers:
    """Where they are; `hole`: an address that accepts connections and never answers; `away`: it doesn't."""

    redis: str
    kafka: str
    registry: str
    aws: Aws
    cluster: str
    hole: str
    schemas: SchemaRegistryClient
    away: str = "127.0.0.1:1"

    def names(self) -> Names:
        """The names of a new run."""

        def register(subject: str, schema: str, kind: str) -> int:
            return int(self.schemas.register_schema(subject, Schema(schema, kind)))

        # Behind all other topics, wherever topics are in order.
        return Names(f"zz{secrets.token_hex(4)}", self.cluster, register)

    def create(self, names: Names) -> None:
        """Create the run's topics, and wait until the broker knows them."""
        admin = AdminClient({"bootstrap.servers": self.kafka})
        topics = [
            NewTopic(names.out(kind), count, 1, config={**KEPT, **OUT_CONFIG.get(kind, {})})
            for kind, count in OUT.items()
        ]
        for created in admin.create_topics(topics).values():
            created.result(30)

        def are_known() -> bool:
            known = admin.list_topics(timeout=10).topics
            found = [known[each.topic].partitions for each in topics if each.topic in known]
            leaders = [each.leader for partitions in found for each in partitions.values()]
            return len(leaders) == sum(OUT.values()) and min(leaders) >= 0

        eventually(are_known)

    def delete(self, names: Names) -> None:
        """Delete the run's topics, and wait until the broker has forgotten them."""
        admin = AdminClient({"bootstrap.servers": self.kafka})
        deleted = admin.delete_topics([names.out(kind) for kind in OUT])
        for each in deleted.values():
            each.result(30)
        eventually(lambda: not deleted.keys() & admin.list_topics(timeout=10).topics.keys())

    def written(self, names: Names) -> dict[str, list[Message]]:
        """All records of each of the run's topics, by its kind."""
        kinds = {names.out(kind): kind for kind in OUT}
        found: dict[str, list[Message]] = {kind: [] for kind in OUT}
        options = {"bootstrap.servers": self.kafka, "group.id": "hosts", "enable.auto.commit": False}
        with contextlib.closing(Consumer(options)) as consumer:
            places = [
                TopicPartition(topic, each, 0) for topic, kind in kinds.items() for each in range(OUT[kind])
            ]
            left = sum(_end_of(consumer, place) for place in places)
            consumer.assign(places)
            while left:
                batch = consumer.consume(left, 20)
                assert batch, f"there are {left} records fewer than offsets say"
                assert not any(each.error() for each in batch)
                left -= len(batch)
                for message in batch:
                    found[kinds[str(message.topic())]].append(message)
        return found

    def forget_limits(self) -> None:
        """Remove what earlier runs have taken from rate limits: callers are the same in all of them."""
        with t.client(self.redis) as client:
            for key in list(client.scan_iter(match=LIMITS, count=1000, target_nodes="primaries")):
                client.delete(key)


def _end_of(consumer: Consumer, place: TopicPartition) -> int:
    """The number of a partition's records. A partition that was just created may not know its leader yet."""
    ends: list[int] = []

    def is_known() -> bool:
        with contextlib.suppress(KafkaException):
            ends.append(consumer.get_watermark_offsets(place, timeout=10)[1])
        return bool(ends)

    eventually(is_known)
    return ends[0]


@contextlib.contextmanager
def prepared(redis: str, kafka: str, registry: str, aws: Aws) -> Iterator[Servers]:
    """Fill running servers with what the corpus reads."""
    client = SchemaRegistryClient({"url": registry, "timeout": 20})
    transaction = seed(redis, kafka, _registered_values(client))
    cluster = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).cluster_id
    with contextlib.closing(client), socket.create_server(("127.0.0.1", 0), backlog=256) as hole:
        yield Servers(redis, kafka, registry, aws, cluster, f"127.0.0.1:{hole.getsockname()[1]}", client)
        with contextlib.suppress(
            KafkaException
        ):  # the broker ended it already, if all of this took that long
            transaction.abort_transaction(60)


def _registered_values(client: Any) -> dict[bytes, bytes]:
    """Values as producers' own serializers write them, by key."""
    fields = [
        FieldDescriptorProto(name="dest", number=1, type=STRING, label=1),
        FieldDescriptorProto(name="flight_number", number=2, type=INT64, label=1),
    ]
    file = FileDescriptorProto(
        name="flight.proto",
        package="org.example",
        syntax="proto3",
        message_type=[DescriptorProto(name="Flight", field=fields)],
    )
    flight = sr.message_type([file], "org.example.Flight")
    at = dt.datetime(2013, 1, 1, 10, tzinfo=dt.UTC)
    avro = {"dest": "SFO", "delay": None, "fare": Decimal("12.50"), "at": at}
    return {
        b"r-avro": sr.avro(client, "hosts-avro", AVRO, avro),
        b"r-json": sr.json_schema(client, "hosts-json", JSON, {"dest": "SFO", "n": 1}),
        b"r-protobuf": sr.protobuf(client, "hosts-protobuf", flight(dest="SFO", flight_number=7)),
    }
