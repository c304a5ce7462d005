"""The arithmetic of docs/operate/sizing.md."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.support.cloudformation import ROOT

from keylane.routing import SLOTS
from keylane_build.sizing import __main__ as command
from keylane_build.sizing import bills, pages
from keylane_build.sizing import workload as sizing
from keylane_build.sizing.bills import add_up
from keylane_build.sizing.workload import Workload, size
from keylane_local.commands.lane_balance import FULLEST

SMALL = Workload(200, 2_000, 1e6)
INTERNET = sizing.EXAMPLES["the internet, key by key"]


@pytest.mark.parametrize("page", pages.TABLES)
def test_the_tables_on_the_pages_are_up_to_date(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text == pages.write(page, text), "make sizing"


def test_no_other_page_says_what_a_stack_costs():
    found = {
        page.relative_to(ROOT).as_posix()
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        if re.search(r"(?i)\d (us )?dollars|\$ ?\d+ a month|\bUSD\b", page.read_text(encoding="utf-8"))
    }
    assert found <= {"docs/operate/sizing.md"}


def test_the_pages_example_of_a_key_is_correct():
    assert sizing.bytes_per_key(Workload(1, 1, 1)) == 362
    assert "362 bytes" in (ROOT / "docs" / "operate" / "sizing.md").read_text(encoding="utf-8")


def test_a_page_without_markers_is_rejected():
    with pytest.raises(ValueError, match="made by"):
        pages.write("docs/operate/sizing.md", "# How large?\n")


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
    assert sized.shards * sizing.NODES[sized.node] * sizing.MEMORY_USED >= sized.state_gib * sizing.REBUILD
    assert sized.shards <= sized.partitions * sized.stripes.stripes <= SLOTS
    assert sized.stripes.fullest <= FULLEST
    kept_gib = workload.ingress_bytes_per_s * workload.retention_h * 3600 * 3 / 2**30
    assert sized.brokers * sized.disk_gib * sizing.DISK_USED >= kept_gib
    assert workload.writes_per_s / sized.partitions <= sizing.PARTITION_RECORDS_PER_S
    assert sized.shards * sizing.MAX_LOAD >= workload.reads_per_s * sizing.REDIS_US_PER_READ / 1e6


def test_keys_that_are_read_together_count_as_one_request():
    single, together = (replace(SMALL, writes_per_s=0, keys_per_read=number) for number in (1, 100))
    assert size(together).requests_per_s == size(single).requests_per_s / 100
    assert size(together).shards == size(single).shards


def test_a_workload_beyond_one_cluster_is_rejected():
    with pytest.raises(ValueError, match="for reads, but a cluster has at most 500"):
        size(replace(INTERNET, reads_per_s=1e8))


def test_the_bill_is_that_of_the_template_with_these_sizes():
    found = bills.sized(INTERNET)
    assert found.bill["cache nodes"].count == found.sizing.nodes == 320
    assert found.bill["brokers"].count == found.sizing.brokers
    assert found.bill["brokers' disks, GB"].count == found.sizing.brokers * found.sizing.disk_gib
    assert found.bill["Fargate, cores"].count >= found.sizing.job_cores
    assert found.bill["interface endpoints, by zone"].dollars > 0
    dollars = sum(each.dollars for each in found.bill.values())
    assert found.at_rest_dollars + found.requests_dollars == pytest.approx(dollars)


def test_cores_beyond_one_task_are_several_jobs():
    one, three = (size(replace(SMALL, writes_per_s=rate)) for rate in (1e6, 1e7))
    assert (one.jobs, three.jobs) == (1, 3)
    found = add_up(sizing.bill(replace(three, brokers=3, disk_gib=1)))
    assert found["Fargate, cores"].count == 3 * 16


def test_sizes_that_the_template_does_not_take_are_refused():
    with pytest.raises(ValueError, match=r"cannot be deployed with these sizes: .*VolumeGiB"):
        list(sizing.bill(size(replace(INTERNET, retention_h=1000))))


@pytest.mark.parametrize(
    ("nodes", "quotas"),
    [(90, ""), (91, "90 a cluster"), (300, "90 a cluster"), (301, "90 a cluster, 300 a region")],
)
def test_quotas_of_nodes_that_are_exceeded_are_named(nodes, quotas):
    assert sizing.exceeded_quotas(nodes) == quotas


def test_a_proposal_above_the_quota_says_so():
    [line] = [each for each in bills.render_workloads({"x": INTERNET}) if "their nodes" in each]
    assert "320 cache.r7g.4xlarge (above the quota: 90 a cluster, 300 a region)" in line
    [line] = [each for each in bills.render_workloads({"x": SMALL}) if "their nodes" in each]
    assert "quota" not in line


def test_growth_is_proposed_up_to_the_largest_cluster():
    assert size(INTERNET).stripes.most_shards == 250
    assert size(SMALL).stripes.most_shards == 12


def test_the_command_line_prints_sizes_and_names_missing_options(capsys):
    command.main(["--writes-per-s", "200", "--reads-per-s", "2e3", "--keys", "1e6"])
    printed = capsys.readouterr().out
    assert "| shards | 3 (the least) |" in printed
    assert "sam deploy --parameter-overrides CacheNodeType=cache.r7g.large CacheShards=3" in printed
    with pytest.raises(SystemExit):
        command.main(["--writes-per-s", "200"])
    assert "--reads-per-s, --keys" in capsys.readouterr().err
