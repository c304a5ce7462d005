"""A side topic as the events see it that change it: its records, its settings, and what its log has."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
from tests.servers.own import CLOCK
from tests.torture.brokers import create_replicated
from tests.torture.configurations import SIDE, SIDE_PARTITIONS, SIDE_TOPICS
from tests.torture.results import Sent
from tests.torture.stack import wait_until

from keylane import routing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.torture.faults.world import World
    from tests.torture.journal import Journal


KEYS = 12
"""Of each schedule. What is written in multiples of it has the same keys at the same offsets again."""
TIMEOUT_S = 60

Fold = dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Side:
    """One side topic. Only one event at a time changes it."""

    world: World
    name: str

    @property
    def journal(self) -> Journal:
        return self.world.stack.journals[self.name]

    @property
    def keys(self) -> list[bytes]:
        """The keys of this schedule; one is empty in the topic whose log says all."""
        keys = [b"%d-%03d" % (self.world.seed, number) for number in range(KEYS)]
        return [b"", *keys[1:]] if self.name == SIDE else keys

    def write(self, rounds: int, keys: list[bytes] | None = None, *, strays: bool = False) -> None:
        """Write each key of the schedule, or these, so many times in the same order, at times a tombstone.

        `strays`: every third record goes to another partition than its key's.
        """
        records = []
        for turn in range(rounds):
            for index, key in enumerate(self.keys if keys is None else keys):
                number = next(self.world.stack.side_numbers)
                value = None if (turn + index) % 7 == 3 else b"side-%d" % number
                records.append((key, value, (number % 3 == 0) if strays else False))
        self.send(records)

    def delete(self, keys: list[bytes]) -> None:
        """Write a tombstone for each."""
        self.send([(key, None, False) for key in keys])

    def send(self, records: list[tuple[bytes, bytes | None, bool]]) -> None:
        """Write keys, values, and whether each goes astray; returns when Kafka has acknowledged all."""
        failures: list[object] = []
        journal, count = self.journal, len(self.partitions())
        self.world.stack.side_keys |= {(self.name, key): None for key, *_ in records}
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 2}
        )
        for key, value, is_stray in records:
            written = journal.note(key, value)

            def arrived(error, _, written=written) -> None:
                if error:
                    failures.append(error)
                else:
                    journal.acknowledge(written, CLOCK.now_ms())

            producer.produce(
                self.name,
                key=key,
                value=value,
                partition=(routing.partition_for(key, count) + is_stray) % count,
                timestamp=journal.next_timestamp_ms(CLOCK.now_ms()),
                on_delivery=arrived,
            )
        assert not producer.flush(TIMEOUT_S), "the records did not reach the broker"
        assert not failures, failures

    def write_through(self) -> list[Sent]:
        """Let the product write a record: a function and the server, each until it is certainly written."""
        sent = []
        for client in self.world.writers.others:
            number = next(self.world.stack.side_numbers)
            key, value = self.keys[number % KEYS], b"side-%d" % number
            self.world.stack.side_keys[self.name, key] = None
            written = self.journal.note(key, value)
            timestamp_ms = self.journal.next_timestamp_ms(CLOCK.now_ms())
            own = Sent(client.name, self.name, key, value, f"{number + 1:032x}", timestamp_ms=timestamp_ms)
            assert client.send(own), f"{client.name} can't write any more: {own.results}"
            self.journal.acknowledge(written, CLOCK.now_ms())
            sent.append(own)
        return sent

    def create_again(self, partitions: int = SIDE_PARTITIONS) -> None:
        """Delete the topic and create it again."""
        admin = self.admin()
        admin.delete_topics([self.name])[self.name].result(TIMEOUT_S)
        wait_until(
            lambda: self.name not in admin.list_topics(timeout=10).topics, TIMEOUT_S, "the topic is deleted"
        )
        self.journal.begin_again()
        create_replicated(self.world.stack.kafka, self.name, partitions, SIDE_TOPICS[self.name])

    def grow(self) -> int:
        """Add a partition; returns its number."""
        count = len(self.partitions())
        admin = self.admin()  # it must live until it has the result
        admin.create_partitions([NewPartitions(self.name, count + 1)])[self.name].result(TIMEOUT_S)
        wait_until(lambda: len(self.partitions()) > count, TIMEOUT_S, "the topic has grown")
        return count

    @contextlib.contextmanager
    def configured(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Change settings of the topic in Kafka; in the end they are as before."""
        self.configure(settings)
        try:
            yield
        finally:
            self.configure(SIDE_TOPICS[self.name])

    def configure(self, settings: Mapping[str, str]) -> None:
        """Change settings of the topic in Kafka; what they don't name stays."""
        entries = [
            ConfigEntry(field, value, incremental_operation=AlterConfigOpType.SET)
            for field, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name, incremental_configs=entries)
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def partitions(self) -> list[int]:
        """The partitions, once each has a leader."""
        found: list[int] = []

        def have_leaders() -> bool:
            with contextlib.suppress(KafkaException):
                partitions = self.admin().list_topics(self.name, timeout=10).topics[self.name].partitions
                found[:] = sorted(partitions)
                return bool(found) and all(each.leader >= 0 for each in partitions.values())
            return False

        wait_until(have_leaders, TIMEOUT_S, f"{self.name!r} has leaders")
        return found

    def bounds(self) -> dict[int, tuple[int, int]]:
        """The begin and the end of each partition's log."""
        with self._consumer() as consumer:
            return self._bounds(consumer)

    def _bounds(self, consumer: Consumer) -> dict[int, tuple[int, int]]:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(self.name, partition), timeout=TIMEOUT_S)
            for partition in self.partitions()
        }

    def log(self) -> list[tuple[tuple[int, int, int], bytes, bytes | None]]:
        """What the log has: time, partition and offset of each record, its key and its value."""
        found = []
        with self._consumer() as consumer:
            for partition, (begin, end) in self._bounds(consumer).items():
                consumer.assign([TopicPartition(self.name, partition, begin)])
                while True:
                    message = consumer.poll(TIMEOUT_S)
                    assert message is not None  # an empty value makes it false
                    if message.error() is None:
                        rank = message.timestamp()[1], partition, message.offset()
                        found.append((rank, message.key(), message.value()))
                        continue
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    if message.offset() >= end:
                        break
        return found

    def fold(self) -> Fold:
        """What a log that forgets nothing says: by time, since a key may have changed partitions."""
        newest: dict[bytes, tuple[tuple[int, int, int], bytes | None]] = {}
        for rank, key, value in self.log():
            if key not in newest or newest[key][0] < rank:
                newest[key] = rank, value
        return {key: value for key, (_, value) in newest.items() if value is not None}

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        options = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self.name,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "log_level": 2,
        }
        consumer = Consumer({**options, "enable.auto.commit": False})
        try:
            yield consumer
        finally:
            consumer.close()

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 2})

    @property
    def _bootstrap(self) -> str:
        return self.world.stack.kafka.bootstrap
