"""What tests of the query function share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import lanes as t
from tests.support.builders import load_handler
from tests.support.served import Served

from keylane.adapters.redis.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType


@pytest.fixture
def query_function(redis_cluster: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A warm function that reads from the cluster."""
    monkeypatch.setenv("KEYLANE_REDIS_NODES", redis_cluster)
    monkeypatch.setenv("KEYLANE_WAIT_DEFAULT_MS", "15000")
    function = load_handler("query")
    yield function
    function.application.parts().store.state.close()


@pytest.fixture
def serve(redis_cluster: str) -> Iterator[Callable[..., Served]]:
    """A topic with these options, and a writer of its lanes."""
    cluster = Cluster(t.settings(redis_cluster))
    yield lambda **options: Served(redis_cluster, cluster, **options)
    cluster.close()
