"""A Kafka cluster as values: brokers, partitions, offsets, raw records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
ISOLATIONS = (READ_COMMITTED, READ_UNCOMMITTED)
"""Which records of transactions a reader sees, by Kafka's names."""

EARLIEST = "earliest"
LATEST = "latest"
MAX = "max"
"""The record with the highest timestamp."""

TopicPartition = tuple[str, int]
"""A partition: its topic's name, and its number."""

At = str | int
"""A point in a partition: EARLIEST, LATEST, MAX, or a time in ms since 1970."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, at the address that it advertises."""

    number: int
    host: str
    port: int
    rack: str | None = None


class ApiVersion(NamedTuple):
    """The versions of one of Kafka's APIs that a broker supports; `api_key` is the API's number."""

    api_key: int
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """A cluster. `controller`: the number of the broker that is the controller, None without one."""

    cluster_id: str
    controller: int | None
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class KafkaPartition:
    """A partition: the numbers of its brokers. `leader` is None while there is none."""

    number: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic; `topic_id` changes when the topic is deleted and created again."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[KafkaPartition, ...]


class OffsetQuery(NamedTuple):
    """The offset `at` a point in a partition."""

    topic: str
    partition: int
    at: At


@dataclass(frozen=True, slots=True)
class OffsetFound:
    """An offset; where it was looked up by time, the timestamp (ms since 1970) of the record there too.

    `leader_epoch`: of the record there, or of the partition's leader for an end; None where Kafka has none.
    """

    offset: int
    timestamp_ms: int | None = None
    leader_epoch: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record as it is in Kafka. A key may be null; a value of None is a tombstone.

    `timestamp_type`: CreateTime or LogAppendTime, Kafka's names; without one there is no timestamp either.
    `headers` are None where they can't be decoded: the name of one is not UTF-8.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    timestamp_type: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = ()


@dataclass(frozen=True, slots=True)
class LogRange:
    """Which records to read: those of one partition from `offset` on and below `end`, at most `limit`."""

    topic: str
    partition: int
    offset: int
    end: int
    limit: int
    isolation: str = READ_COMMITTED


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Records in the order of their offsets, which may have gaps; the next read begins at `next_offset`."""

    records: tuple[LogRecord, ...]
    next_offset: int


class NewTopic(NamedTuple):
    """A topic to be created; `settings` are Kafka's. It has as many replicas as the brokers' default says."""

    partition_count: int
    settings: Mapping[str, str]
