"""What Kafka itself tells of a cluster, as values: brokers, partitions, offsets, raw records."""

from __future__ import annotations

from dataclasses import dataclass

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
ISOLATIONS = (READ_COMMITTED, READ_UNCOMMITTED)
"""What of transactions a reader sees, by Kafka's names."""

EARLIEST = "earliest"
LATEST = "latest"
MAX = "max"
"""The record with the highest timestamp."""

At = str | int
"""Where in a partition: EARLIEST, LATEST, MAX, or a time in ms since 1970."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, at the address that it gives to clients."""

    number: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """A cluster. `controller`: the number of the broker that takes requests for it, None without one."""

    cluster_id: str
    controller: int | None
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class KafkaPartition:
    """A partition by its brokers' numbers; `leader` is None while there is none."""

    number: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic; `topic_id` is another one once it was deleted and created again."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[KafkaPartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetFound:
    """An offset, and the timestamp (ms since 1970) of the record there where it was looked for by time."""

    offset: int
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record as it lies in Kafka. A key may be null; a value of None is a tombstone.

    `timestamp_type` as Kafka names it: CreateTime or LogAppendTime; without one there is no timestamp either.
    `headers` are None where they can't be read: the name of one is no UTF-8.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    timestamp_type: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Records asked for: of one partition from `offset` on, all below `end`.

    At most `limit` of them, and `max_bytes` of keys, values and headers, but one record in any case.
    """

    topic: str
    partition: int
    offset: int
    end: int
    limit: int
    max_bytes: int
    isolation: str = READ_COMMITTED


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in the order of their offsets, which may have gaps; `next_offset` is where to go on."""

    records: tuple[LogRecord, ...]
    next_offset: int
