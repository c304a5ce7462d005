"""The model of the protocol within small bounds, on a real Redis; `make model` looks further."""

from __future__ import annotations

import pytest
from tests.model.explorer import Bounds, explore
from tests.model.world import World
from tests.servers.own import own_cluster

from keylane_spark.serving import open_topics

BOUNDS = Bounds(steps=3, faults=1, records=2)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A world on a cluster of its own, which holds nothing else."""
    with own_cluster(tmp_path_factory.mktemp("model")) as cluster:
        with World(cluster.addresses) as found:
            yield found
        cluster.stop()


def test_no_state_that_three_steps_and_a_fault_can_reach_breaks_a_promise(world):
    report = explore(world, BOUNDS)
    assert report.broken == []
    assert report.is_complete
    assert report.logs == 36
    assert report.states > 1000
    assert report.recoveries > 300


def test_the_model_sees_that_strays_which_a_shard_lost_are_not_read_again(world, monkeypatch):
    monkeypatch.setattr(open_topics, "lost_strays", lambda _: ())
    (trace,) = explore(world, BOUNDS).broken
    assert trace[-1].startswith("after everything was repaired the key is absent, not record ")
