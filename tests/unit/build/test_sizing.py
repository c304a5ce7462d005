"""The arithmetic of docs/operate/sizing.md."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from tests.support.cloudformation import ROOT, template

from keylane.routing import SLOTS
from keylane_build.sizing import __main__ as command
from keylane_build.sizing import bills, costs, pages, steps
from keylane_build.sizing import workload as sizing
from keylane_build.sizing.bills import add_up
from keylane_build.sizing.workload import Workload, size
from keylane_cli.survey import key_memory
from keylane_cli.survey.lane_balance import FULLEST
from keylane_spark.config.job import JobConfig
from keylane_spark.engine import session

START, REPORT, EVENT = 230, 252, 26
"""Bytes of Lambda's two lines in JSON, with an ARN in the first, and what CloudWatch adds to a line."""
SMALL = Workload(200, 2_000, 1e6)
LARGE = sizing.LARGE_TOPIC
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


def results(workload):
    return {each.what: each.result for each in steps.steps(workload)}


@pytest.mark.parametrize("workload", [LARGE, SMALL, INTERNET], ids=["large", "small", "internet"])
def test_who_follows_the_pages_steps_by_hand_gets_the_calculators_sizes(workload):
    found, sized = results(workload), size(workload)
    assert found["lanes"] == sized.lanes
    assert max(2, math.ceil(found["job's cores"])) == sized.job_cores
    shards = [found[f"shards for the {need}"] for need in ("memory", "writes", "reads")]
    assert max(3, math.ceil(max(shards))) == sized.shards
    assert sizing.NODES[sized.node] >= found["GiB of a node"]
    assert 3 * math.ceil(found["brokers"] / 3) == sized.brokers
    assert found["GiB of a broker's disk"] == pytest.approx(sized.disk_gib, abs=1, rel=1e-3)
    assert found["state, GiB"] == pytest.approx(sized.state_gib)


def test_the_steps_go_from_the_bytes_into_kafka_to_those_of_each_part():
    found, sized = results(LARGE), size(LARGE)
    assert found["MB/s into Kafka"] == pytest.approx(500)
    assert found["MB/s of a broker, in and out"] == pytest.approx(3 * 500 / sized.brokers, rel=1e-3)
    assert found["MB/s into a primary"] == pytest.approx(
        LARGE.writes_per_s * (44 + 18 + 170) / 1e6 / sized.shards, rel=1e-3
    )
    both = LARGE.writes_per_s * (14 + 170 + 44 + 18 + 170) / 1e6
    assert found["MB/s of an executor, in and out"] == pytest.approx(both / sized.executors, rel=1e-3)


@pytest.mark.parametrize(
    ("figure", "what"),
    [
        ("WORKER_US_PER_RECORD", "cores of records"),
        ("JVM_US_PER_RECORD", "cores of records"),
        ("WORKER_MS_PER_LANE", "cores of lanes"),
        ("BATCHES_PER_S", "cores of lanes"),
        ("HEARTBEAT_US_PER_LANE", "driver's cores for the heartbeat"),
        ("REDIS_US_PER_WRITE", "shards for the writes"),
        ("REDIS_US_PER_READ", "shards for the reads"),
    ],
)
def test_a_figure_is_changed_in_one_place(monkeypatch, figure, what):
    before = results(LARGE)
    monkeypatch.setitem(costs.VALUES, figure, 10 * costs.VALUES[figure])
    after, sized = results(LARGE), size(LARGE)
    assert after[what] > 2 * before[what]
    assert max(2, math.ceil(after["job's cores"])) == sized.job_cores
    assert math.ceil(max(after["shards for the writes"], after["shards for the reads"])) == sized.shards


def test_each_figure_is_in_the_pages_table():
    shown = {value for _, value, _, _ in (*costs.MEASURED, *costs.ASSUMED)}
    named = costs.VALUES | vars(key_memory)
    figures = {value for name, value in named.items() if isinstance(value, int | float) and name.isupper()}
    with_text = {key_memory.BYTES_PER_INDEXED_KEY, key_memory.NAME_BYTES, key_memory.ENVELOPE_BYTES}
    with_text |= {key_memory.LARGEST_PART_MB}
    assert figures - shown == with_text


def test_the_heartbeat_that_is_assumed_is_the_jobs():
    assert 1000 / JobConfig().heartbeat_ms == costs.HEARTBEATS_PER_S
    assert session.TASK_RECORDS == costs.TASK_RECORDS


def test_a_batch_a_second_takes_the_load_of_a_large_topic():
    assert results(LARGE)["records of a batch, at most"] >= LARGE.writes_per_s
    assert costs.BATCHES_PER_S == 1


def test_the_answer_on_the_page_is_that_of_the_calculator():
    sized = size(LARGE)
    page = (ROOT / "docs" / "operate" / "sizing.md").read_text(encoding="utf-8")
    numbers = {3: "three", 4: "four"}
    answer = f"one driver and {numbers[sized.executors]} executors of {sizing.EXECUTOR_CORES} cores"
    assert f"{answer}, {sized.shards} shards, {sized.brokers} brokers." in page
    full = 1e6 / costs.HEARTBEATS_PER_S / costs.HEARTBEAT_US_PER_LANE
    assert f"full at {math.floor(full / 1000) * 1000:,} lanes" in page


def test_a_topic_keeps_the_partitions_that_it_has():
    assert size(replace(SMALL, partitions=64)).partitions == 64
    with pytest.raises(ValueError, match="10 partitions are too few for these records: 55 are needed"):
        size(replace(LARGE, partitions=10))


def test_brokers_are_larger_where_too_many_small_ones_would_be_needed():
    assert size(INTERNET).broker == "kafka.m7g.large"
    assert size(LARGE).broker == "kafka.m7g.xlarge"
    assert size(LARGE).parameters["KafkaBrokerType"] == "kafka.m7g.xlarge"
    with pytest.raises(ValueError, match=r"90 brokers of kafka.m7g.2xlarge are needed: split"):
        size(replace(LARGE, writes_per_s=2e7))


def test_what_producers_write_to_kafka_is_no_request():
    assert size(LARGE).requests_per_s == LARGE.reads_per_s


def test_a_place_to_run_costs_its_cores_and_the_rest_is_the_same():
    found, sized = steps.hosts(LARGE), size(LARGE)
    rest = [{part: dollars for part, dollars in each.items() if part != "the job"} for each in found.values()]
    assert all(each == rest[0] for each in rest)
    assert {"brokers", "cache nodes", "from Kafka to the job, between zones"} <= rest[0].keys()
    cores = (1 + sized.executors) * sizing.EXECUTOR_CORES
    assert found["EMR Serverless"]["the job"] == pytest.approx(cores * 730 * (0.052624 + 4 * 0.0057785))
    assert found["EKS on EC2"]["the job"] == pytest.approx(cores * 730 * 0.0408 + 73)
    far = 500e6 * 730 * 3600 / 1e9 * 2 / 3
    assert rest[0]["from Kafka to the job, between zones"] == pytest.approx(far * 0.02)


def test_a_small_workload_gets_the_minimum_of_everything():
    sized = size(SMALL)
    assert (sized.shards, sized.bound, sized.node) == (3, "the least", "cache.r7g.large")
    assert (sized.job_cores, sized.brokers) == (2, 3)


@pytest.mark.parametrize(
    ("more", "bound"),
    [({"keys": 1e11}, "memory"), ({"writes_per_s": 2e6}, "writes"), ({"reads_per_s": 1e7}, "reads")],
)
def test_the_largest_need_determines_the_number_of_shards(more, bound):
    assert size(replace(SMALL, **more)).bound == bound


@pytest.mark.parametrize("workload", sizing.EXAMPLES.values(), ids=sizing.EXAMPLES)
def test_every_example_fits_its_own_sizing(workload):
    sized = size(workload)
    assert (
        sized.shards * sizing.NODES[sized.node] * key_memory.MEMORY_USED
        >= sized.state_gib * key_memory.REBUILD
    )
    assert sized.shards <= sized.partitions * sized.stripes.stripes <= SLOTS
    assert sized.stripes.fullest <= FULLEST
    written = workload.writes_per_s * (workload.key_bytes + workload.value_bytes)
    kept_gib = written * workload.retention_h * 3600 * 3 / 2**30
    assert sized.brokers * sized.disk_gib * costs.DISK_USED >= kept_gib
    assert workload.writes_per_s / sized.partitions <= costs.PARTITION_RECORDS_PER_S
    assert sized.shards * costs.MAX_LOAD >= workload.reads_per_s * costs.REDIS_US_PER_READ / 1e6


def test_an_index_has_parts_that_can_be_moved():
    shop = sizing.EXAMPLES["a large shop"]
    sized = size(shop)
    lane_bytes = shop.keys / sized.lanes * (shop.key_bytes + 10)
    assert (sized.index_parts - 1) * 64e6 < lane_bytes <= sized.index_parts * 64e6
    assert size(replace(shop, keys=1e6)).index_parts == 1
    assert size(replace(shop, indexed=False)).index_parts == 0


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
    assert "| lanes | `3 * 10` | 30 |" in printed
    options = "--mb-per-s 22 --reads-per-s 1 --keys 1 --partitions 48 --retention-h 24 --indexed"
    command.main(options.split())
    printed = capsys.readouterr().out
    assert "| records/s | 100,000 |" in printed
    assert "| partitions x stripes | 48 x 1 |" in printed
    with pytest.raises(SystemExit):
        command.main(["--writes-per-s", "200"])
    assert "--reads-per-s, --keys" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("requests", "gateway", "function", "logs"),
    [
        (1e6, 3.5, 0.2 + 0.05, 0.5),
        (1e9, 333 * 3.5 + 667 * 2.8, 200 + 50, 1000 * 0.5),
        (
            1e11,
            333 * 3.5 + 667 * 2.8 + 19_000 * 2.38 + 80_000 * 1.51,
            20_000 + 5_000,
            10_000 * 0.5 + 20_000 * 0.25 + 20_000 * 0.1 + 50_000 * 0.05,
        ),
    ],
)
def test_requests_cost_what_their_tier_says(requests, gateway, function, logs):
    found = [each.dollars for each in sizing.requests(requests)]
    assert found == pytest.approx([gateway, function, logs], rel=1e-5)


def test_a_start_costs_what_its_tiers_say():
    """Of 5.8 billion requests a month, 4.8 are in the third tier; none is in the fourth."""
    bill = bills.sized(sizing.EXAMPLES["a start"]).bill
    found = bill["API Gateway, requests"].dollars + bill["Lambda, requests"].dollars
    assert found == pytest.approx(15_850, rel=0.001)


def test_the_logs_of_a_request_are_as_long_as_its_lines():
    stage = template()["Resources"]["Api"]["Properties"]
    line = stage["AccessLogSetting"]["Fn::If"][1]["Format"]
    values = {"Id": "x" * 36, "caller": "x" * 34, "sourceIp": "x" * 13, "resourcePath": "x" * 26}
    for name, value in values.items():
        line = re.sub(rf"\$context\.[\w.]*{name}", value, line)
    written = len(re.sub(r"\$context\.[\w.]+", "123", line)) + START + REPORT + 3 * EVENT
    assert written == pytest.approx(costs.REQUEST_LOG_BYTES, rel=0.05)


def test_the_page_says_from_how_many_requests_on_the_server_is_the_cheaper_host():
    rate = bills.break_even()
    assert bills.server_dollars(rate) < bills.gateway_dollars(rate)
    assert bills.server_dollars(rate - 1) > bills.gateway_dollars(rate - 1)
    page = (ROOT / "docs" / "operate" / "sizing.md").read_text(encoding="utf-8")
    assert f"From {rate} requests/s on" in page
