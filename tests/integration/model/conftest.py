"""What tests of the model on a real cluster share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.model.world import World
from tests.servers.own import own_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster without replicas, for the model has failovers of its own. Each world leaves it empty."""
    with own_cluster(tmp_path_factory.mktemp("model"), replicas=0) as cluster:
        yield cluster.addresses
        cluster.stop()


@pytest.fixture(scope="module")
def world(nodes: str) -> Iterator[World]:
    """A world for the tests of a file."""
    with World(nodes) as found:
        yield found
