"""What runs inside Spark's Python workers: writing rows into their lanes."""

from __future__ import annotations

import functools
import gc
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import pyarrow as pa

from keylane.errors import Fenced
from keylane.model.kafka import TopicPartition
from keylane.ports import Clock
from keylane_spark.lanes.cluster import Cluster, RedisSettings
from keylane_spark.lanes.dictionaries import Compressors
from keylane_spark.lanes.function_library import WriteOptions
from keylane_spark.lanes.lane import OffsetRange
from keylane_spark.lanes.parked_slots import ParkedSlots
from keylane_spark.stream.batch_writer import BatchWriter
from keylane_spark.stream.openings import WriterSpec
from keylane_spark.stream.partition_chunks import PartitionResult
from keylane_spark.telemetry.tally import Tally

_COUNTS = [field.name for field in fields(Tally)]
_COLUMNS = {
    "topic": "string",
    "partition": "int",
    "newer_epoch": "long",
    "held_back": "string",
    "stopped_at": "long",
    "failure": "string",
    "parked": "string",
    "left": "string",
    "reached": "long",
    **dict.fromkeys(_COUNTS, "long"),
}
_ARROW_TYPES = {"string": pa.string(), "int": pa.int32(), "long": pa.int64()}
TALLY_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
_ARROW_SCHEMA = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in _COLUMNS.items()])


@functools.cache
def _freeze_imports() -> None:
    """Exempt the objects of numpy and pyarrow from garbage collection, once in each worker.

    Spark's worker runs a full collection after every task: 0.1 s for those objects, a third of its time.
    """
    gc.freeze()


@functools.cache
def _cluster(settings: RedisSettings) -> Cluster:
    """One for each worker process: Spark reuses workers, and runs one task at a time in each."""
    return Cluster(settings)


@functools.lru_cache(maxsize=1)
def _compressors(settings: RedisSettings, options: WriteOptions, epoch: int) -> Compressors:
    """As `_cluster`: what a task has learned of a topic's values the next one goes on with.

    Once lanes were opened again it learns all of it again: Redis may have lost what it had.
    """
    return Compressors(settings, options, Clock(), _say)


@dataclass(frozen=True, slots=True)
class PartitionWriter(ABC):
    """A function for `mapInArrow`: writes rows, and returns one row of tallies for each partition.

    A fence is returned in a row (`newer_epoch`): raised, Spark would retry the task. A partition that is held
    back has the reason in `held_back`, else "". `parked`: the reasons of slots that the task
    has parked, as JSON: `{reason: [slot, ...]}`.

    A partition that a transform has stopped has the offset in `stopped_at`, else NOWHERE. `failure`: why the
    transform failed on the partition's first such record, else "".

    A partition whose leader went away has the reason in `left`, else "": it is read on from `reached` later.

    The watermarks move to the last row that came (`reached`), and not to the batch's end. A task whose query
    ends meanwhile sees its input end early, without an error. Only the driver, which hears whether all tasks
    have succeeded, knows that no row follows.
    """

    writer: WriterSpec
    ranges: Mapping[TopicPartition, OffsetRange]
    parked: Mapping[int, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all batches of one task."""
        _freeze_imports()
        parked = ParkedSlots(dict(self.parked))
        lanes = self.writer.lanes(_cluster(self.writer.redis), Clock(), _say, parked)
        batch_writer = BatchWriter(
            lanes,
            self.writer.layouts,
            self.ranges,
            self.writer.framed,
            self.writer.transforms,
            _compressors(self.writer.redis, self.writer.options, self.writer.epoch),
        )
        newer_epoch = 0
        try:
            self.write_rows(batches, batch_writer)
            batch_writer.finish_reached()
        except Fenced as fenced:
            newer_epoch = fenced.newer_epoch
        except BaseException:
            lanes.abandon()
            raise
        new = json.dumps(by_reason(parked, self.parked))
        left = batch_writer.left
        nothing = {source: PartitionResult(reached=self.ranges[source].begin) for source in left}
        rows = [
            {
                "topic": topic,
                "partition": partition,
                "newer_epoch": newer_epoch,
                "parked": new,
                "left": left.get((topic, partition), ""),
                "held_back": each.held_back,
                "stopped_at": each.stopped_at,
                "failure": each.failure,
                "reached": each.reached,
                **{name: getattr(each.tally, name) for name in _COUNTS},
            }
            for (topic, partition), each in (nothing | batch_writer.results).items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_SCHEMA)

    @abstractmethod
    def write_rows(self, batches: Iterator[pa.RecordBatch], writer: BatchWriter) -> None:
        """Write the rows that the task's input stands for."""


def by_reason(parked: ParkedSlots, before: Mapping[int, str]) -> dict[str, list[int]]:
    """The slots that have been parked since, by reason."""
    found: dict[str, list[int]] = {}
    for slot, why in parked.reasons.items():
        if slot not in before:
            found.setdefault(why, []).append(slot)
    return found


def _say(text: str) -> None:
    sys.stderr.write(f"keylane: {text}\n")
