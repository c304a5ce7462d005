"""The records of a view, from a batch of its query or from the log, folded by Spark into partial windows."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import DataFrame

from keylane.adapters.registry.login import RegistrySettings
from keylane.errors import BadConfig
from keylane.state.windows import Definition
from keylane_spark.engine.session import REFUSALS
from keylane_spark.engine.value_errors import is_about_a_value
from keylane_spark.lanes.lane import LaneTarget
from keylane_spark.lanes.view_lanes import ViewLanes
from keylane_spark.views.closings import Stretch
from keylane_spark.views.partials import PartialWindow, parse_partials, partials
from keylane_spark.views.table_rows import failed_changes, row_changes
from keylane_spark.views.values import LogRows, error_of_task, read_keys


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

    def check(self, rows: LogRows, stretch: Stretch) -> None:
        """Look at rows that were read and not counted yet.

        Raises Fenced, CorruptState, StateUnavailable, LogUnavailable.
        """
        found = _collect(read_keys(rows).groupBy("partition").count())
        counts = {row["partition"]: row["count"] for row in found.to_pylist()}
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
    """Rows of the topic. `rows_of`: returns those of a stretch. `gaps`: None where none are to be found.

    `any_rows_of`: the same, read by the job itself, where Spark's source, which fails on some records, does.
    `registry`: of schemas, where values name them.
    """

    view: Definition
    gaps: GapCheck | None
    rows_of: Callable[[Stretch], LogRows]
    any_rows_of: Callable[[Stretch], LogRows] | None = None
    registry: RegistrySettings | None = None

    def read(self, stretch: Stretch) -> list[PartialWindow]:
        """Fold the rows of exactly this stretch.

        No session has both late records and others. Errors as `GapCheck.check`, and RegistryUnavailable,
        LogUnavailable, StretchTooLarge.
        """
        rows, folded = self._computed(
            stretch, lambda rows: partials(rows, self.view, stretch.watermark_ms, self.registry)
        )
        if self.gaps is not None:
            # After the rows were read: what was removed before that is missing now.
            self.gaps.check(rows, stretch)
        return parse_partials(folded, self.view)

    def read_changes(self, stretch: Stretch) -> pa.Table:
        """What the events of exactly this stretch say of a table's rows: the columns of `row_changes`.

        Raises RegistryUnavailable, LogUnavailable.
        """
        return self._computed(stretch, lambda rows: row_changes(rows, self.view, self.registry))[1]

    def read_failed(self, stretch: Stretch) -> pa.Table:
        """As `read_changes`, of records on which it fails: nothing but their keys is looked at."""
        return self._computed(stretch, lambda rows: failed_changes(rows, self.view))[1]

    def _computed(
        self, stretch: Stretch, compute: Callable[[LogRows], DataFrame]
    ) -> tuple[LogRows, pa.Table]:
        """The rows of a stretch, and what is computed of them.

        Spark's source fails on a time that is no microseconds in 64 bits, before anything sees the record.
        """
        rows = self.rows_of(stretch)
        try:
            return rows, _collect(compute(rows))
        except REFUSALS as error:
            if self.any_rows_of is None or not is_about_a_value(error):
                raise
            try:
                rows = self.any_rows_of(stretch)
            except BadConfig:  # a login that only Java's client has
                raise error from None
        return rows, _collect(compute(rows))


def _collect(rows: DataFrame) -> pa.Table:
    try:
        return rows.toArrow()
    except PythonException as error:
        of_task = error_of_task(error)
        if of_task is None:
            raise
        raise of_task from error
