"""A second set of readers in another region, on the same Kafka: near, far, and while the link is cut.

What it measures is in .keylane-bench/regions.json.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.servers.own import create_topic, eventually, own_cluster
from tests.servers.regions import ONE_WAY_S, regional_kafka, running_region
from tests.support import jobs
from tests.support.figures import RESULTS, machine, percentiles, write_json
from tests.support.jobs import State
from tests.support.region_traffic import RegionTraffic
from tests.torture.links import Mode
from tests.torture.oracle import Log
from tests.torture.schedule import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.regions import Region, RegionalKafka

PARTITIONS = 6
TOPIC = Shape("regions", PARTITIONS)
CONFIG = f"[topics.{TOPIC.name}]\npartitions = {PARTITIONS}\n"
REST_S, CUT_S = 15, 60
FRESH_MS = 2_000
BUSY_MS = 5 * FRESH_MS
"""No age where nothing is wrong, on a machine that is busy."""
WRITE_S = 30
"""A write that was sent so long before the cut has been answered."""
BACKLOG = 1_000_000
UNITS_MS = 2
"""Ages and times are whole milliseconds."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionalKafka]:
    with regional_kafka(tmp_path_factory.mktemp("regions")) as running:
        create_topic(running.bootstrap, TOPIC.name, PARTITIONS)
        yield running


@pytest.fixture(scope="module")
def regions(
    tmp_path_factory: pytest.TempPathFactory, kafka: RegionalKafka
) -> Iterator[tuple[Region, Region]]:
    folder = tmp_path_factory.mktemp("regions")
    with (
        running_region(folder / "near", kafka.bootstrap, CONFIG) as near,
        running_region(folder / "far", kafka.far.bootstrap, CONFIG) as far,
    ):
        yield near, far


def stay(seconds: float) -> None:
    """Let the traffic go on for a time."""
    until_s = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= until_s)


def oldest_ms(region: Region) -> float:
    """The age of a region's oldest lane; an hour where none was ever complete."""
    return float(topic_of(region).get("age_ms", 3_600_000))


def topic_of(region: Region) -> dict[str, Any]:
    status, _, body = region.server.ask("GET", f"/topics/{TOPIC.name}")
    found: dict[str, Any] = json.loads(body) if status == 200 else {}
    return found


def problem_of(body: bytes) -> str:
    return str(json.loads(body)["type"]).rpartition(":")[2] if body.startswith(b"{") else body.decode()


def refusals(far: Region, traffic: RegionTraffic, cut_s: float) -> dict[str, Any]:
    """Ask the region that is cut off for what it can't have, and compare its refusals with the documents."""
    eventually(lambda: any(each.acknowledged_s > cut_s for each in traffic.last.values()))
    write = max(
        (each for key, each in traffic.last.items() if key.startswith(b"near")),
        key=lambda each: each.acknowledged_s,
    )
    path, begun_s = traffic.path(write.key), time.monotonic()
    status, _, body = far.server.ask("GET", path, Keylane_Min_Position=write.position, Prefer="wait=3")
    waited_s = time.monotonic() - begun_s
    assert (status, problem_of(body)) == (412, "position-not-reached")
    assert 3 <= waited_s < 6
    before_s = time.monotonic()
    status, _, body = far.server.ask("GET", f"{path}?max_age_ms={FRESH_MS}")
    assert (status, problem_of(body)) == (412, "state-too-old")
    assert json.loads(body)["age_ms"] >= (before_s - cut_s) * 1000 - UNITS_MS
    before_s = time.monotonic()
    found = topic_of(far)
    assert found["age_ms"] >= (before_s - cut_s) * 1000 - UNITS_MS
    status, _, body = far.server.ask("GET", "/health")
    parts = json.loads(body)["parts"]
    assert (status, parts["kafka"]["ready"], parts["redis"]["ready"]) == (503, False, True)
    return {"412 after, s": round(waited_s, 2), "lag that the far region names": found["lag"]}


def check_ages(traffic: RegionTraffic, cut_s: float, healed_s: float, fresh_s: float) -> None:
    """Ages of the far region grow with the clock from the cut on, until it is fresh; near, none does."""
    near, far = traffic.saw
    for at_s, age_ms in far.ages:
        since_ms = (at_s - cut_s) * 1000
        if cut_s <= at_s < healed_s:
            assert since_ms - UNITS_MS <= age_ms < since_ms + BUSY_MS, (since_ms, age_ms)
        elif not healed_s <= at_s < fresh_s:
            assert age_ms < BUSY_MS, (since_ms, age_ms)
    assert max(near.ages_between(0, time.monotonic())) < BUSY_MS


def check_same(traffic: RegionTraffic) -> None:
    """Both regions have read the log to one end, and have the same under each key."""
    eventually(lambda: len({ends_of(each) for each in traffic.regions}) == 1)
    for write in traffic.last.values():
        answers = []
        for region in traffic.regions:
            status, found, body = region.server.ask("GET", traffic.path(write.key))
            assert status == 200
            answers.append((found["keylane-position"], found["keylane-timestamp"], body))
        assert answers[0] == answers[1]


def ends_of(region: Region) -> tuple[int, ...]:
    """The next offset of each lane."""
    return tuple(lane["next_offset"] for lane in topic_of(region)["lanes"])


def figures(samples: list[float]) -> dict[str, float]:
    found = percentiles(samples, 50, 99) | {"samples": len(samples)}
    return {name: round(value, 1) for name, value in found.items()}


def measured(traffic: RegionTraffic, phases: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """What the readers saw, by region and phase."""
    saw = dict(zip(("near", "far"), traffic.saw, strict=True))
    return {
        f"{name}, {phase}": {
            "readable after, ms": figures(readable) if (readable := each.readable_between(*times)) else None,
            "age, ms": figures(each.ages_between(*times)),
        }
        for name, each in saw.items()
        for phase, times in phases.items()
    }


@pytest.mark.parametrize(
    "cut", [Mode.HOLD, Mode.CUT], ids=["nothing arrives", "connections are reset, new ones too"]
)
def test_readers_behind_a_link_that_is_cut_report_their_age_and_catch_up(
    kafka: RegionalKafka, regions: tuple[Region, Region], cut: Mode
):
    far = regions[1]
    with contextlib.closing(Log(kafka.bootstrap, {TOPIC.name: TOPIC})) as log:
        with RegionTraffic(regions, log, TOPIC) as traffic:
            eventually(lambda: all(len(each.readable) > 20 for each in traffic.saw))
            eventually(lambda: all(oldest_ms(each) < FRESH_MS for each in regions))
            begun_s = time.monotonic()
            stay(REST_S)
            before_s = time.monotonic()
            with kafka.far.set(cut):
                cut_s = time.monotonic()
                stay(CUT_S / 2)
                facts = refusals(far, traffic, cut_s)
                stay(CUT_S - (time.monotonic() - cut_s))
            healed_s = time.monotonic()
            last = max(list(traffic.last.values()), key=lambda each: each.acknowledged_s)
            awaited = {"Keylane_Min_Position": last.position, "Prefer": "wait=20"}
            status, _, _ = far.server.ask("GET", traffic.path(last.key), **awaited)
            caught_up_s = time.monotonic()
            eventually(lambda: oldest_ms(far) < FRESH_MS)
            fresh_s = time.monotonic()
            stay(REST_S)
            end_s = time.monotonic()
        faults = traffic.check()
    phases = {"before": (begun_s, before_s), "cut": (cut_s, healed_s), "after": (fresh_s, end_s)}
    refused = [(at_s, status, problem_of(body)) for at_s, status, body in traffic.refused]
    found = {
        "link, ms there and back": ONE_WAY_S * 2_000,
        **measured(traffic, phases),
        "caught up after the cut, s": round(caught_up_s - healed_s, 2),
        "fresh after the cut, s": round(fresh_s - healed_s, 2),
        "writes refused in the far region": len(refused),
        "how": sorted({each[1:] for each in refused}),
        **facts,
        "machine": machine(),
    }
    write_json(RESULTS / f"regions-{cut.name.lower()}.json", found)
    assert (faults, [each.failed for each in traffic.saw]) == ([], [[], []])
    assert status == 200
    check_ages(traffic, cut_s, healed_s, fresh_s)
    check_same(traffic)
    assert all(each.job.process.poll() is None for each in regions)
    assert {status for _, status, _ in refused} <= {503, 504}
    assert refused
    assert all(before_s - WRITE_S <= at_s <= fresh_s for at_s, _, _ in refused)


def test_a_new_region_reads_the_log_across_the_link(kafka: RegionalKafka, tmp_path: Path):
    """What a job that starts with an empty Redis takes, near and far."""
    topic = "backlog"
    create_topic(kafka.bootstrap, topic, PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": BACKLOG}
    )
    for number in range(BACKLOG):
        producer.produce(topic, bytes(170), b"key-%010d" % number)
    assert producer.flush(120) == 0
    config, taken = f'[topics.{topic}]\npartitioner = "crc32"\n', {}
    for name, bootstrap in (("near", kafka.bootstrap), ("far", kafka.far.bootstrap)):
        folder = tmp_path / name
        folder.mkdir()
        begun_s = time.monotonic()
        with (
            own_cluster(folder, replicas=0) as redis,
            jobs.running(bootstrap, redis.addresses, folder, config) as job,
            contextlib.closing(State(redis.addresses, topic)) as state,
        ):
            job.wait_for("keylane: ready")
            ready_s = time.monotonic()
            eventually(lambda state=state: read_of(state) == BACKLOG)
            read_s = time.monotonic()
        taken[name] = {"ready, s": round(ready_s - begun_s, 1), "read, s": round(read_s - ready_s, 1)}
    write_json(RESULTS / "regions-backlog.json", {"records": BACKLOG, **taken, "machine": machine()})


def read_of(state: State) -> int:
    """How many records of the log the lanes have."""
    return sum(each.next_offset for each in state.watermarks().values() if each)
