"""A topic in Kafka, with its state: for what reads both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.servers.own import create_topic
from tests.support.builders import lane_of

if TYPE_CHECKING:
    from tests.support.served import Served


class LoggedTopic:
    """A topic in Kafka, whose records are in the state at the same positions."""

    def __init__(self, served: Served, bootstrap: str) -> None:
        self.served = served
        self.name = served.topic
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        create_topic(bootstrap, self.name, served.layout.partition_count)

    def put(self, key: bytes, value: bytes | None) -> str:
        self._producer.produce(self.name, value, key, lane_of(self.served.layout, key)[0])
        assert self._producer.flush(30) == 0
        return self.served.put(key, value)

    def truncate(self) -> None:
        """Remove all records from the log, as retention does; the state keeps them."""
        partitions = range(self.served.layout.partition_count)
        ends = [TopicPartition(self.name, each, OFFSET_END) for each in partitions]
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for done in admin.delete_records(ends, request_timeout=30).values():
            done.result(30)
