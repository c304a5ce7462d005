"""Which change of a table's row is its last one, as a topic decides it between records of a key.

Within a partition offsets decide. Between partitions order timestamps do, at a tie the partition in which the
row's key belongs, then the lower one. The order timestamp of a change is the highest that the row has had in
its partition up to then: clocks go back.
"""

from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keylane_spark.views.row_states import combined

_NEVER_MS = np.iinfo(np.int64).min
_NOWHERE = -1


class Positions(NamedTuple):
    """The change of each row: where it is, its order timestamp, and whether the row's key belongs there."""

    partition: NDArray[np.int64]
    offset: NDArray[np.int64]
    ms: NDArray[np.int64]
    is_own: NDArray[np.bool_]

    @classmethod
    def none(cls, count: int) -> Self:
        """Of rows that have no change: any is after it."""
        nowhere = np.full(count, _NOWHERE, np.int64)
        return cls(nowhere, nowhere.copy(), np.full(count, _NEVER_MS, np.int64), np.zeros(count, np.bool_))

    @classmethod
    def of(cls, rows: pa.Table, home: NDArray[np.integer]) -> Self:
        """Of a table with these columns; `home`: the partition in which each row's key belongs."""
        partition, offset, ms = (
            rows.column(name).to_numpy().astype(np.int64) for name in ("partition", "offset", "ms")
        )
        return cls(partition, offset, ms, partition == home)

    @property
    def exist(self) -> NDArray[np.bool_]:
        """Which rows have a change."""
        found: NDArray[np.bool_] = self.partition != _NOWHERE
        return found

    def taken(self, rows: NDArray[np.integer]) -> Self:
        """Those of some rows."""
        return type(self)(*(column[rows] for column in self))

    def put(self, rows: NDArray[np.integer], others: Self) -> None:
        """Replace those of some rows."""
        for column, other in zip(self, others, strict=True):
            column[rows] = other

    def following(self, before: Self) -> Self:
        """The same with their order timestamps, given the changes that the rows had before."""
        continues = self.partition == before.partition
        return self._replace(ms=np.where(continues, np.maximum(self.ms, before.ms), self.ms))

    def are_at(self, others: Self) -> NDArray[np.bool_]:
        """Which of them are the same changes."""
        found: NDArray[np.bool_] = (self.partition == others.partition) & (self.offset == others.offset)
        return found

    def are_after(self, others: Self) -> NDArray[np.bool_]:
        """Which of them replace the others."""
        is_own_more = self.is_own > others.is_own
        wins_tie = is_own_more | ((self.is_own == others.is_own) & (self.partition < others.partition))
        by_time = (self.ms > others.ms) | ((self.ms == others.ms) & wins_tie)
        by_offset = self.offset > others.offset
        found: NDArray[np.bool_] = np.where(self.partition == others.partition, by_offset, by_time)
        return found | ~others.exist

    def are_last(self, codes: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which is the last change of its row; a row has at most one change of each partition here.

        `codes`: equal for the same row.
        """
        order = np.lexsort((-self.partition, self.is_own, self.ms, codes))
        is_last = np.ones(len(codes), np.bool_)
        is_last[order[:-1]] = codes[order[1:]] != codes[order[:-1]]
        return is_last


def last_changes(changes: pa.Table) -> tuple[pa.Table, NDArray[np.int64]]:
    """The last change of each row in each partition, with its order timestamp, of changes in their order.

    Also returns a number for each, equal for the same row. Changes without a key are of no row.
    """
    keyed = changes.filter(changes.column("key").is_valid())
    if not len(keyed):
        return keyed, np.empty(0, np.int64)
    rows = combined(keyed.column("key")).dictionary_encode().indices.to_numpy().astype(np.int64)
    partitions = keyed.column("partition").to_numpy()
    width = int(partitions.max()) + 1
    names, which = np.unique(rows * width + partitions, return_inverse=True)
    last, ms = np.zeros(len(names), np.int64), np.full(len(names), _NEVER_MS, np.int64)
    np.maximum.at(last, which, np.arange(len(keyed)))
    np.maximum.at(ms, which, keyed.column("ms").to_numpy())
    found = keyed.take(pa.array(last))
    return found.set_column(found.schema.get_field_index("ms"), "ms", pa.array(ms)), names // width
