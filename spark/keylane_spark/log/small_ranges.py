"""Ranges of which all has come at once and is small: the batches of many are parsed together."""

from collections.abc import Mapping, Sequence

import numpy as np

from keylane.model.kafka import TopicPartition
from keylane_spark.log.fetches import Fetched, PlannedRange
from keylane_spark.log.record_batches import BatchError, Piece, next_offset, parse_together
from keylane_spark.rows.records import Rows

_SMALL_BYTES = 512 * 1024
"""Up to this size the batches of many ranges are parsed together: each alone takes 60 steps by columns."""


def small_ranges(
    ranges: Sequence[PlannedRange], begins: Mapping[TopicPartition, Fetched]
) -> dict[TopicPartition, Piece]:
    """The small ranges of which all has come, in their order."""
    found = {}
    for each in ranges:
        begin = begins.get(each.source)
        if begin and len(begin.data) <= _SMALL_BYTES and next_offset(begin.data, each.begin) >= each.end:
            found[each.source] = Piece(begin.data, each.begin, each.end, begin.aborted)
    return found


def parse_first(small: dict[TopicPartition, Piece], *, with_headers: bool) -> dict[TopicPartition, Rows]:
    """The rows of the first ranges, as many as are parsed together; they are taken out of `small`.

    What can't be parsed so is left out: `read` does it alone, and says why if it can't.
    """
    try:
        found = parse_together([*small.values()], with_headers=with_headers)
    except BatchError:
        found = None
    if found is None:
        del small[next(iter(small))]
        return {}
    rows, counts = found
    sources = [*small][: len(counts)]
    ends = np.cumsum(counts).tolist()
    for source in sources:
        del small[source]
    return {
        source: rows.part(begin, end)
        for source, begin, end in zip(sources, [0, *ends[:-1]], ends, strict=True)
    }
