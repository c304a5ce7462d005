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
from keylane_spark.adapters.kafka_admin import JobKafka
from keylane_spark.adapters.log_watch import LogWatch

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
        ends = watch.ends()
        assert ends == admin.ends({topic: 3}) == watch.ends()
        assert ends[topic, 1].offset == count
        produce(kafka, topic, 1)
    assert ends[topic, 0].leader_epoch is not None


def test_an_answer_that_is_changed_by_its_reader_is_not_the_next_one(topic, watch):
    watch.ends().clear()
    assert len(watch.ends()) == 3


def test_topics_are_the_same_until_one_of_them_changes(kafka, topic, watch):
    before = watch.topics()
    produce(kafka, topic, 0)
    assert watch.topics() == before
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    eventually(lambda: watch.topics() != before, 60)
    grown = watch.topics()
    admin.delete_topics([topic])[topic].result(60)
    eventually(lambda: watch.topics() != grown, 60)
    with pytest.raises(LogUnavailable):
        watch.ends()
    gone = watch.topics()
    create_topic(kafka, topic, 4)
    eventually(lambda: watch.topics() not in (before, grown, gone), 60)


def test_a_topic_that_is_missing_has_no_ends(kafka):
    watch = LogWatch(lambda: Connection(kafka), {f"missing-{next(NUMBERS)}": 1}, [])
    with pytest.raises(LogUnavailable, match="UnknownTopicOrPartition"):
        watch.ends()
    watch.close()


def test_a_kept_connection_that_has_broken_is_replaced_at_once(topic, watch):
    before = watch.ends()
    for broker in watch._session.broker._sockets.values():
        broker._socket.close()
    assert watch.ends() == before


def test_without_a_broker_it_says_so():
    watch = LogWatch(lambda: Connection("localhost:1"), {"t": 1}, ["t"], timeout_s=0.2)
    with pytest.raises(LogUnavailable, match="Kafka can't be asked: KafkaTimeoutError"):
        watch.ends()
