"""What tests of the standing server read, and the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.own import fill
from tests.servers.standing import StandingServer, standing
from tests.support.builders import a_lane, a_layout

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def topic(redis_cluster: str) -> str:
    """A topic whose key `k` has the value `1`."""
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, b"k", b"1"))
    return layout.topic


@pytest.fixture(scope="module")
def variables(redis_cluster: str) -> dict[str, str]:
    """The settings of a server that reads."""
    return {"KEYLANE_REDIS_NODES": redis_cluster, "KEYLANE_REDIS_TLS": "false"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Iterator[StandingServer]:
    """A server with `variables`."""
    with standing(tmp_path_factory.mktemp("serve") / "log", variables) as running:
        yield running
