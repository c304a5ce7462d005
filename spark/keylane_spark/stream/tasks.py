"""What runs inside Spark's Python workers: the rows of one partition into its lanes."""

from __future__ import annotations

import dataclasses
import functools
import gc
import sys
from typing import TYPE_CHECKING

import pyarrow as pa

from keylane.adapters.redis.cluster import Cluster, RedisSettings
from keylane.errors import Fenced
from keylane.ports import Clock
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.telemetry.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from keylane.model.topic_partition import TopicPartition
    from keylane_spark.stream.batch_writer import Span
    from keylane_spark.stream.openings import Writer

_COUNTS = [field.name for field in dataclasses.fields(Tally)]
TALLY_SCHEMA = ", ".join(
    ["topic string", "partition int", "newer_epoch long", *(f"{name} long" for name in _COUNTS)]
)
_ARROW_SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("newer_epoch", pa.int64())]
    + [(name, pa.int64()) for name in _COUNTS]
)


@functools.cache
def _settle() -> None:
    """Once for each worker, freeze what importing numpy and pyarrow has made.

    Spark's worker runs a full collection after every task: 0.1 s over those objects, a third of its time.
    """
    gc.freeze()


@functools.cache
def _cluster(settings: RedisSettings) -> Cluster:
    """One for each worker process: Spark reuses workers, and runs one task at a time in each."""
    return Cluster(settings)


def partition_writer(
    writer: Writer, spans: Mapping[TopicPartition, Span]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: it writes its rows and gives one row of tallies for each partition.

    A fence is told in a row (`newer_epoch`): the driver must not take it for an error that passes.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _settle()
        lanes = writer.lanes(_cluster(writer.redis), Clock(), _say)
        batch_writer = BatchWriter(lanes, writer.layouts, spans)
        newer_epoch = 0
        try:
            for batch in batches:
                batch_writer.write(batch)
            batch_writer.finish(batch_writer.tallies)
        except Fenced as fenced:
            newer_epoch = fenced.newer_epoch
        except BaseException:
            lanes.abandon()
            raise
        rows = [
            {"topic": topic, "partition": partition, "newer_epoch": newer_epoch, **dataclasses.asdict(tally)}
            for (topic, partition), tally in batch_writer.tallies.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_SCHEMA)

    return write


def _say(text: str) -> None:
    sys.stderr.write(f"keylane: {text}\n")
