"""KEYLANE_KAFKA_CLIENT_RACK: raw records come from the replica of the function's rack, on real brokers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.servers.own import create_topic, deadline, eventually

from keylane.adapters.kafka.admin import KafkaAdmin, ReaderSettings
from keylane.adapters.kafka.reader import KafkaReader
from keylane.config.functions import ExploreSettings
from keylane.model.kafka import LogRange

if TYPE_CHECKING:
    from tests.servers.kafka_cluster import KafkaCluster

TOPIC = "near"
VALUES = [b"%d" % number for number in range(5)]


@pytest.fixture(scope="module")
def written(brokers: KafkaCluster) -> KafkaCluster:
    """All replicas have the records of the topic."""
    create_topic(brokers.bootstrap, TOPIC, 1, replication=3)
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
    for value in VALUES:
        producer.produce(TOPIC, value)
    assert producer.flush(60) == 0
    eventually(lambda: brokers.in_sync(TOPIC) == set(brokers.racks))
    return brokers


@dataclass(frozen=True)
class WatchedSettings(ReaderSettings):
    """Settings whose clients report librdkafka's statistics."""

    statistics: list[dict[str, Any]] = field(default_factory=list)

    def configuration(self) -> dict[str, Any]:
        def keep(text: str) -> None:
            self.statistics.append(json.loads(text))

        return {**ReaderSettings.configuration(self), "statistics.interval.ms": 10, "stats_cb": keep}

    def fetches(self) -> dict[int, int]:
        """Broker -> how many requests for records it got from the consumer that reported last."""
        found = [each for each in self.statistics if each["type"] == "consumer"]
        brokers = found[-1]["brokers"].values() if found else ()
        return {each["nodeid"]: each["req"].get("Fetch", 0) for each in brokers if each["nodeid"] > 0}

    def sources(self) -> set[int]:
        """The brokers from which the partition's records were fetched."""
        topics = [each["topics"].get(TOPIC) for each in self.statistics if each["type"] == "consumer"]
        return {
            each["partitions"]["0"]["broker"] for each in topics if each and "0" in each["partitions"]
        } - {-1}


def settings_of(**environment: str) -> WatchedSettings:
    """The settings that the explore function reads from its environment."""
    found = ExploreSettings.from_environment(environment).clusters.default
    return WatchedSettings(**{each.name: getattr(found, each.name) for each in fields(found)})


def read(reader: KafkaReader) -> list[bytes | None]:
    [batch] = reader.read([LogRange(TOPIC, 0, 0, len(VALUES), 100)], 1_000_000, deadline(20_000))
    return [each.value for each in batch.records]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_near", [True, False], ids=["with a rack", "without one"])
def test_records_are_fetched_from_the_replica_of_the_rack(written: KafkaCluster, is_near: bool):
    leader = written.leader(TOPIC)
    near = next(number for number in written.racks if number != leader)
    rack = {"KEYLANE_KAFKA_CLIENT_RACK": written.racks[near]} if is_near else {}
    settings = settings_of(KEYLANE_KAFKA_BOOTSTRAP=written.bootstrap, **rack)
    admin = KafkaAdmin(settings)
    reader = KafkaReader(admin)
    source = near if is_near else leader

    def is_seen() -> bool:
        # A replica does not have them before it has heard of the high watermark.
        is_read = read(reader) == VALUES
        return is_read and settings.fetches().get(source, 0) > 1 and source in settings.sources()

    eventually(is_seen)
    others = set(written.racks) - {leader, source}
    assert not any(settings.fetches().get(number, 0) for number in others)
    # A new consumer asks the leader first, which names the near replica.
    assert settings.sources() <= {leader, source}
    reader.close()
    admin.close()
