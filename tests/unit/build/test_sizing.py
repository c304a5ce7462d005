"""The arithmetic of docs/operate/sizing.md."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.cloudformation import ROOT

from keylane_build import sizing
from keylane_build.sizing import Workload, plan

SMALL = Workload(200, 2_000, 1e6)
INTERNET = sizing.EXAMPLES["the internet, key by key"]


def test_the_stored_table_is_the_calculators():
    page = (ROOT / "docs" / "operate" / "sizing.md").read_text(encoding="utf-8")
    assert page == sizing.inserted(page), "make sizing"


def test_the_pages_example_of_a_key_is_the_calculators():
    assert sizing.bytes_per_key(Workload(1, 1, 1)) == 362
    assert "362 bytes" in (ROOT / "docs" / "operate" / "sizing.md").read_text(encoding="utf-8")


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="made by"):
        sizing.inserted("# How large?\n")


def test_a_small_load_gets_the_least_of_everything():
    made = plan(SMALL)
    assert (made.shards, made.bound, made.node) == (3, "the least", "cache.r7g.large")
    assert (made.job_cores, made.brokers) == (2, 3)


@pytest.mark.parametrize(
    ("more", "bound"),
    [({"keys": 1e11}, "memory"), ({"writes_per_s": 2e7}, "writes"), ({"reads_per_s": 1e7}, "reads")],
)
def test_what_there_is_most_of_decides_on_the_shards(more, bound):
    assert plan(replace(SMALL, **more)).bound == bound


@pytest.mark.parametrize("load", sizing.EXAMPLES.values(), ids=sizing.EXAMPLES)
def test_a_plan_holds_what_it_is_made_for(load):
    made = plan(load)
    assert made.shards * sizing.NODES_GIB[made.node] * sizing.MEMORY_USED >= made.state_gib * sizing.REBUILD
    assert made.shards <= made.partitions * made.stripes <= sizing.MOST_LANES
    assert load.writes_per_s / made.partitions <= sizing.PARTITION_RECORDS_PER_S
    assert made.shards * sizing.MOST_BUSY >= load.reads_per_s * sizing.REDIS_US_PER_READ / 1e6


def test_keys_read_together_are_one_request():
    single, together = (replace(SMALL, writes_per_s=0, keys_per_read=number) for number in (1, 100))
    assert plan(together).requests_per_s == plan(single).requests_per_s / 100
    assert plan(together).shards == plan(single).shards


def test_what_no_cluster_holds_is_told():
    with pytest.raises(ValueError, match="for reads, where a cluster has 500 at most"):
        plan(replace(INTERNET, reads_per_s=1e8))


def test_command_line_sizes_and_names_what_is_missing(capsys):
    sizing.main(["--writes-per-s", "200", "--reads-per-s", "2e3", "--keys", "1e6"])
    assert "| shards | 3 (the least) |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        sizing.main(["--writes-per-s", "200"])
    assert "reads_per_s, keys" in capsys.readouterr().err
