"""The ports Metadata and LogReader: one suite for the fake and for Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.servers.own import create_topic, deadline, eventually
from tests.support.builders import a_topic, reader_settings
from tests.support.fakes import FakeKafka

from keylane.adapters.kafka.admin import KafkaAdmin, KafkaMetadata
from keylane.adapters.kafka.reader import KafkaReader
from keylane.errors import LogUnavailable, UnknownTopic
from keylane.model.kafka import EARLIEST, LATEST, MAX, READ_COMMITTED, READ_UNCOMMITTED, LogRange, LogRecord
from keylane.model.kafka_groups import BROKER, TOPIC, SettingOwner, SettingSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane.explore.ports import ClusterMetadata
    from keylane.ports import LogReader

IN_TIME_MS = 15_000
RECORDS = (
    LogRecord(0, b"k", b"v", 1_000, "CreateTime", (("a", b"1"), ("a", None), ("b", b"\xff"))),
    LogRecord(1, None, b"", 5_000, "CreateTime"),
    LogRecord(2, b"\xff\x00", None, 2_000, "CreateTime"),
    LogRecord(3, b"", b"x" * 1_000, 5_000, "CreateTime"),
    LogRecord(4, b"k", b"last", 3_000, "CreateTime"),
)


@dataclass
class Held:
    """A Kafka, how to make a topic of so many partitions, and how to write to one of them."""

    metadata: ClusterMetadata
    reader: LogReader
    create: Callable[[str, int], None]
    write: Callable[[str, int, tuple[LogRecord, ...]], None]
    consume: Callable[[str, str, dict[int, int]], object]
    """Makes a group with one member, which reads all of a topic, and has committed offsets by partition."""

    def read(self, topic: str, partition: int = 1, **wanted):
        asked = {"offset": 0, "end": 5, "limit": 100, "max_bytes": 1 << 20} | wanted
        max_bytes = asked.pop("max_bytes")
        [batch] = self.reader.read([LogRange(topic, partition, **asked)], max_bytes, deadline(IN_TIME_MS))
        return batch

    def offset(self, topic: str, at: str | int, isolation: str = READ_COMMITTED) -> int | None:
        (found,) = self.reader.offsets(topic, 1, (at,), isolation, deadline(IN_TIME_MS))
        return found and found.offset


def test_each_broker_reports_the_versions_of_its_apis(held: Held):
    for broker in held.metadata.cluster(deadline(IN_TIME_MS)).brokers:
        found = held.metadata.api_versions(broker, deadline(IN_TIME_MS))
        assert list(found) == sorted(found)
        produce = next(each for each in found if each.api_key == 0)
        assert 0 <= produce.min_version < produce.max_version
        assert any(each.api_key == 18 for each in found)


def write(bootstrap: str, topic: str, partition: int, records: tuple[LogRecord, ...]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            timestamp=record.timestamp_ms,
            headers=list(record.headers or ()),
        )
    assert producer.flush(20) == 0


def consume(bootstrap: str, group: str, topic: str, committed: dict[int, int]) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "client",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "range",
        }
    )
    consumer.subscribe([topic])

    def has_joined() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    eventually(has_joined)
    offsets = [TopicPartition(topic, number, offset) for number, offset in committed.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    return consumer


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.integration)])
def held(request: pytest.FixtureRequest) -> Iterator[Held]:
    if request.param == "fake":
        fake = FakeKafka()
        yield Held(
            fake,
            fake,
            fake.create,
            lambda topic, p, records: fake.logs[topic][p].add(*records),
            fake.consume,
        )
        return
    bootstrap = request.getfixturevalue("kafka")
    settings = reader_settings(bootstrap)
    admin = KafkaAdmin(settings)
    reader = KafkaReader(admin)
    consumers: list[Consumer] = []
    yield Held(
        KafkaMetadata(admin),
        reader,
        lambda topic, count: create_topic(bootstrap, topic, count),
        lambda topic, partition, records: write(bootstrap, topic, partition, records),
        lambda group, topic, committed: consumers.append(consume(bootstrap, group, topic, committed)),
    )
    for consumer in consumers:
        consumer.close()
    reader.close()
    admin.close()


@pytest.fixture
def topic(held: Held) -> str:
    """A topic of three partitions, the records in its second."""
    name = a_topic()
    held.create(name, 3)
    held.write(name, 1, RECORDS)
    return name


def test_the_first_offset_of_a_partition_with_and_without_records(held: Held, topic: str):
    assert [held.reader.first_offset(topic, number, deadline(IN_TIME_MS)) for number in (0, 1)] == [0, 0]


@pytest.mark.integration
def test_a_consumer_asks_for_the_first_offset(kafka: str, monkeypatch: pytest.MonkeyPatch):
    """`keylane serve` does it for streams, and the admin client may abort its process."""
    topic = a_topic()
    create_topic(kafka, topic, 1)
    write(kafka, topic, 0, RECORDS)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_records([TopicPartition(topic, 0, 3)])[TopicPartition(topic, 0)].result(20)
    monkeypatch.setattr(KafkaAdmin, "_make_client", lambda _: pytest.fail("an admin client is made"))
    reader = KafkaReader(KafkaAdmin(reader_settings(kafka)))
    assert reader.first_offset(topic, 0, deadline(IN_TIME_MS)) == 3
    reader.close()


def test_topics_are_described_with_their_settings(held: Held, topic: str):
    found = held.metadata.describe([topic, a_topic()], deadline(IN_TIME_MS))
    assert found == {topic: held.metadata.topic(topic, deadline(IN_TIME_MS))}
    assert held.metadata.describe([], deadline(IN_TIME_MS)) == {}
    assert held.metadata.settings(topic, deadline(IN_TIME_MS))["cleanup.policy"] == "delete"
    with pytest.raises(UnknownTopic):
        held.metadata.settings(a_topic(), deadline(IN_TIME_MS))


def test_settings_of_a_topic_and_of_a_broker_say_where_their_values_come_from(held: Held, topic: str):
    of_topic = held.metadata.all_settings(SettingOwner(TOPIC, topic), deadline(IN_TIME_MS))
    assert of_topic == sorted(of_topic)
    [policy] = [each for each in of_topic if each.name == "cleanup.policy"]
    assert policy[:6] == ("cleanup.policy", "delete", "DEFAULT_CONFIG", True, False, False)
    assert SettingSource("log.cleanup.policy", "delete", "DEFAULT_CONFIG") in policy.synonyms
    number = held.metadata.cluster(deadline(IN_TIME_MS)).brokers[0].number
    of_broker = held.metadata.all_settings(SettingOwner(BROKER, str(number)), deadline(IN_TIME_MS))
    assert [each.value for each in of_broker if each.name == "log.cleanup.policy"] == ["delete"]
    with pytest.raises(UnknownTopic):
        held.metadata.all_settings(SettingOwner(TOPIC, a_topic()), deadline(IN_TIME_MS))


def test_a_consumer_group_has_members_and_committed_offsets(held: Held, topic: str):
    group = a_topic()
    held.consume(group, topic, {1: 3, 2: 0})
    assert group in held.metadata.groups(deadline(IN_TIME_MS))
    [found] = held.metadata.describe_groups([group, a_topic()], deadline(IN_TIME_MS))
    assert found[:5] == (group, "STABLE", False, "range", 1)
    [member] = found.members
    assert (bool(member.member_id), member.client_id, member.instance_id) == (True, "client", None)
    assert sorted(member.partitions) == [(topic, number) for number in range(3)]
    assert held.metadata.committed(group, deadline(IN_TIME_MS)) == {(topic, 1): 3, (topic, 2): 0}
    for others in ([], ["\0"], [f"{group}\0"], [f"{group}\0b", "\0"]):
        assert held.metadata.describe_groups(others, deadline(IN_TIME_MS)) == []


def test_ends_are_those_of_the_partitions_that_exist(held: Held, topic: str):
    asked = [(topic, 0), (topic, 1), (a_topic(), 0)]
    assert held.metadata.ends(asked, deadline(IN_TIME_MS)) == {(topic, 0): 0, (topic, 1): 5}
    assert held.metadata.ends([], deadline(IN_TIME_MS)) == {}


def test_topics_and_their_partitions_are_told(held: Held, topic: str):
    assert held.metadata.topics(deadline(IN_TIME_MS))[topic] == 3
    found = held.metadata.topic(topic, deadline(IN_TIME_MS))
    assert (found.name, found.internal, bool(found.topic_id)) == (topic, False, True)
    assert [each.number for each in found.partitions] == [0, 1, 2]
    cluster = held.metadata.cluster(deadline(IN_TIME_MS))
    (broker,) = cluster.brokers
    assert cluster.cluster_id
    assert cluster.controller == broker.number
    for each in found.partitions:
        assert (each.leader, each.replicas, each.in_sync) == (
            broker.number,
            (broker.number,),
            (broker.number,),
        )


def test_an_unknown_topic_fails_each_time_and_is_found_once_it_is_created(held: Held):
    name = a_topic()
    for _ in range(2):
        with pytest.raises(UnknownTopic, match=name):
            held.metadata.topic(name, deadline(IN_TIME_MS))
    assert name not in held.metadata.topics(deadline(IN_TIME_MS))
    held.create(name, 1)
    assert len(held.metadata.topic(name, deadline(IN_TIME_MS)).partitions) == 1


def test_records_are_read_as_they_were_written(held: Held, topic: str):
    batch = held.read(topic)
    assert batch.records == RECORDS
    assert batch.next_offset == 5


@pytest.mark.parametrize("offset", [0, 3, 4])
def test_records_are_read_from_any_offset_again_and_again(held: Held, topic: str, offset: int):
    for _ in range(3):
        assert held.read(topic, offset=offset).records == RECORDS[offset:]


def test_no_more_records_are_given_than_are_asked_for(held: Held, topic: str):
    batch = held.read(topic, limit=2)
    assert (batch.records, batch.next_offset) == (RECORDS[:2], 2)
    batch = held.read(topic, offset=1, end=3)
    assert (batch.records, batch.next_offset) == (RECORDS[1:3], 3)


def test_no_more_bytes_are_given_than_are_asked_for_but_one_record_is(held: Held, topic: str):
    batch = held.read(topic, offset=1, max_bytes=1_001)
    assert (batch.records, batch.next_offset) == (RECORDS[1:3], 3)
    batch = held.read(topic, offset=1, max_bytes=1_002)
    assert (batch.records, batch.next_offset) == (RECORDS[1:4], 4)
    batch = held.read(topic, offset=3, max_bytes=1)
    assert (batch.records, batch.next_offset) == (RECORDS[3:4], 4)


def test_several_partitions_are_read_at_once(held: Held):
    name = a_topic()
    held.create(name, 4)
    written = {0: RECORDS[:2], 1: (), 2: RECORDS[:4], 3: RECORDS[:1]}
    for partition, records in written.items():
        held.write(name, partition, records)
    wanted = [LogRange(name, partition, 0, end, 3) for partition, end in {2: 100, 0: 2, 1: 9, 3: 1}.items()]
    for _ in range(3):
        found = held.reader.read(wanted, 1 << 20, deadline(IN_TIME_MS))
        assert [each.records for each in found] == [RECORDS[:3], RECORDS[:2], (), RECORDS[:1]]
        assert [each.next_offset for each in found] == [3, 2, 0, 1]


def test_all_partitions_together_have_no_more_bytes_than_are_asked_for(held: Held):
    name = a_topic()
    held.create(name, 3)
    for partition in range(3):
        held.write(name, partition, RECORDS)
    offsets, read = dict.fromkeys(range(3), 0), 0
    while read < 3 * len(RECORDS):
        wanted = [LogRange(name, each, offset, 5, 100) for each, offset in offsets.items() if offset < 5]
        found = held.reader.read(wanted, 1_010, deadline(IN_TIME_MS))
        records = [record for each in found for record in each.records]
        assert 1 <= len(records) < 2 * len(RECORDS)
        assert sum(len(each.key or b"") + len(each.value or b"") for each in records) <= 1_010
        offsets |= {each.partition: batch.next_offset for each, batch in zip(wanted, found, strict=True)}
        read += len(records)
    assert offsets == dict.fromkeys(range(3), 5)


def test_offsets_are_found_by_place_and_time(held: Held, topic: str):
    assert [held.offset(topic, at) for at in (EARLIEST, LATEST)] == [0, 5]
    assert held.offset(topic, LATEST, READ_UNCOMMITTED) == 5
    assert held.offset(topic, MAX) == 1
    assert [held.offset(topic, ms) for ms in (0, 1_000, 1_001, 5_000, 5_001)] == [0, 0, 1, 1, None]
    found = held.reader.offsets(topic, 1, (MAX, EARLIEST), READ_COMMITTED, deadline(IN_TIME_MS))
    assert [each and each.timestamp_ms for each in found] == [5_000, None]


def test_an_empty_partition_has_ends_and_no_records(held: Held, topic: str):
    ats = (EARLIEST, LATEST, MAX, 0)
    found = held.reader.offsets(topic, 0, ats, READ_COMMITTED, deadline(IN_TIME_MS))
    assert [each and each.offset for each in found] == [0, 0, None, None]


def test_deadline_that_is_over_is_log_unavailable(held: Held, topic: str):
    over = deadline(0)
    for ask in (held.metadata.cluster, held.metadata.topics, lambda end: held.metadata.topic(topic, end)):
        with pytest.raises(LogUnavailable):
            ask(over)
    with pytest.raises(LogUnavailable):
        held.reader.offsets(topic, 1, (LATEST,), READ_COMMITTED, over)
    with pytest.raises(LogUnavailable):
        held.reader.read([LogRange(topic, 1, 0, 5, 10)], 100, over)
    assert held.read(topic).records == RECORDS
