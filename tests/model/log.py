"""The model's log: its records, and a batch of them as Spark would hand it over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import pyarrow as pa

TOPIC = "model"
BASE_MS = 1_700_000_000_000


class Logged(NamedTuple):
    """A record. Its timestamp and its acknowledgement follow the order in which records were written."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None
    number: int
    acked: int

    @property
    def place(self) -> tuple[str, int]:
        return TOPIC, self.partition


class Kind(NamedTuple):
    """What a record to be written is: of lane 0's key, in this partition; a set or a tombstone."""

    partition: int
    is_set: bool

    def __str__(self) -> str:
        return f"{'set' if self.is_set else 'delete'} in {self.partition}"


@dataclass(frozen=True)
class Batch:
    """A batch, as far as the job asks Spark for it."""

    records: list[Logged]

    def coalesce(self, _: int) -> Self:
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802 (Spark's name)
        records = self.records
        return pa.table(
            {
                "partition": pa.array([r.partition for r in records], pa.int32()),
                "offset": pa.array([r.offset for r in records], pa.int64()),
                "timestamp": pa.array(
                    [(BASE_MS + r.number) * 1000 for r in records], pa.timestamp("us", tz="UTC")
                ),
                "key": pa.array([r.key for r in records], pa.binary()),
                "value": pa.array([r.value for r in records], pa.binary()),
            }
        )
