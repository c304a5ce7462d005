"""librdkafka's statistics, as a real client and broker make them."""

from __future__ import annotations

import json

from tests.servers.own import create_topic, deadline, eventually
from tests.support.builders import kafka_settings, written

from keylane.adapters.kafka import producer as producer_kafka
from keylane.adapters.kafka.producer import KafkaProducer
from keylane.metrics.catalogue import BROKER, CLIENT, TOPIC
from keylane.metrics.emf import EmfLog
from keylane.metrics.meter import Meter

TOPIC_NAME = "statistics"


def test_statistics_of_client_brokers_and_topics_are_counted_as_they_grow(kafka, monkeypatch):
    monkeypatch.setattr(producer_kafka, "STATISTICS_MS", 50)
    create_topic(kafka, TOPIC_NAME, 1)
    chunks: list[str] = []
    meter = Meter(EmfLog("Keylane", chunks.append))
    producer = KafkaProducer(kafka_settings(kafka), meter=meter)
    sent = 0

    def counted():
        meter.flush()
        return [json.loads(line) for chunk in chunks for line in chunk.splitlines()]

    def total():
        nonlocal sent
        for _ in range(5):
            written(producer, TOPIC_NAME, b"k", b"x" * 100, deadline(10_000))
        sent += 5
        return sum(line.get("ProducedMessages", 0) for line in counted())

    eventually(lambda: total() >= 20 and any("TopicBatchBytes" in line for line in counted()))
    producer.close()
    lines = counted()
    # The growth of each total is counted: the sum is the total again.
    assert sum(line.get("ProducedMessages", 0) for line in lines) <= sent
    assert {name for name, _ in CLIENT.values()} <= set().union(*lines)
    brokers = [line for line in lines if "BrokerState" in line and line["broker"].startswith(kafka)]
    assert brokers[-1]["BrokerState"] == 6
    assert brokers[-1]["BrokerRoundTrip"] > 0
    assert not any("BrokerSendErrors" in line for line in brokers)
    assert {name for name, metric in BROKER.values() if metric.kind == "gauge"} <= brokers[-1].keys()
    topics = [line for line in lines if "TopicBatchBytes" in line]
    assert {line["topic"] for line in topics} == {TOPIC_NAME}
    assert {name for name, _ in TOPIC.values()} <= topics[-1].keys()
    assert topics[-1]["TopicBatchMessages"] >= 1


def test_with_metrics_off_the_client_makes_no_statistics(kafka, monkeypatch):
    monkeypatch.setattr(producer_kafka, "STATISTICS_MS", 50)
    create_topic(kafka, "no-statistics", 1)
    producer = KafkaProducer(kafka_settings(kafka))
    taken: list[str] = []
    monkeypatch.setattr(producer._metrics, "statistics", taken.append)
    for _ in range(20):
        written(producer, "no-statistics", b"k", b"x", deadline(10_000))
    producer._open[False].client.poll(0.2)
    producer.close()
    assert taken == []
