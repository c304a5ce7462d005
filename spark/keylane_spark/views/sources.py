"""The records of a view, from a batch of its query or from the log, folded by Spark into partial windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from keylane_spark.views.partials import parse_partials, partials

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

    from keylane.state.windows import Definition
    from keylane_spark.views.closings import Offsets, Stretch
    from keylane_spark.views.partials import PartialWindow


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The rows of a batch, exactly those of [begin, end)."""

    rows: DataFrame
    view: Definition
    begin: Offsets
    end: Offsets

    def read(self, stretch: Stretch) -> list[PartialWindow]:
        """Fold the rows of a stretch."""
        rows = self.rows
        if (stretch.begin, stretch.end) != (self.begin, self.end):
            rows = rows.where((f.col("offset") >= _of(stretch.begin)) & (f.col("offset") < _of(stretch.end)))
        return _fold(rows, self.view, stretch)


@dataclass(frozen=True, slots=True)
class LogRows:
    """The rows of the log; `rows` reads those of [begin, end)."""

    rows: Callable[[Offsets, Offsets], DataFrame]
    view: Definition

    def read(self, stretch: Stretch) -> list[PartialWindow]:
        """Read the rows of a stretch and fold them."""
        return _fold(self.rows(stretch.begin, stretch.end), self.view, stretch)


def _fold(rows: DataFrame, view: Definition, stretch: Stretch) -> list[PartialWindow]:
    return parse_partials(partials(rows, view, stretch.watermark_ms).toArrow(), view)


def _of(offsets: Offsets) -> Column:
    """The offset of a row's partition."""
    return f.element_at(f.lit(list(offsets)), f.col("partition") + 1)
