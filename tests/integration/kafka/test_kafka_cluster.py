"""The brokers that other tests break lose records as brokers do."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from tests.servers.kafka_cluster import UNCLEAN
from tests.servers.own import create_topic, eventually, records_of

from keylane.adapters.kafka.options import Connection
from keylane.errors import KeylaneError
from keylane_spark.log.fetches import PlannedRange
from keylane_spark.log.kafka_admin import JobKafka
from keylane_spark.log.log_reader import LogRangeReader


def produce(bootstrap: str, topic: str, *values: bytes) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, b"key", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None] * len(values)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_leader_that_was_not_in_sync_loses_acknowledged_records_and_writes_others_in_their_place(brokers):
    topic = "unclean"
    create_topic(brokers.bootstrap, topic, 1, replication=3, config=UNCLEAN)
    produce(brokers.bootstrap, topic, b"kept")
    leader = brokers.leader(topic)
    others = sorted(brokers.brokers.keys() - {leader})
    for number in others:
        brokers.brokers[number].stop()
    eventually(lambda: brokers.in_sync(topic) == {leader})
    produce(brokers.bootstrap, topic, b"lost", b"lost too")
    brokers.elect(others[0], topic)
    produce(brokers.bootstrap, topic, b"in its place")
    assert records_of(brokers.bootstrap, topic, 0) == [(b"key", b"kept"), (b"key", b"in its place")]
    brokers.start()
    brokers.wait_ready()
    eventually(lambda: brokers.in_sync(topic) == {1, 2, 3})
    assert records_of(brokers.bootstrap, topic, 0) == [(b"key", b"kept"), (b"key", b"in its place")]


@pytest.mark.timeout(600)
def test_a_range_is_not_read_on_from_a_new_leader(brokers):
    """Its lanes were not compared with that leader's log: the next query reads it."""
    topic, count = "moved", 12
    create_topic(brokers.bootstrap, topic, 1, replication=3)
    produce(brokers.bootstrap, topic, *[b"x" * 600_000] * count)
    leader = brokers.leader(topic)
    epoch = JobKafka(Connection(brokers.bootstrap)).ends({topic: 1})[topic, 0].leader_epoch
    reader = LogRangeReader(Connection(brokers.bootstrap), retry_budget_s=5)
    rows = reader.read(PlannedRange(topic, 0, 0, count, epoch), committed=True, with_headers=False)
    seen = next(rows).offsets.tolist()
    brokers.brokers[leader].stop()
    eventually(lambda: brokers.leader(topic) not in (-1, leader))
    with pytest.raises(KeylaneError):  # noqa: PT012 (what came before is looked at)
        for more in rows:
            seen += more.offsets.tolist()
    reader.close()
    assert seen == list(range(len(seen)))
    assert len(seen) < count
    unpinned = LogRangeReader(Connection(brokers.bootstrap), retry_budget_s=20)
    found = [
        offset
        for each in unpinned.read(PlannedRange(topic, 0, 0, count), committed=True, with_headers=False)
        for offset in each.offsets.tolist()
    ]
    unpinned.close()
    brokers.start()
    brokers.wait_ready()
    assert found == list(range(count))
