"""Spark's Kafka source: streams and ranges of topics' rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from keylane.adapters.kafka.options import Connection
from keylane.model.kafka import TopicPartition
from keylane.model.keys import LARGEST_KEY
from keylane_spark.config.job import JobConfig
from keylane_spark.engine import kafka_options
from keylane_spark.engine.session import batch_records

_POLL_MS, _REQUEST_MS = 10_000, 15_000
"""How long a task waits for a record, and then for its log's ends. Nothing can interrupt it meanwhile.

With the defaults of 120 s and twice 60 s, the tasks of a deleted topic kept the others' from running.
"""


def stream_of(
    spark: SparkSession,
    connection: Connection,
    positions: Mapping[TopicPartition, int],
    config: JobConfig,
    *,
    columns: Collection[str] = (),
    only_these: bool = False,
) -> DataFrame:
    """A stream of all topics' rows from the given positions on.

    Each row has partition, offset, timestamp, key, value, and `columns` (topic, headers). `only_these`: no
    other partitions of the topics are read than those with a position.
    """
    topics = sorted({topic for topic, _ in positions})
    reader = (
        spark.readStream.format("kafka")
        .options(**_options(connection, config))
        .option("startingOffsets", _offsets(positions))
        .option("maxOffsetsPerTrigger", config.max_batch_records or batch_records(spark))
        .option("includeHeaders", "headers" in columns)
    )
    if only_these:
        of_topic = {name: [p for topic, p in sorted(positions) if topic == name] for name in topics}
        reader = reader.option("assign", json.dumps(of_topic))
    else:
        reader = reader.option("subscribe", ",".join(topics))
    return _selected(reader.load(), *columns)


def read_range(
    spark: SparkSession,
    connection: Connection,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    config: JobConfig,
) -> DataFrame:
    """The rows of one topic in [begins, ends), as a batch, with the columns of `stream_of`."""
    topics = sorted({topic for topic, _ in begins})
    return _selected(
        spark.read.format("kafka")
        .options(**_options(connection, config))
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", _offsets(begins))
        .option("endingOffsets", _offsets(ends))
        .load()
    )


def _selected(rows: DataFrame, *more: str) -> DataFrame:
    """The columns, without keys over LARGEST_KEY: whatever the rows pass through, they have none."""
    key = f.when(f.octet_length("key") <= LARGEST_KEY, f.col("key")).alias("key")
    return rows.select("partition", "offset", "timestamp", key, "value", *more)


def _offsets(positions: Mapping[TopicPartition, int]) -> str:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in positions.items():
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic)


def _options(connection: Connection, config: JobConfig) -> dict[str, str]:
    return {
        **kafka_options.options(connection),
        "kafka.isolation.level": config.isolation,
        # Reading a deleted topic must not create it again.
        "kafka.allow.auto.create.topics": "false",
        "kafka.fetch.max.wait.ms": str(config.fetch_max_wait_ms),
        # A consumer keeps up to three fetches: bytes, records, and the next one's bytes. Each partition has
        # one for each view too: with 4 MiB, three views of two topics filled a driver of 1 GiB.
        "kafka.max.partition.fetch.bytes": str(1024 * 1024),
        "kafka.max.poll.records": "5000",
        "kafkaConsumer.pollTimeoutMs": str(_POLL_MS),
        "kafka.request.timeout.ms": str(_REQUEST_MS),
        "kafka.default.api.timeout.ms": str(_REQUEST_MS),
        # Records removed by retention must stop the query: the next start marks the lanes incomplete.
        "failOnDataLoss": "true",
    }
