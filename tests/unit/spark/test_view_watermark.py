"""The event-time watermark of a view: neither how fast a partition is read nor an idle one matters."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.servers.own import CLOCK

from keylane.model.records import Layout
from keylane.state.windows import Column, Definition, Progress
from keylane_spark.lanes.view_lanes import ViewLaneState
from keylane_spark.views.view_writer import ViewWriter


@pytest.mark.parametrize(
    ("times", "caught_up", "watermark_ms"),
    [
        ([100, 50, 70], {0, 1, 2}, 95),
        ([100, 50, 70], set(), 45),
        ([100, 50, 70], {1}, 65),
        ([100, None, 70], {0, 1, 2}, 95),
        ([100, None, 70], {0, 2}, 0),
        ([None, None, None], {0, 1, 2}, 0),
        ([3, 3, 3], {0, 1, 2}, 0),
    ],
    ids=[
        "all are read: the newest",
        "none is: the furthest back",
        "one that is read holds nothing back",
        "one without events neither",
        "one that may have older ones does",
        "no event yet",
        "never below 0",
    ],
)
def test_the_watermark_goes_by_the_partitions_that_have_more_to_be_read(times, caught_up, watermark_ms):
    view = Definition("t", (Column("n", "count"),), size_ms=10, lateness_ms=5)
    state = ViewLaneState(0, 0, Progress((0, 0, 0), tuple(times)))
    writer = ViewWriter(view, Layout("~v", 1), SimpleNamespace(lanes=[]), {"lane": state}, CLOCK)
    assert writer._watermark_ms(caught_up) == watermark_ms
