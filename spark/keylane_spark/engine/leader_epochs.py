"""Where the records of a leader epoch end in a partition's log now, asked through Spark's Java client.

A leader epoch numbers a partition's leaders, and each record's batch carries the one in which it was written.
Neither client offers the request itself (OffsetsForLeaderEpoch, KIP-101), but Java's consumer validates a
position by it (KIP-320), and its LogTruncationException has the answer. So each partition is asked about a
position that no log has.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from keylane.adapters.kafka.options import Connection
from keylane.errors import LogUnavailable
from keylane.model.kafka import TopicPartition
from keylane_spark.engine import kafka_options
from keylane_spark.engine.session import GATEWAY_ERRORS

_BEYOND_ANY_LOG = 2**62
_POLL_MS = 200
_TRUNCATED = "org.apache.kafka.clients.consumer.LogTruncationException"
_NOT_VALIDATED = "org.apache.kafka.clients.consumer.OffsetOutOfRangeException"
_SETTINGS = {
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
    "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
    "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
}


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The newest epoch in a log that is not above the one asked for, and the offset at which it ends."""

    epoch: int
    offset: int


UNKNOWN = EpochEnd(-1, -1)


def epoch_ends(
    spark: SparkSession,
    connection: Connection,
    epochs: Mapping[TopicPartition, int],
    timeout_s: float = 10.0,
) -> dict[TopicPartition, EpochEnd | None]:
    """For each partition the end of an epoch in its log; None: the log's epochs are all below it.

    An epoch older than all that the log still has ends where the log begins. A partition is left out if its
    broker does not know (Kafka before 2.3). Raises LogUnavailable.
    """
    if not epochs:
        return {}
    try:
        return _ask(spark, connection, epochs, time.monotonic() + timeout_s)
    except GATEWAY_ERRORS as error:
        cause = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
        raise LogUnavailable(f"the ends of leader epochs are not known: {cause}", 2) from error


def _ask(
    spark: SparkSession, connection: Connection, epochs: Mapping[TopicPartition, int], until_s: float
) -> dict[TopicPartition, EpochEnd | None]:
    jvm: Any = spark._jvm  # noqa: SLF001 (Spark has no other way to its JVM)
    properties = jvm.java.util.HashMap()
    prefix = len("kafka.")
    of_connection = {name[prefix:]: value for name, value in kafka_options.options(connection).items()}
    for name, value in (of_connection | _SETTINGS).items():
        properties.put(name, value)
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
    try:
        found: dict[TopicPartition, EpochEnd | None] = {}
        missing = dict(epochs)
        while missing:
            if time.monotonic() > until_s:
                raise LogUnavailable(f"no leader returned the end of an epoch of {sorted(missing)}", 2)
            _seek(jvm, consumer, missing)
            for partition, end in _poll(jvm, consumer, until_s):
                missing.pop(partition, None)
                if end is not UNKNOWN:
                    found[partition] = end
        return found
    finally:
        consumer.close()


def _seek(jvm: Any, consumer: Any, epochs: Mapping[TopicPartition, int]) -> None:
    partitions = jvm.java.util.ArrayList()
    for topic, partition in epochs:
        partitions.add(jvm.org.apache.kafka.common.TopicPartition(topic, partition))
    consumer.assign(partitions)
    for partition, epoch in zip(partitions, epochs.values(), strict=True):
        known = jvm.java.util.Optional.of(epoch)
        position = jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(_BEYOND_ANY_LOG, known, "")
        consumer.seek(partition, position)


def _poll(jvm: Any, consumer: Any, until_s: float) -> list[tuple[TopicPartition, EpochEnd | None]]:
    """The answers of one leader: its exception has all partitions that were asked of it."""
    while time.monotonic() < until_s:
        try:
            consumer.poll(jvm.java.time.Duration.ofMillis(_POLL_MS))
        except Py4JJavaError as error:
            beyond = error.java_exception
            name = beyond.getClass().getName()
            if name not in {_TRUNCATED, _NOT_VALIDATED}:
                raise
            return [
                ((each.topic(), each.partition()), _end(beyond, each) if name == _TRUNCATED else UNKNOWN)
                for each in beyond.partitions()
            ]
    return []


def _end(truncated: Any, partition: Any) -> EpochEnd | None:
    found = truncated.divergentOffsets().get(partition)
    return None if found is None else EpochEnd(int(found.leaderEpoch().orElse(-1)), int(found.offset()))
