"""A side topic as the events see it that change it: its records, its settings, and what its log has.

Its reads are waited for until they agree with its log, or with its journal, and are checked meanwhile.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
from tests.servers.own import CLOCK
from tests.torture.brokers import create_replicated
from tests.torture.configurations import RETAINED, SIDE, SIDE_PARTITIONS, SIDE_TOPICS
from tests.torture.sources import LAYOUT_TTL_S, read_key
from tests.torture.stack import rest, wait_until
from tests.torture.written import Sent

from keylane import routing
from keylane.errors import KeylaneError
from keylane.query.layouts import Layouts
from keylane.query.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.torture.faults.world import World
    from tests.torture.journal import Journal

    from keylane.model.records import Answer


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


AGREES_WITHIN_S = 120


@contextlib.contextmanager
def _reader(side: Side) -> Iterator[Callable[[bytes], Answer]]:
    """A read of a key, over the readers' links. It raises KeylaneError."""
    state = side.world.stack.reader_state()
    store = Store(state, Layouts(state, CLOCK, LAYOUT_TTL_S), CLOCK)
    try:
        yield lambda key: read_key(store, side.name, key)
    finally:
        state.close()


def wait_agrees(side: Side) -> None:
    """Wait until reads of all keys that ever were return the fold of the log, and nothing else."""
    wanted = side.fold()
    keys = [key for topic, key in list(side.world.stack.side_keys) if topic == side.name]
    found: Fold | KeylaneError = {}

    def agrees() -> bool:
        nonlocal found
        try:
            answers = {key: read(key).record for key in keys}
        except KeylaneError as error:
            found = error
            return False
        found = {key: record.value or b"" for key, record in answers.items() if record}
        return found == wanted

    with _reader(side) as read, contextlib.suppress(TimeoutError):
        wait_until(agrees, AGREES_WITHIN_S, "")
        return
    shown: object = repr(found)
    if isinstance(found, dict):
        differing = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        shown = [(key, found.get(key), wanted.get(key)) for key in differing[:4]]
    raise AssertionError(f"reads of {side.name!r} do not return what the log has: (key, read, log) {shown}")


def wait_settled(side: Side, since_s: float, *, judged: bool = True, complete: bool = True) -> None:
    """Wait until all lanes claim to have all that was written, and check every answer meanwhile.

    `since_s`: no key may go back, unless Redis has been in trouble since then (monotonic seconds).
    `judged`: no answer may contradict its own claim. `complete`: in the end no answer may say that it is
    incomplete; otherwise those that lack something must say so. In a topic that forgets, what a trouble
    of Redis makes the job read again may be gone.
    """
    until_s = time.monotonic() + AGREES_WITHIN_S
    partitions, left = len(side.partitions()), "nothing was read"
    answers: dict[bytes, Answer] = {}
    asked_s = time.monotonic()
    with _reader(side) as read:
        while left:
            if time.monotonic() > until_s:
                raise AssertionError(f"{side.name!r} has not settled within {AGREES_WITHIN_S} s: {left}")
            rest(asked_s, 0.02, 0.1)
            asked_s = time.monotonic()
            try:
                answers = {key: read(key) for key in sorted(side.journal.written)}
            except KeylaneError as error:
                left = repr(error)
                continue
            # A job that starts without any trace of a topic takes what is left of its log as all of it.
            forgets = side.name == RETAINED
            is_lost = forgets and side.world.has_trouble(since_s, lost_data=True)
            complete = complete and not (forgets and side.world.has_trouble(since_s))
            for key, answer in answers.items():
                _check(side, key, answer, judged=judged and not is_lost, since_s=since_s)
            lefts = (_left(side, *each, partitions, complete=complete) for each in answers.items())
            left = next(filter(None, lefts), "") if not is_lost else ""
    for key, answer in answers.items():
        if not answer.watermark.incomplete:
            side.journal.note_seen(key, answer)


def _check(side: Side, key: bytes, answer: Answer, *, judged: bool, since_s: float) -> None:
    journal = side.journal
    fault = journal.fault_of(key, answer) if judged else None
    # What is built again from a log that forgets lacks what it has forgotten, and says so.
    is_rebuilt = side.name == RETAINED and answer.watermark.incomplete
    if fault is None and not is_rebuilt and not side.world.has_trouble(since_s):
        fault = journal.went_back(key, answer)
    assert fault is None, f"{side.name}/{key.decode()}: {fault} ({answer.watermark})"


def _left(side: Side, key: bytes, answer: Answer, partitions: int, *, complete: bool) -> str:
    """Why an answer is not the last one; "" if it is."""
    where, watermark = f"{side.name}/{key.decode()}", answer.watermark
    if answer.layout.partition_count != partitions:
        return f"{where} has {answer.layout.partition_count} partitions of {partitions}"
    if watermark.complete_as_of_ms <= side.journal.last_acknowledged_ms:
        return f"{where} is complete as of {watermark.complete_as_of_ms}"
    if watermark.incomplete:
        return f"{where} is incomplete" if complete else ""
    newest = side.journal.written[key][-1].value
    found = answer.record and answer.record.value
    if key in side.journal.may_come_back:
        return ""
    return "" if found == newest else f"{where} has {found!r}, and {newest!r} was written"
