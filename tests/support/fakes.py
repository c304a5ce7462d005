"""A fake for each port, which records its calls, and a clock that tests move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keylane import routing
from keylane.adapters.registry.client import RegisteredSchema
from keylane.adapters.registry.encoders import make_encoder
from keylane.errors import (
    IdempotencyKeyReused,
    KeylaneError,
    LogUnavailable,
    OffsetOutOfRange,
    ProduceFailed,
    QueueUnavailable,
    RegistryUnavailable,
    RequestInProgress,
    StateUnavailable,
    TooLarge,
    UnknownPartition,
    UnknownTopic,
)
from keylane.metrics.catalogue import COUNTER, METRICS
from keylane.model.kafka import (
    EARLIEST,
    LATEST,
    MAX,
    READ_UNCOMMITTED,
    ApiVersion,
    Broker,
    KafkaCluster,
    KafkaPartition,
    KafkaTopic,
    LogBatch,
    LogRecord,
    OffsetFound,
)
from keylane.model.kafka_groups import (
    BROKER,
    ConsumerGroup,
    GroupMember,
    KafkaSetting,
    SettingOwner,
    SettingSource,
)
from keylane.model.records import NewRecord, Position
from keylane.ports import Clock, SchemaEncoder, SchemaRefused
from keylane.produce.guards import Claimed
from keylane.produce.rate_limits import RateLimitState
from keylane.wiring.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Sized

    from keylane.model.kafka import At, LogRange, TopicPartition
    from keylane.ports import AppendResult, Call, Deadline, Message
    from keylane.produce.rate_limits import Rate, RateLimitSubject


class FakeTime:
    """A clock that moves by its pauses alone, and by `move`. `ways`: how often others were given way."""

    def __init__(self, now_ms: int = 1_357_034_400_000) -> None:
        self.now_ms = now_ms
        self.seconds = 1_000.0
        self.pauses: list[float] = []
        self.ways = 0
        self.on_pause: Callable[[], None] = lambda: None

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.move(seconds)
        self.on_pause()

    def move(self, seconds: float) -> None:
        self.seconds += seconds
        self.now_ms += round(seconds * 1000)

    def give_way(self) -> None:
        self.ways += 1

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_ms, lambda: self.seconds, self.pause, self.pause, self.give_way)


@dataclass
class FakeState:
    """The port State over dicts. It refuses keys outside the slot that is given, as a cluster does.

    Slots of `moving` are read key by key; `between` is called after the first key. `lagging`: what replicas
    have, or None for what they lack; they answer unless the primary must. `without_primary`: slots whose
    primary does not answer.
    """

    entries: dict[bytes, bytes] = field(default_factory=dict)
    reads: list[list[bytes]] = field(default_factory=list)
    away: bool = False
    moving: set[int] = field(default_factory=set)
    between: Callable[[], None] = lambda: None
    sorted_sets: dict[bytes, dict[bytes, float]] = field(default_factory=dict)
    hashes: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    runs: list[list[tuple[bytes, ...]]] = field(default_factory=list)
    limit_bytes: int = 32 * 1024 * 1024
    lagging: dict[bytes, bytes | None] = field(default_factory=dict)
    without_primary: set[int] = field(default_factory=set)

    def read(
        self, slot: int, keys: Sequence[bytes], deadline: Deadline, *, primary_only: bool = False
    ) -> list[bytes | None]:
        self.reads.append(list(keys))
        assert {routing.key_slot(key) for key in keys} == {slot}
        if self.away or not deadline.remaining_s or (primary_only and slot in self.without_primary):
            raise StateUnavailable("Redis did not answer in time")
        if slot not in self.moving:
            entries = self.entries if primary_only else self.entries | self.lagging
            return [entries.get(key) for key in keys]
        last = self.entries.get(keys[-1])
        self.between()
        return [*(self.entries.get(key) for key in keys[:-1]), last]

    def run(self, calls: Sequence[Call], deadline: Deadline, *, primary_only: bool = False) -> list[Any]:
        self.runs.append([call.words for call in calls])
        if self.away or not deadline.remaining_s or any(c.atomic and c.slot in self.moving for c in calls):
            raise StateUnavailable("Redis did not answer in time")
        if primary_only and self.without_primary & {call.slot for call in calls}:
            raise StateUnavailable("Redis did not answer in time")
        entries = self.entries if primary_only else self.entries | self.lagging
        replies = [self._run(entries, call.slot, *call.words) for call in calls]
        size_bytes = sum(map(_size, replies))
        if size_bytes > self.limit_bytes:
            raise TooLarge("answer", size_bytes, self.limit_bytes)
        return replies

    def _run(self, entries: Mapping[bytes, bytes | None], slot: int, name: bytes, *words: bytes) -> Any:
        keys = {b"MGET": words, b"MEMORY": words[1:]}.get(name, words[:1])
        assert {routing.key_slot(key) for key in keys} == {slot}
        if name == b"MGET":
            return [entries.get(key) for key in keys]
        commands: dict[bytes, Callable[..., Any]] = {
            b"GET": entries.get,
            b"GETRANGE": lambda key, first, last: self.entries.get(key, b"")[int(first) : int(last) + 1],
            b"HGETALL": lambda key: [word for pair in self.hashes.get(key, {}).items() for word in pair],
            b"HMGET": lambda key, *names: [self.hashes.get(key, {}).get(name) for name in names],
            b"HGET": lambda key, name: (
                None if entries.get(key, b"") is None else self.hashes.get(key, {}).get(name)
            ),
            b"ZCARD": lambda key: len(self.sorted_sets.get(key, {})),
            b"ZCOUNT": lambda key, low, high: len(self._by_score(key, high, low)),
            b"ZRANGE": lambda key, first, last: self._ranked(key)[int(first) : int(last) + 1],
            b"ZRANDMEMBER": lambda key, count: self._ranked(key)[: int(count)],
            b"MEMORY": lambda _, key: self._memory(entries.get(key), self.sorted_sets.get(key)),
            b"ZRANGEBYLEX": self._by_lex,
            b"ZREVRANGEBYSCORE": self._by_score,
        }
        return commands[name](*words)

    def _memory(self, *held: Sized | None) -> int | None:
        """Return about what a real one would: 100 bytes, and what is in it; None for an absent key."""
        return next((100 + len(each) for each in held if each), None)

    def _ranked(self, key: bytes) -> list[bytes]:
        scores = self.sorted_sets.get(key, {})
        return sorted(scores, key=lambda member: (scores[member], member))

    def _by_lex(self, key: bytes, low: bytes, high: bytes, *limit: bytes) -> list[bytes]:
        def is_in(member: bytes) -> bool:
            above = low == b"-" or member > low[1:] or (low[:1] == b"[" and member == low[1:])
            below = high == b"+" or member < high[1:] or (high[:1] == b"[" and member == high[1:])
            return above and below

        found = [member for member in self._ranked(key) if is_in(member)]
        return found[int(limit[1]) : int(limit[1]) + int(limit[2])]

    def _by_score(self, key: bytes, high: bytes, low: bytes, *limit: bytes) -> list[bytes]:
        def is_in(score: float) -> bool:
            above = score > float(low[1:]) if low[:1] == b"(" else score >= float(low)
            below = score < float(high[1:]) if high[:1] == b"(" else score <= float(high)
            return above and below

        scores = self.sorted_sets.get(key, {})
        found = [member for member in reversed(self._ranked(key)) if is_in(scores[member])]
        return found[int(limit[1]) : int(limit[1]) + int(limit[2])] if limit else found

    def hosts(self, slots: Sequence[int], deadline: Deadline) -> list[str]:
        if self.away or not deadline.remaining_s:
            raise StateUnavailable("no node of the Redis Cluster tells its map")
        return [f"redis-{(slot * 3 + 2) // routing.SLOTS}:7000" for slot in slots]


def _size(reply: Any) -> int:
    if isinstance(reply, list):
        return sum(map(_size, reply))
    return len(reply) if isinstance(reply, bytes) else 0


@dataclass
class FakeLog:
    """The port Log over lists: one topic's partitions each; `refusals`: what all records of a topic get."""

    topics: dict[str, list[list[tuple[bytes | None, bytes | None]]]] = field(default_factory=dict)
    sent: list[NewRecord] = field(default_factory=list)
    refusals: dict[str, KeylaneError] = field(default_factory=dict)
    partition_by: dict[str, str] = field(default_factory=dict)
    limit_bytes: int = 1_179_648
    away: bool = False

    def create(self, topic: str, partition_count: int) -> None:
        self.topics[topic] = [[] for _ in range(partition_count)]

    def append_all(self, records: Sequence[NewRecord], deadline: Deadline) -> list[AppendResult]:
        self.sent += records
        return [self._result(record, deadline) for record in records]

    def _result(self, record: NewRecord, deadline: Deadline) -> AppendResult:
        try:
            return self._write(record, deadline)
        except KeylaneError as error:
            return error

    def _write(self, record: NewRecord, deadline: Deadline) -> Position:
        if self.away or not deadline.remaining_s:
            raise LogUnavailable("Kafka did not acknowledge the record in time")
        if record.topic in self.refusals:
            raise self.refusals[record.topic]
        if record.topic not in self.topics:
            raise UnknownTopic(record.topic)
        if len(record.key or b"") + len(record.value or b"") > self.limit_bytes:
            raise ProduceFailed("MESSAGE_TOO_LARGE", "Kafka refused the record", retriable=False)
        partitions = self.topics[record.topic]
        partition = record.partition
        if partition is None:
            # A record without a key goes anywhere: here where the empty one does.
            part = routing.partition_key(record.key or b"", self.partition_by.get(record.topic, "key"))
            partition = routing.partition_for(part, len(partitions))
        if partition >= len(partitions):
            raise UnknownPartition(record.topic, partition)
        partitions[partition].append((record.key, record.value))
        return Position(partition, len(partitions[partition]) - 1)


@dataclass
class FakeRateLimiter:
    """The port RateLimiter over numbers: what is left of each limit; `away`: subjects without a count."""

    left: dict[tuple[str, str], int] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)

    def take(self, subjects: Sequence[RateLimitSubject]) -> list[list[RateLimitState] | None]:
        return [None if subject.name in self.away else self._taken(subject) for subject in subjects]

    def _taken(self, subject: RateLimitSubject) -> list[RateLimitState]:
        costs = {rate: getattr(subject.load, rate.unit) for rate in subject.rates}
        lacks = {rate: cost > self.of(subject.name, rate) for rate, cost in costs.items()}
        for rate, cost in costs.items():
            self.left[subject.name, rate.unit] = self.of(subject.name, rate) - cost * (
                not any(lacks.values())
            )
        return [
            RateLimitState(rate, self.of(subject.name, rate), 30.5, 12.5 * lacks[rate])
            for rate in subject.rates
        ]

    def give_back(self, subjects: Sequence[RateLimitSubject]) -> None:
        for subject in subjects:
            for rate in subject.rates:
                self.left[subject.name, rate.unit] += getattr(subject.load, rate.unit)

    def of(self, name: str, rate: Rate) -> int:
        return self.left.get((name, rate.unit), rate.holds)


@dataclass
class FakeIdempotencyStore:
    """The port IdempotencyStore over a dict."""

    entries: dict[str, tuple[bytes, bytes, bytes | None]] = field(default_factory=dict)
    claims: int = 0

    def claim(self, name: str, fingerprint: bytes) -> Claimed:
        self.claims += 1
        token = b"%d" % self.claims
        if name in self.entries:
            known, _, response = self.entries[name]
            if known != fingerprint:
                raise IdempotencyKeyReused
            if response is None:
                raise RequestInProgress
            return Claimed(token, response)
        self.entries[name] = fingerprint, token, None
        return Claimed(token, None)

    def settle(self, name: str, token: bytes, response: bytes | None) -> None:
        fingerprint, known, _ = self.entries[name]
        assert known == token
        if response is None:
            del self.entries[name]
        else:
            self.entries[name] = fingerprint, token, response


@dataclass
class FakePartition:
    """Records by offset, in order; `aborted` are seen by readers of uncommitted records alone.

    `high` is the next offset, `stable` that of the first open transaction. Without a leader nothing is read.
    """

    records: list[LogRecord] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    low: int = 0
    high: int = 0
    stable: int | None = None
    has_leader: bool = True

    def add(self, *records: LogRecord) -> None:
        self.records += records
        self.high = max([self.high, *(record.offset + 1 for record in records)])

    def seen(self, isolation: str) -> list[LogRecord]:
        if isolation == READ_UNCOMMITTED:
            return self.records
        end = self.high if self.stable is None else self.stable
        return [each for each in self.records if each.offset < end and each.offset not in self.aborted]


@dataclass
class FakeKafka:
    """The ports ClusterMetadata and LogReader over lists: one broker, one partition list a topic.

    `before_read` is called before each read.
    """

    logs: dict[str, list[FakePartition]] = field(default_factory=dict)
    reads: list[LogRange] = field(default_factory=list)
    away: bool = False
    before_read: Callable[[], None] = lambda: None
    cluster_id: str = "fake"
    consumers: dict[str, tuple[ConsumerGroup, dict[TopicPartition, int]]] = field(default_factory=dict)

    def create(self, topic: str, partition_count: int) -> list[FakePartition]:
        self.logs[topic] = [FakePartition() for _ in range(partition_count)]
        return self.logs[topic]

    def cluster(self, deadline: Deadline) -> KafkaCluster:
        self._answer(deadline)
        return KafkaCluster(self.cluster_id, 1, (Broker(1, "kafka", 9092),))

    def api_versions(self, broker: Broker, deadline: Deadline) -> tuple[ApiVersion, ...]:
        self._answer(deadline)
        assert broker.number == 1
        return ApiVersion(0, 0, 11), ApiVersion(1, 4, 17), ApiVersion(18, 0, 4)

    def topics(self, deadline: Deadline) -> dict[str, int]:
        self._answer(deadline)
        return {name: len(partitions) for name, partitions in self.logs.items()}

    def topic(self, topic: str, deadline: Deadline) -> KafkaTopic:
        self._answer(deadline)
        if topic not in self.logs:
            raise UnknownTopic(topic, "Kafka has no topic of this name")
        numbers = range(len(self.logs[topic]))
        return KafkaTopic(
            topic, f"id of {topic}", False, tuple(KafkaPartition(n, 1, (1,), (1,)) for n in numbers)
        )

    def describe(self, topics: Sequence[str], deadline: Deadline) -> dict[str, KafkaTopic]:
        return {each: self.topic(each, deadline) for each in topics if each in self.logs}

    def settings(self, topic: str, deadline: Deadline) -> dict[str, str | None]:
        self.topic(topic, deadline)
        return {"cleanup.policy": "delete"}

    def all_settings(self, owner: SettingOwner, deadline: Deadline) -> list[KafkaSetting]:
        self._answer(deadline)
        if owner.kind == BROKER:
            return [KafkaSetting("log.cleanup.policy", "delete", "DEFAULT_CONFIG", True, False, False)]
        self.topic(owner.name, deadline)
        synonym = SettingSource("log.cleanup.policy", "delete", "DEFAULT_CONFIG")
        return [KafkaSetting("cleanup.policy", "delete", "DEFAULT_CONFIG", True, False, False, (synonym,))]

    def groups(self, deadline: Deadline) -> list[str]:
        self._answer(deadline)
        return sorted(self.consumers)

    def describe_groups(self, groups: Sequence[str], deadline: Deadline) -> list[ConsumerGroup]:
        self._answer(deadline)
        return [self.consumers[each][0] for each in groups if each in self.consumers]

    def committed(self, group: str, deadline: Deadline) -> dict[TopicPartition, int]:
        self._answer(deadline)
        return dict(self.consumers[group][1])

    def ends(self, partitions: Sequence[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
        self._answer(deadline)
        return {
            (topic, number): self.logs[topic][number].high
            for topic, number in partitions
            if topic in self.logs
        }

    def consume(
        self, group: str, topic: str, committed: Mapping[int, int], member: str = "c-1"
    ) -> ConsumerGroup:
        """Make a group whose one member reads all of a topic, and has committed offsets by partition."""
        own = tuple((topic, number) for number in range(len(self.logs[topic])))
        members = (GroupMember(member, "client", None, own),)
        made = ConsumerGroup(group, "STABLE", False, "range", 1, members)
        self.consumers[group] = made, {(topic, number): offset for number, offset in committed.items()}
        return made

    def offsets(
        self, topic: str, partition: int, ats: Sequence[At], isolation: str, deadline: Deadline
    ) -> list[OffsetFound | None]:
        self._answer(deadline)
        log = self.logs[topic][partition]
        end = log.high if isolation == READ_UNCOMMITTED or log.stable is None else log.stable

        def find(at: At) -> OffsetFound | None:
            if at in {EARLIEST, LATEST}:
                return OffsetFound(log.low if at == EARLIEST else end)
            timed = [(record.timestamp_ms or 0, record.offset) for record in log.records]
            if at == MAX:
                highest = max((time for time, _ in timed), default=None)
                found = [(time, offset) for time, offset in timed if time == highest]
            else:
                found = [(time, offset) for time, offset in timed if time >= int(at)]
            return OffsetFound(found[0][1], found[0][0]) if found else None

        return [find(at) for at in ats]

    def first_offset(self, topic: str, partition: int, deadline: Deadline) -> int:
        self._answer(deadline)
        return self.logs[topic][partition].low

    def read(self, wanted: Sequence[LogRange], max_bytes: int, deadline: Deadline) -> list[LogBatch]:
        self.reads += wanted
        self.before_read()
        self._answer(deadline)
        led = [each for each in wanted if self.logs[each.topic][each.partition].has_leader]
        if not led:
            raise LogUnavailable("Kafka returned no record in time")
        for each in led:
            log = self.logs[each.topic][each.partition]
            if not log.low <= each.offset <= log.high:
                raise OffsetOutOfRange(each.topic, each.partition, each.offset, log.low, log.high)
        batches, size_bytes, is_full = [], 0, False
        for each in wanted:
            log, records = self.logs[each.topic][each.partition], list[LogRecord]()
            is_left = is_full or not log.has_leader
            next_offset = each.offset if is_left else min(each.end, log.high)
            for record in () if is_left else log.seen(each.isolation):
                if not each.offset <= record.offset < each.end:
                    continue
                size_bytes += len(record.key or b"") + len(record.value or b"")
                size_bytes += sum(len(name) + len(value or b"") for name, value in record.headers or ())
                is_full = size_bytes > max_bytes and bool(records or any(one.records for one in batches))
                if len(records) == each.limit or is_full:
                    next_offset = records[-1].offset + 1 if records else each.offset
                    break
                records.append(record)
            if len(records) == each.limit:
                next_offset = records[-1].offset + 1
            batches.append(LogBatch(tuple(records), next_offset))
        return batches

    def _answer(self, deadline: Deadline) -> None:
        if self.away or not deadline.remaining_s:
            raise LogUnavailable("Kafka did not answer in time")


@dataclass
class FakeSchemaWriter:
    """The port SchemaWriter: `subjects` has the ids of a subject's versions, `schemas` types and texts."""

    subjects: dict[str, list[int]] = field(default_factory=dict)
    schemas: dict[int, tuple[str, str]] = field(default_factory=dict)
    rejects: bool = False
    away: bool = False
    requests: int = 0

    def add(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        known = {each: schema_id for schema_id, each in self.schemas.items()}
        schema_id = known.get((kind, schema), len(self.schemas) + 1)
        self.schemas[schema_id] = kind, schema
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def registered(self, subject: str, kind: str, schema: str, deadline: Deadline) -> SchemaEncoder:
        make_encoder(kind, schema)
        self._answer(deadline)
        if self.rejects:
            raise SchemaRefused("the Schema Registry rejects the schema")
        return self.encoder(subject, self.add(subject, schema, kind), deadline)

    def encoder(
        self, subject: str, schema_id: int, deadline: Deadline, *, as_shown: bool = False
    ) -> SchemaEncoder:
        self._answer(deadline)
        versions = self.subjects.get(subject, [])
        if schema_id not in versions:
            raise SchemaRefused(f"schema {schema_id} is not a version of subject {subject!r}")
        kind, schema = self.schemas[schema_id]
        encode = make_encoder(kind, schema, as_shown=as_shown).encode
        return SchemaEncoder(kind, schema_id, versions.index(schema_id) + 1, encode)

    def id_of(self, subject: str, version: int | None, deadline: Deadline) -> int:
        self._answer(deadline)
        versions = self.subjects.get(subject, [])
        if not versions or (version or 1) > len(versions):
            raise SchemaRefused(f"the Schema Registry does not have subject {subject!r}")
        return versions[-1 if version is None else version - 1]

    def _answer(self, deadline: Deadline) -> None:
        self.requests += 1
        if self.away or not deadline.remaining_s:
            raise RegistryUnavailable("the Schema Registry can't be reached")


@dataclass
class FakeQueue:
    """The port Queue over a list; `refusals`: by group, what its messages get from the named one on."""

    messages: list[Message] = field(default_factory=list)
    refusals: dict[str | None, KeylaneError] = field(default_factory=dict)
    away: bool = False

    def send(self, messages: Sequence[Message], deadline: Deadline) -> list[KeylaneError | None]:
        return [self._send(message, deadline) for message in messages]

    def _send(self, message: Message, deadline: Deadline) -> KeylaneError | None:
        if self.away or not deadline.remaining_s:
            return QueueUnavailable("the queue can't be reached")
        if message.group in self.refusals:
            return self.refusals[message.group]
        self.messages.append(message)
        return None


@dataclass
class FakeBucket:
    """The port Bucket over a dict."""

    objects: dict[str, bytes] = field(default_factory=dict)
    away: bool = False

    def put(self, name: str, data: bytes, deadline: Deadline) -> None:
        self._check(deadline)
        self.objects[name] = data

    def get(self, name: str, deadline: Deadline) -> bytes | None:
        self._check(deadline)
        return self.objects.get(name)

    def _check(self, deadline: Deadline) -> None:
        if self.away or not deadline.remaining_s:
            raise QueueUnavailable("the bucket can't be reached")


def a_runtime(clock: Clock) -> Runtime:
    """Return Lambda's runtime with this clock."""
    runtime = Runtime()
    runtime.clock = clock
    return runtime


class FakeMetrics:
    """The port `MetricSink`: `numbers` and `samples` by metric and labels."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, ...], float] = {}
        self.samples: dict[tuple[str, ...], list[tuple[float, int]]] = {}

    def add_number(self, metric: str, labels: tuple[str, ...], value: float) -> None:
        before = self.numbers.get((metric, *labels), 0) if METRICS[metric].kind == COUNTER else 0
        self.numbers[metric, *labels] = before + value

    def add_samples(self, metric: str, labels: tuple[str, ...], samples: Sequence[tuple[float, int]]) -> None:
        self.samples.setdefault((metric, *labels), []).extend(samples)

    def flush(self) -> None:
        pass


class FakeRegistry:
    """A registry's schemas by id (s7=...: kind and text), or what is raised; `asked` for which."""

    def __init__(self, **held: tuple[str, str] | Exception) -> None:
        self.held = {int(name[1:]): found for name, found in held.items()}
        self.asked: list[int] = []

    def schema(self, schema_id, _):
        self.asked.append(schema_id)
        found = self.held.get(schema_id, SchemaRefused("the Schema Registry does not have it"))
        if isinstance(found, Exception):
            raise found
        return RegisteredSchema(*found, [])

    def referenced(self, _schema, _deadline):
        return []
