from __future__ import annotations

import pytest

from keylane_spark.adapters import lane_writer


@pytest.fixture(autouse=True)
def every_chunk_may_be_a_transaction(monkeypatch) -> None:
    """Tests send few records, and mean chunks of any size."""
    monkeypatch.setattr(lane_writer, "PAYS_FROM_RECORDS", 1)
