"""The port Log: one suite for the fake and for Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import create_topic, deadline, records_of
from tests.support.builders import a_topic, kafka_settings, written
from tests.support.fakes import FakeLog

from keylane import routing
from keylane.adapters.kafka.producer import KafkaProducer
from keylane.errors import LogUnavailable, ProduceFailed, UnknownPartition, UnknownTopic
from keylane.model.records import NewRecord, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane.ports import Log


@dataclass
class Held:
    """A log, how to make a topic in it, and what it holds; `partition_by`: the setting, by topic."""

    log: Log
    create: Callable[[str], None]
    records: Callable[[str, int], list[tuple[bytes | None, bytes | None]]]
    partition_by: dict[str, str]

    def append(self, topic: str, key: bytes, value: bytes | None, milliseconds: float = 10_000) -> Position:
        return written(self.log, topic, key, value, deadline(milliseconds))


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.integration)])
def held(request: pytest.FixtureRequest) -> Iterator[Held]:
    if request.param == "fake":
        fake = FakeLog()
        yield Held(
            fake,
            lambda topic: fake.create(topic, 9),
            lambda topic, p: fake.topics[topic][p],
            fake.partition_by,
        )
        return
    bootstrap = request.getfixturevalue("kafka")
    partition_by: dict[str, str] = {}
    log = KafkaProducer(kafka_settings(bootstrap, partition_by=partition_by))
    yield Held(
        log,
        lambda topic: create_topic(bootstrap, topic),
        lambda topic, partition: records_of(bootstrap, topic, partition),
        partition_by,
    )
    log.close()


@pytest.fixture
def topic(held: Held) -> str:
    name = a_topic()
    held.create(name)
    return name


def test_each_record_of_a_key_has_the_next_offset(held: Held, topic: str):
    partition = routing.partition_for(b"k", 9)
    assert [held.append(topic, b"k", b"%d" % n) for n in range(3)] == [
        Position(partition, n) for n in range(3)
    ]


def test_keys_go_where_readers_look_for_them(held: Held, topic: str):
    for number in range(40):
        key = b"\xff%d" % number
        assert held.append(topic, key, b"v").partition == routing.partition_for(key, 9)


def test_keys_go_by_the_part_that_their_topic_is_partitioned_by(held: Held, topic: str):
    held.partition_by[topic] = "prefix:|"
    for name in (b"ann", b"bob", b"\xff", b""):
        partition = routing.partition_for(name, 9)
        for key in (b"%b|%d" % (name, number) for number in range(5)):
            assert held.append(topic, key, b"v").partition == partition
            assert held.append(topic, key, None).partition == partition
    assert held.append(topic, b"whole", b"v").partition == routing.partition_for(b"whole", 9)


def test_tombstones_and_empty_values_are_kept_apart(held: Held, topic: str):
    partition = held.append(topic, b"k", b"").partition
    held.append(topic, b"k", None)
    held.append(topic, b"k", bytes(range(256)))
    assert held.records(topic, partition) == [(b"k", b""), (b"k", None), (b"k", bytes(range(256)))]


def test_largest_key_and_value_are_taken_together(held: Held, topic: str):
    assert held.append(topic, b"k" * 65_536, b"v" * 1_048_576).offset == 0


def test_value_over_the_brokers_limit_is_refused_by_its_name(held: Held, topic: str):
    with pytest.raises(ProduceFailed) as caught:
        held.append(topic, b"k", b"v" * 1_300_000)
    assert caught.value.code == "MESSAGE_TOO_LARGE"
    assert not caught.value.retriable
    assert held.append(topic, b"k", b"v").offset == 0


@pytest.mark.parametrize("partition_by", [None, "prefix:|"])
def test_an_unknown_topic_fails_each_time_and_is_found_once_it_is_created(
    held: Held, partition_by: str | None
):
    name = a_topic()
    if partition_by:
        held.partition_by[name] = partition_by
    for _ in range(2):
        with pytest.raises(UnknownTopic, match=name):
            held.append(name, b"k|1", b"v")
    with pytest.raises(LogUnavailable):
        held.append(name, b"k|1", b"v", milliseconds=0)
    held.create(name)
    assert held.append(name, b"k|1", b"v").offset == 0


def test_many_records_are_written_in_their_order_each_with_its_position(held: Held, topic: str):
    keys = [b"a", b"b", b"a", b"c", b"a"]
    records = [NewRecord(topic, key, b"%d" % number) for number, key in enumerate(keys)]
    positions = held.log.append_all(records, deadline(10_000))
    assert [position.partition for position in positions if isinstance(position, Position)] == [
        routing.partition_for(key, 9) for key in keys
    ]
    partition = routing.partition_for(b"a", 9)
    of_a = [value for key, value in held.records(topic, partition) if key == b"a"]
    assert of_a == [b"0", b"2", b"4"]


def test_one_of_many_has_its_own_error(held: Held, topic: str):
    records = [
        NewRecord(topic, b"k", b"1", 4),
        NewRecord(topic, b"k", b"2", 9),
        NewRecord(a_topic(), b"k", b"3"),
        NewRecord(topic, b"k", b"v" * 1_300_000, 4),
        NewRecord(topic, None, None, 4),
    ]
    results = held.log.append_all(records, deadline(10_000))
    assert (results[0], results[4]) == (Position(4, 0), Position(4, 1))
    assert [type(result) for result in results[1:4]] == [UnknownPartition, UnknownTopic, ProduceFailed]
    assert held.records(topic, 4) == [(b"k", b"1"), (None, None)]


def test_a_deadline_that_is_over_fails_each_record(held: Held, topic: str):
    results = held.log.append_all([NewRecord(topic, b"k", b"v")] * 3, deadline(0))
    assert [type(result) for result in results] == [LogUnavailable] * 3
