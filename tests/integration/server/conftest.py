"""What tests of the standing server read."""

from __future__ import annotations

import pytest
from tests.servers.own import fill
from tests.support.builders import a_lane, a_layout


@pytest.fixture(scope="module")
def topic(redis_cluster: str) -> str:
    """A topic whose key `k` has the value `1`."""
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, b"k", b"1"))
    return layout.topic
