"""The records of a view, from a batch of its query or from the log, folded by Spark into partial windows."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from keylane.state.windows import Definition
from keylane_spark.adapters.lane import LaneTarget
from keylane_spark.adapters.view_lanes import ViewLanes
from keylane_spark.views.closings import Offsets, Stretch
from keylane_spark.views.partials import PartialWindow, parse_partials, partials


@dataclass(frozen=True, slots=True)
class GapCheck:
    """Marks the lanes of a view over a compacted topic as incomplete where offsets have no record.

    Compaction may have removed it. Nothing shows whether it has: markers of transactions leave gaps too.
    `partitions` collects those with gaps.
    """

    lanes: ViewLanes
    targets: Collection[LaneTarget]
    partitions: set[int]
    say: Callable[[str], None]

    def check(self, rows: DataFrame, stretch: Stretch) -> None:
        """Look at rows that were read and not counted yet. Raises Fenced, CorruptState, StateUnavailable."""
        counts = {row["partition"]: row["count"] for row in rows.groupBy("partition").count().collect()}
        pairs = enumerate(zip(stretch.begin, stretch.end, strict=True))
        missing = {p: end - begin - counts.get(p, 0) for p, (begin, end) in pairs}
        short = {partition: count for partition, count in missing.items() if count > 0}
        if not short:
            return
        self.lanes.mark_incomplete(self.targets)
        for partition in short.keys() - self.partitions:
            self.say(
                f"INCOMPLETE: partition {partition}: {short[partition]:,} offsets have no record, "
                "and the topic is compacted: what was removed is not counted"
            )
        self.partitions.update(short)


@dataclass(frozen=True, slots=True)
class RowSource:
    """Rows of the topic. `rows_of`: returns those of a stretch. `gaps`: None where none are to be found."""

    view: Definition
    gaps: GapCheck | None
    rows_of: Callable[[Stretch], DataFrame]

    def read(self, stretch: Stretch) -> list[PartialWindow]:
        """Fold the rows of exactly this stretch. Errors as `GapCheck.check`.

        No session has both late records and others.
        """
        rows = self.rows_of(stretch)
        found = parse_partials(partials(rows, self.view, stretch.watermark_ms).toArrow(), self.view)
        if self.gaps is not None:
            # After the rows were read: what was removed before that is missing now.
            self.gaps.check(rows, stretch)
        return found


def rows_of_batch(rows: DataFrame, begin: Offsets, end: Offsets, stretch: Stretch) -> DataFrame:
    """The rows of a stretch of a batch, which has exactly those of [begin, end)."""
    if (stretch.begin, stretch.end) == (begin, end):
        return rows
    return rows.where((f.col("offset") >= _of(stretch.begin)) & (f.col("offset") < _of(stretch.end)))


def _of(offsets: Offsets) -> Column:
    """The offset of a row's partition."""
    return f.element_at(f.lit(list(offsets)), f.col("partition") + 1)
