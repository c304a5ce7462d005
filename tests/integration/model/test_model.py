"""The model of the protocol within small bounds, on a real Redis; `make model` looks further."""

from __future__ import annotations

import pytest
from tests.model.explorer import explore
from tests.model.spaces import SPACES, space_named

from keylane_spark.serving import open_lanes


@pytest.mark.parametrize("name", [space.name for space in SPACES])
def test_no_state_that_a_few_steps_and_faults_can_reach_breaks_a_promise(world, name):
    space = space_named(name)
    report = explore(world, space, space.gate, space.in_gate)
    assert report.broken == []
    assert report.is_complete
    assert report.starts == len(space.in_gate)
    assert report.states > 100
    assert report.recoveries > 50


def test_the_model_sees_that_strays_which_a_shard_lost_are_not_read_again(world, monkeypatch):
    monkeypatch.setattr(open_lanes, "lost_strays", lambda _: ())
    space = space_named("plain")
    (trace,) = explore(world, space, space.gate, space.in_gate).broken
    assert trace[-1].startswith("after everything was repaired the key is absent, not record ")
