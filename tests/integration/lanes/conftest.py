from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import lanes as t

from keylane_spark.lanes import lane as lane_module

if TYPE_CHECKING:
    from keylane_spark.lanes.lane import LaneTarget
    from keylane_spark.lanes.lane_writer import LaneWriter


@pytest.fixture(autouse=True)
def every_chunk_may_be_a_transaction(monkeypatch) -> None:
    """Tests send few records, and mean chunks of any size."""
    monkeypatch.setattr(lane_module, "PAYS_FROM_RECORDS", 1)


@pytest.fixture
def lane() -> LaneTarget:
    """A lane of a topic of its own."""
    return t.new_lane()


@pytest.fixture
def lanes(redis_cluster: str, lane: LaneTarget) -> LaneWriter:
    """A writer that has opened it."""
    return t.opened(redis_cluster, lane)
