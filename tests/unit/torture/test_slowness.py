"""When readers gave up on a node: it excuses what they saw only where no trouble was planned."""

from __future__ import annotations

import time
from pathlib import Path

from tests.torture.checks import Facts
from tests.torture.faults.world import Trouble
from tests.torture.slowness import SLOW_NODE, Slowness, unexplained

NOTHING = Path("/no/such/file")


def test_a_node_that_was_slow_without_a_cause_is_harmless_trouble_of_its_shard_for_a_while():
    slowness = Slowness(lambda slot: slot // 100, NOTHING)
    before_s = time.monotonic()
    slowness.note(250)
    [found] = slowness.take()
    assert (found.kind, found.shard, found.lost_data, found.unreachable) == (SLOW_NODE, 2, False, False)
    assert before_s <= found.began_s < found.ended_s
    assert not slowness.take()
    facts = Facts(None, None, [found], None)  # type: ignore[arg-type]
    assert facts.has_trouble(before_s, found.began_s)
    assert not facts.has_lost(2, found.ended_s)


def test_a_node_that_was_slow_in_planned_trouble_excuses_beyond_its_end_and_is_not_counted():
    slowness = Slowness(lambda slot: slot, NOTHING)
    planned = Trouble("stop-node", 1, time.monotonic())
    slowness.note(1)
    slowness.note(2)
    planned.ended_s = time.monotonic()
    found = slowness.take()
    assert unexplained(found, [planned]) == 1
    facts = Facts(None, None, [planned, *found], None)  # type: ignore[arg-type]
    assert facts.has_trouble(planned.ended_s + 0.1, planned.ended_s + 0.2)


def test_nodes_that_did_not_answer_the_server_are_taken_once_each_line_when_it_is_complete(tmp_path):
    file = tmp_path / "slow-nodes"
    slowness = Slowness(lambda slot: slot // 100, file)
    assert not slowness.take()
    file.write_text("250 12.5\n101 13.0\n30", encoding="ascii")
    assert [(each.shard, each.began_s) for each in slowness.take()] == [(2, 12.5), (1, 13.0)]
    assert not slowness.take()
    with file.open("a", encoding="ascii") as opened:
        opened.write("1 14.0\n")
    assert [(each.shard, each.began_s) for each in slowness.take()] == [(3, 14.0)]
