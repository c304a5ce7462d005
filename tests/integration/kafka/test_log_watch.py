"""What the job asks Kafka again and again is asked of the leaders, and shows when anything has changed."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from tests.servers.own import create_topic, eventually

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable
from keylane_spark.log.kafka_admin import JobKafka
from keylane_spark.log.log_watch import LogWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS = itertools.count()


@pytest.fixture
def topic(kafka: str) -> str:
    name = f"watched-{next(NUMBERS)}"
    create_topic(kafka, name, 3)

    def has_leaders() -> bool:
        with suppress(LogUnavailable):
            return len(JobKafka(Connection(kafka)).end_offsets({name: 3})) == 3
        return False

    eventually(has_leaders)
    return name


@pytest.fixture
def watch(kafka: str, topic: str) -> Iterator[LogWatch]:
    found = LogWatch(lambda: Connection(kafka), {topic: 3}, [topic])
    yield found
    found.close()


def produce(kafka: str, topic: str, partition: int) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, b"value", partition=partition)
    assert producer.flush(60) == 0


def test_the_ends_are_those_that_librdkafka_finds_before_and_after_each_record(kafka, topic, watch):
    admin = JobKafka(Connection(kafka))
    for count in range(4):
        found = watch.ends()
        assert found.ends == admin.ends({topic: 3})
        assert found.away == {}
        assert found.ends[topic, 1].offset == count
        assert watch.ends() is found
        produce(kafka, topic, 1)
    assert found.ends[topic, 0].leader_epoch is not None


def test_the_ends_of_committed_records_stay_before_an_open_transaction(kafka, topic, watch):
    open_ = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    open_.init_transactions(60)
    open_.begin_transaction()
    open_.produce(topic, b"value", partition=1)
    assert open_.flush(60) == 0
    assert watch.ends().ends[topic, 1].offset == 1
    assert watch.ends(committed=True).ends[topic, 1].offset == 0
    open_.commit_transaction(60)
    eventually(lambda: watch.ends(committed=True).ends[topic, 1].offset == 2)


def test_topics_are_the_same_until_one_of_them_changes(kafka, topic, watch):
    before = watch.topics()
    produce(kafka, topic, 0)
    assert watch.topics() == before
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    eventually(lambda: watch.topics() != before)
    grown = watch.topics()
    admin.delete_topics([topic])[topic].result(60)
    eventually(lambda: watch.topics() != grown)
    eventually(lambda: len(watch.ends().away) == 3)
    assert watch.ends().ends == {}
    gone = watch.topics()
    assert gone == {}
    create_topic(kafka, topic, 4)
    eventually(lambda: watch.topics() not in (before, grown, gone))


def test_a_topic_that_is_missing_has_no_ends(kafka):
    watch = LogWatch(lambda: Connection(kafka), {f"missing-{next(NUMBERS)}": 1}, [])
    found = watch.ends()
    watch.close()
    assert found.ends == {}
    assert all("UnknownTopicOrPartition" in why for why in found.away.values())


def test_a_kept_connection_that_has_broken_is_replaced_at_once(topic, watch):
    before = watch.ends()
    for broker in watch._session._broker._sockets.values():
        broker._socket.close()
    assert watch.ends() == before
    assert watch.topics()


def test_without_a_broker_it_says_so():
    watch = LogWatch(lambda: Connection("localhost:1"), {"t": 1}, ["t"], timeout_s=0.2)
    with pytest.raises(LogUnavailable, match="Kafka can't be asked: KafkaTimeoutError"):
        watch.ends()
