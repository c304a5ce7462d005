"""What the service answers, as values that do not change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Generic

from keylane_client.errors import InvalidArgument

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a record is in its topic. Written `partition:offset`."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"

    @property
    def etag(self) -> str:
        """Return the tag by which a condition names the record that is here."""
        return f'"{self.partition}-{self.offset}"'

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Parse `partition:offset`. Raises InvalidArgument."""
        partition, separator, offset = text.partition(":")
        if not (separator and partition.isdecimal() and offset.isdecimal()):
            raise InvalidArgument(f"{text!r} is not a position: write PARTITION:OFFSET, as in 2:38635")
        return cls(int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class TopicVector:
    """Where a copy of a topic is: the next offset of each partition. `position in vector`: the copy has it.

    As a text it is an id of the topic's stream of changes, as in `0:41611,1:38588@1795311449754`: behind the
    @ is the incarnation, another one once the topic is created again; 0 where the service names none.
    """

    next_offsets: Mapping[int, int]
    incarnation: int = 0

    def __str__(self) -> str:
        offsets = ",".join(f"{partition}:{self.next_offsets[partition]}" for partition in self.next_offsets)
        return f"{offsets}@{self.incarnation}" if self.incarnation else offsets

    def __contains__(self, position: Position) -> bool:
        return position.offset < self.next_offsets.get(position.partition, 0)

    @classmethod
    def parse(cls, text: str) -> "TopicVector":
        """Parse an id of a topic's stream of changes. Raises InvalidArgument."""
        offsets, _, incarnation = text.partition("@")
        if incarnation and not incarnation.isdecimal():
            raise InvalidArgument(
                f"{text!r} is not where a topic is: it looks like 0:41611,1:38588@1795311449754"
            )
        found = map(Position.parse, offsets.split(","))
        return cls({each.partition: each.offset for each in found}, int(incarnation or 0))


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """A header of a record in Kafka. `value`: a string if it is UTF-8, else bytes; None if it has none."""

    name: str
    value: str | bytes | None


@dataclass(frozen=True, slots=True)
class Record(Generic[V]):
    """A record of a key.

    `watermark`: the next offset of the key's lane; every record below it is in the answer. `age`: nothing
    that Kafka acknowledged longer ago than this is missing; None while the lane is being built.
    `is_incomplete`: Kafka's retention removed records before the lane could contain them.

    `key`: a string if it is UTF-8, else bytes. `value`: JSON as Python has it, else a string, else bytes, as
    `value_format` says (`json`, `text`, `base64`); None for `left-in-kafka`, where `value_bytes` is the size.
    `headers`: None where they were not asked for, or the topic does not keep them. `raw`: the value's bytes,
    in answers to reads of one key. `timestamp_ms`: the record's own, in milliseconds since 1970; None where
    it has none. `tag`: the ETag that it came with, which names its topic's incarnation too; empty in answers
    of several records.
    """

    topic: str
    key: str | bytes
    value: V
    position: Position
    timestamp_ms: int | None
    watermark: Position | None
    age: timedelta | None
    value_format: str
    is_incomplete: bool = False
    headers: tuple[RecordHeader, ...] | None = None
    value_bytes: int | None = None
    schema_id: int | None = None
    undecoded: str | None = None
    raw: bytes | None = field(default=None, repr=False, compare=False)
    tag: str = field(default="", repr=False, compare=False)

    @property
    def timestamp(self) -> datetime | None:
        """Return the record's timestamp in UTC. Raises OverflowError beyond the year 9999."""
        return None if self.timestamp_ms is None else _EPOCH + timedelta(milliseconds=self.timestamp_ms)

    @property
    def etag(self) -> str:
        """Return the tag by which a condition names the record."""
        return self.tag or self.position.etag


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no record under the key, as of the watermark: it was never written, or was deleted."""

    topic: str
    key: str | bytes
    watermark: Position | None
    age: timedelta | None


@dataclass(frozen=True, slots=True)
class HistoryEntry(Generic[V]):
    """An earlier record of a key, or its deletion (`is_deleted`), which has no value."""

    position: Position
    timestamp_ms: int | None
    is_deleted: bool
    value: V | None
    value_format: str
    watermark: Position | None
    age: timedelta | None
    headers: tuple[RecordHeader, ...] | None = None


@dataclass(frozen=True, slots=True)
class FoundPage(Generic[V]):
    """A page of what was found. `next`: the cursor of the page after it; None where nothing may follow.

    `scanned`: how many entries of an index were looked at.
    """

    records: tuple[Record[V], ...]
    next: str | None
    scanned: int
    watermarks: Mapping[int, int]
    age: timedelta | None


@dataclass(frozen=True, slots=True)
class Joined:
    """One key of several topics, read at one moment; None for a topic that has no record of it."""

    key: str | bytes
    records: Mapping[str, Record | None]
    age: timedelta | None
    watermarks: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Written:
    """A write. `position` is None, and `queued_id` is not, for a record in the write-ahead log.

    `is_replayed`: the answer is the saved one of an earlier request with the same idempotency key.
    """

    topic: str
    key: str | bytes | None
    position: Position | None
    queued_id: str | None = None
    is_replayed: bool = False


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """A record of a push that was not written, and why.

    `is_retriable`: the same record may succeed later. `is_uncertain`: it may have been written all the same.
    `is_superseded`: a newer record of its key was written, so this one must not be sent again.
    """

    topic: str
    key: str | bytes | None
    message: str
    code: str | None
    is_retriable: bool
    is_uncertain: bool = False
    is_superseded: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """One window of a view. `start_ms` and `end_ms` are None where the view has no windows."""

    key: str | bytes
    start_ms: int | None
    end_ms: int | None
    is_final: bool
    changed_ms: int
    values: Mapping[str, Any]
    age: timedelta | None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A raw record as Kafka has it; its key or value is None where it has none."""

    topic: str
    position: Position
    timestamp_ms: int | None
    key: str | bytes | None
    value: Any
    value_format: str
    headers: tuple[RecordHeader, ...] | None


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic of Kafka, and how many partitions it has."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of a topic: which shard has it, and how far behind Kafka it is."""

    partition: int
    stripe: int
    slot: int
    shard: str | None
    next_offset: int
    log_end: int
    lag: int
    is_building: bool
    is_incomplete: bool
    has_strays: bool
    age: timedelta | None


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """How a topic is kept. `document`: the answer as JSON has it."""

    topic: str
    partitions: int
    stripes: int
    lag: int
    age: timedelta | None
    lanes: tuple[Lane, ...]
    document: Mapping[str, Any] = field(repr=False)
