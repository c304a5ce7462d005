"""What tests of the standing server read, and the server."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.servers.own import fill
from tests.servers.standing import StandingServer, standing
from tests.support import lanes as t
from tests.support.builders import a_lane, a_layout
from tests.support.logged_topic import LoggedTopic
from tests.support.served import Served
from tests.support.server_process import Process

from keylane.adapters.redis.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


@pytest.fixture(scope="module")
def process(variables: dict[str, str]) -> Iterator[Process]:
    """One process of a server with `variables`, in a thread."""
    with closing(Process(variables)) as running:
        yield running


@pytest.fixture(scope="module")
def serve(redis_cluster: str) -> Iterator[Callable[..., Served]]:
    """Makes topics that are written as the job writes them, with the options that it is given."""
    cluster = Cluster(t.settings(redis_cluster))
    yield lambda **options: Served(redis_cluster, cluster, **options)
    cluster.close()


@pytest.fixture(scope="module")
def logged_topic(serve: Callable[..., Served], kafka: str) -> Callable[..., LoggedTopic]:
    """Makes topics that Kafka has, too."""
    return lambda **options: LoggedTopic(serve(**options), kafka)
