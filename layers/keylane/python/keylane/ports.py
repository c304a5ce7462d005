"""What the use cases need of the outside. Each port has a fake in tests/support/fakes.py."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from keylane.errors import KeylaneError
    from keylane.model.kafka import At, LogBatch, LogRange, OffsetFound
    from keylane.model.records import Layout, NewRecord, Position, Queued


AppendResult: TypeAlias = "Position | KeylaneError"
"""Kafka's result of a record: its position, or why it was not (or may not have been) written."""

RecordResult: TypeAlias = "Position | Queued | KeylaneError"
"""The result of a record to write: as AppendResult, or the record is in the write-ahead log."""


class Call(NamedTuple):
    """One command that reads keys of one hash slot; `words`: its name, then its arguments.

    `atomic`: an MGET that is never split into reads of single keys. While its slot migrates it may be
    unavailable instead. `script`: the text of which an EVALSHA_RO has the digest.
    """

    slot: int
    words: tuple[bytes, ...]
    atomic: bool = False
    script: bytes = b""

    @property
    def with_text(self) -> Self:
        """The same for a node that lacks the script, and keeps it then."""
        return self._replace(words=(b"EVAL_RO", self.script, *self.words[2:]))


class State(Protocol):
    """Keylane's state in Redis Cluster, as a reader sees it."""

    def read(
        self, slot: int, keys: Sequence[bytes], deadline: Deadline, *, primary_only: bool = False
    ) -> list[bytes | None]:
        """Return the values of `keys`, all of one hash slot, by one atomic command; None where absent.

        While the slot migrates from one node to another, the keys may be read one by one instead: the last
        key first. So put a lane's watermark last: a value is then as new as the watermark claims, or newer.
        A key that holds another type than a string is absent too, as for MGET. `primary_only`: a replica,
        which may lag behind, does not answer.
        Raises StateUnavailable when no such node of the shard answers before the deadline.
        """

    def run(self, calls: Sequence[Call], deadline: Deadline, *, primary_only: bool = False) -> list[Any]:
        """Return the replies to read commands, in the calls' order: bytes, integers, None, or lists of these.

        All nodes work at the same time. The calls of one slot are answered by one node in their order and,
        while the slot migrates, one after the other. So put the watermark's call first: the replies after it
        are as new as it claims, or newer. The keys of an MGET are read as `read` reads them. `primary_only`:
        as of `read`.
        Raises StateUnavailable when no replica of a shard answers before the deadline, TooLarge where the
        replies of a shard exceed the memory for them.
        """

    def hosts(self, slots: Sequence[int], deadline: Deadline) -> list[str]:
        """Return each slot's primary, "host:port". Raises StateUnavailable where none is known."""


class Log(Protocol):
    """Kafka, as a producer sees it."""

    def append_all(self, records: Sequence[NewRecord], deadline: Deadline) -> list[AppendResult]:
        """Write records in one batch, in order within each partition, and wait for all acknowledgements.

        Returns the result of each, in order: its position, or its own error (UnknownTopic, UnknownPartition,
        ProduceFailed, LogUnavailable; Unacknowledged if it may have been written).
        """


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a queue. `group`: messages of one group keep their order; None for an unordered queue.

    `id`: an ordered queue drops a second message with the same id for 5 minutes.
    """

    body: str
    group: str | None = None
    id: str = ""
    attributes: dict[str, str] = field(default_factory=dict)


class Queue(Protocol):
    """A durable queue, as its sender sees it."""

    def send(self, messages: Sequence[Message], deadline: Deadline) -> list[KeylaneError | None]:
        """Send messages in order within each group; return each one's error, None once it is durable.

        When a message fails, the later ones of its group are not sent and fail with the same error:
        QueueUnavailable, or Unconfirmed if the message may be in the queue all the same.
        """


class Deliveries(Protocol):
    """A durable queue, as its reader sees it."""

    def postpone(self, pauses_s: Mapping[str, int], deadline: Deadline) -> None:
        """Deliver messages again after pauses in seconds, by receipt; without it the queue's own time passes.

        Raises QueueUnavailable.
        """


class Bucket(Protocol):
    """A store for records that are too large for a message. Both methods raise QueueUnavailable."""

    def put(self, name: str, data: bytes, deadline: Deadline) -> None:
        """Store an object; it is durable when this returns."""

    def get(self, name: str, deadline: Deadline) -> bytes | None:
        """Return an object's bytes, None if there is no object of this name."""


class FramedField(NamedTuple):
    """A key or value that names a schema, and the subject that must have it."""

    subject: str
    data: bytes


class FramingFault(NamedTuple):
    """Why such a key or value cannot be read; `path`: a JSON Pointer into a value that is JSON."""

    path: str
    reason: str


class Checks(Protocol):
    """Validates values before they are written."""

    def faults(self, records: Sequence[NewRecord], deadline: Deadline) -> list[KeylaneError | None]:
        """Return the fault of each record's value, None for a valid one. `deadline`: of what is fetched.

        ValueInvalid, or RegistryUnavailable if its schema can't be fetched.
        """

    def framing_faults(self, framed: Sequence[FramedField], deadline: Deadline) -> list[FramingFault | None]:
        """Return the fault of each, None for one that is of its schema, or if the registry does not answer.

        `deadline`: of what is fetched.
        """


class LayoutReader(Protocol):
    """The topics' layouts, as a writer sees them."""

    def known(self, topic: str) -> Layout | None:
        """Return the topic's layout if it was read a short time ago, else None."""

    def get(self, topic: str, deadline: Deadline) -> Layout:
        """Return the topic's layout. Raises UnknownTopic, CorruptState, StateUnavailable."""


class LogReader(Protocol):
    """Kafka, as a consumer without a group sees it. Raises UnknownTopic, LogUnavailable, LogRefused."""

    def offsets(
        self, topic: str, partition: int, ats: Sequence[At], isolation: str, deadline: Deadline
    ) -> list[OffsetFound | None]:
        """Return the offset of each of `ats`: the first at or after a time; None where there is no record.

        LATEST is the offset after the last record; with READ_COMMITTED, that of the first transaction that
        has not ended. MAX looks at all records.
        """

    def first_offset(self, topic: str, partition: int, deadline: Deadline) -> int:
        """Return the offset of the partition's first record, of the next one where there is none."""

    def read(self, wanted: Sequence[LogRange], max_bytes: int, deadline: Deadline) -> list[LogBatch]:
        """Return what was read of each range by the deadline; raises LogUnavailable if it was nothing at all.

        The ranges are of different partitions of a topic. Together they have `max_bytes` of keys, values and
        headers at most, or one record. Raises OffsetOutOfRange where retention removed the first record of a
        range meanwhile.
        """


@dataclass(frozen=True, slots=True)
class Decoder:
    """A schema as a function from a value's bytes to its JSON text, which raises ValueError.

    `schema_type`: the registry's name of it, AVRO, PROTOBUF or JSON. `size_bytes`: about what it takes in
    memory. `schema`: its text, where that may say more of the values than their JSON does
    (`formats.schema_times`).
    """

    schema_type: str
    decode: Callable[[bytes], str]
    size_bytes: int = 1_000
    schema: str = ""


class SchemaRefused(ValueError):
    """The registry does not have a schema under its subject, or does not accept it there."""


class SchemaEncoder(NamedTuple):
    """Encodes JSON by a schema of a registry. `kind`: AVRO, JSON or PROTOBUF; `version`: of its subject.

    `encode` returns what follows the schema's id in a value. It raises NotOfSchema, RegistryUnavailable.
    """

    kind: str
    schema_id: int
    version: int
    encode: Callable[[Any], bytes]


class SchemaWriter(Protocol):
    """A Schema Registry, as a writer sees it.

    All methods raise RegistryUnavailable, SchemaRefused, and ValueError for a schema that is unusable in
    itself; the sentence of the last two says why.
    """

    def registered(self, subject: str, kind: str, schema: str, deadline: Deadline) -> SchemaEncoder:
        """Register a schema, an Avro, JSON or Protobuf one, under a subject."""

    def encoder(
        self, subject: str, schema_id: int, deadline: Deadline, *, as_shown: bool = False
    ) -> SchemaEncoder:
        """Return the encoder by a schema that is a version of the subject.

        `as_shown`: of JSON as readers see it. Else Avro has its own JSON, in which unions name their types.
        """

    def id_of(self, subject: str, version: int | None, deadline: Deadline) -> int:
        """Return the id of a version of the subject; None: of the latest."""


class KeyEncoder(NamedTuple):
    """Encodes keys by a schema of a registry, from JSON as readers show it.

    `fields`: the names in it, in its order; None where a key is a value without fields. `encode` returns a
    key's bytes, and raises NotOfSchema.
    """

    schema_id: int
    fields: tuple[str, ...] | None
    encode: Callable[[Any], bytes]


class SubjectVersion(NamedTuple):
    """A version of a subject. `kind`: AVRO, JSON or PROTOBUF."""

    version: int
    schema_id: int
    kind: str
    schema: str


class Schemas(Protocol):
    """A Schema Registry, as a reader sees it."""

    def newest_versions(self, subject: str, limit: int, deadline: Deadline) -> Sequence[SubjectVersion]:
        """Return the newest versions of a subject, newest first; none where the registry does not have it.

        Raises RegistryUnavailable.
        """

    def key_encoders(self, subject: str, deadline: Deadline) -> Sequence[KeyEncoder]:
        """Return encoders by the schemas that are versions of a subject, newer ones first.

        Raises RegistryUnavailable; ValueError, with the reason, if the registry does not have the subject, or
        none of its schemas is usable.
        """

    def decoder(self, schema_id: int, deadline: Deadline) -> Decoder:
        """Return the decoder of a schema. A schema is read once and then kept: schemas don't change.

        Raises RegistryUnavailable; ValueError, with the reason, if the registry does not have the schema or
        the schema is unusable.
        """


@dataclass(frozen=True, slots=True)
class Clock:
    """The time. Tests give another clock.

    `pause_s` pauses before a second attempt. `await_s` pauses for what others have to do, such as a change or
    a position that is not there yet: the server gives the request's place to others meanwhile. `give_way`
    lets other requests run before what takes long goes on: where a process answers one, there are none.
    """

    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    monotonic_s: Callable[[], float] = time.monotonic
    pause_s: Callable[[float], None] = time.sleep
    await_s: Callable[[float], None] = time.sleep
    give_way: Callable[[], None] = lambda: None


class Deadline(NamedTuple):
    """A moment, in monotonic seconds, after which an answer is of no use.

    A tuple: each read makes several, and a frozen dataclass takes three times as long to make.
    """

    at_s: float
    clock: Clock

    @classmethod
    def after_ms(cls, milliseconds: float, clock: Clock) -> Self:
        """Return the deadline that many milliseconds from now."""
        return cls(clock.monotonic_s() + milliseconds / 1000, clock)

    @classmethod
    def at_ms(cls, moment_ms: float, clock: Clock) -> Self:
        """Return the deadline at that moment, in ms since 1970."""
        return cls.after_ms(moment_ms - clock.now_ms(), clock)

    def or_at_ms(self, moment_ms: float) -> Self:
        """Return this deadline, or that at a moment, in ms since 1970, if it comes earlier."""
        return min(self, self.at_ms(moment_ms, self.clock), key=lambda each: each.at_s)

    @property
    def remaining_s(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.at_s - self.clock.monotonic_s())


class WaitBudget:
    """How long one request may wait for a service, in all: the time passes only while it asks."""

    __slots__ = ("clock", "left_s")

    def __init__(self, milliseconds: float, clock: Clock) -> None:
        self.left_s = milliseconds / 1000
        self.clock = clock

    @contextmanager
    def asking(self) -> Iterator[Deadline]:
        """Return the deadline of a block that asks: what it leaves is there for the next one."""
        deadline = Deadline(self.clock.monotonic_s() + self.left_s, self.clock)
        try:
            yield deadline
        finally:
            self.left_s = deadline.remaining_s
