"""The arithmetic of docs/operate/sizing.md."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.cloudformation import ROOT

from keylane_build import sizing
from keylane_build.sizing import Workload, size

SMALL = Workload(200, 2_000, 1e6)
INTERNET = sizing.EXAMPLES["the internet, key by key"]


def test_the_table_on_the_page_is_up_to_date():
    page = (ROOT / "docs" / "operate" / "sizing.md").read_text(encoding="utf-8")
    assert page == sizing.insert_table(page), "make sizing"


def test_the_pages_example_of_a_key_is_correct():
    assert sizing.bytes_per_key(Workload(1, 1, 1)) == 362
    assert "362 bytes" in (ROOT / "docs" / "operate" / "sizing.md").read_text(encoding="utf-8")


def test_a_page_without_markers_is_rejected():
    with pytest.raises(ValueError, match="made by"):
        sizing.insert_table("# How large?\n")


def test_a_small_workload_gets_the_minimum_of_everything():
    sized = size(SMALL)
    assert (sized.shards, sized.bound, sized.node) == (3, "the least", "cache.r7g.large")
    assert (sized.job_cores, sized.brokers) == (2, 3)


@pytest.mark.parametrize(
    ("more", "bound"),
    [({"keys": 1e11}, "memory"), ({"writes_per_s": 2e7}, "writes"), ({"reads_per_s": 1e7}, "reads")],
)
def test_the_largest_need_determines_the_number_of_shards(more, bound):
    assert size(replace(SMALL, **more)).bound == bound


@pytest.mark.parametrize("workload", sizing.EXAMPLES.values(), ids=sizing.EXAMPLES)
def test_every_example_fits_its_own_sizing(workload):
    sized = size(workload)
    assert (
        sized.shards * sizing.NODES_GIB[sized.node] * sizing.MEMORY_USED >= sized.state_gib * sizing.REBUILD
    )
    assert sized.shards <= sized.partitions * sized.stripes <= sizing.MAX_LANES
    assert workload.writes_per_s / sized.partitions <= sizing.PARTITION_RECORDS_PER_S
    assert sized.shards * sizing.MAX_LOAD >= workload.reads_per_s * sizing.REDIS_US_PER_READ / 1e6


def test_keys_that_are_read_together_count_as_one_request():
    single, together = (replace(SMALL, writes_per_s=0, keys_per_read=number) for number in (1, 100))
    assert size(together).requests_per_s == size(single).requests_per_s / 100
    assert size(together).shards == size(single).shards


def test_a_workload_beyond_one_cluster_is_rejected():
    with pytest.raises(ValueError, match="for reads, but a cluster has at most 500"):
        size(replace(INTERNET, reads_per_s=1e8))


def test_the_command_line_prints_sizes_and_names_missing_options(capsys):
    sizing.main(["--writes-per-s", "200", "--reads-per-s", "2e3", "--keys", "1e6"])
    assert "| shards | 3 (the least) |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        sizing.main(["--writes-per-s", "200"])
    assert "--reads-per-s, --keys" in capsys.readouterr().err
