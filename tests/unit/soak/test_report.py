from __future__ import annotations

import pytest
from tests.soak.pictures import draw_all
from tests.soak.plan import GROWING
from tests.soak.report import GROWING_KEY, judge_minutes, judge_samples
from tests.soak.sampler import (
    CONNECTIONS,
    DRIVER,
    FDS,
    HEAP_LIVE,
    KEYS,
    LOAD,
    METASPACE,
    NATIVE,
    RECORDS,
    RSS,
    SPARK,
    USED_MEMORY,
    WORKER,
)
from tests.soak.slopes import EXPLAINED, GROWS, STEADY

from keylane_build.sizing.workload import bytes_per_key

MIB = 2**20


def points(value, every_s=30):
    return [(float(at), value(at / 3600)) for at in range(0, 3601, every_s)]


def verdicts(series):
    return {(row.name, row.figure): row.verdict for row in judge_samples(series)}


def test_a_process_that_gains_memory_or_descriptors_grows():
    found = verdicts(
        {
            DRIVER: {
                RSS: points(lambda hours: 200 * MIB + 9 * MIB * hours),
                FDS: points(lambda hours: 40 + 12 * hours),
                "cpu_s": points(lambda hours: 900 * hours),
            },
            "server": {RSS: points(lambda _: 200.0 * MIB)},
        }
    )
    assert found == {(DRIVER, RSS): GROWS, (DRIVER, FDS): GROWS, ("server", RSS): STEADY}


@pytest.mark.parametrize(
    ("native", "verdict"), [(lambda _: 90.0 * MIB, EXPLAINED), (lambda hours: (90 + 80 * hours) * MIB, GROWS)]
)
def test_a_jvm_that_fills_its_heap_is_explained_unless_one_of_its_parts_grows(native, verdict):
    jvm = {
        RSS: points(lambda hours: (400 + 90 * hours) * MIB),
        HEAP_LIVE: points(lambda _: 80.0 * MIB, 120),
        METASPACE: points(lambda _: 150.0 * MIB, 120),
        NATIVE: points(native, 120),
    }
    assert verdicts({SPARK: jvm})[SPARK, RSS] == verdict
    assert verdicts({SPARK: {RSS: jvm[RSS]}})[SPARK, RSS] == GROWS


def test_the_server_s_connections_are_explained_by_those_that_the_load_keeps():
    kept = points(lambda hours: 40 + 90 * hours)
    series = {WORKER: {CONNECTIONS: points(lambda hours: 49 + 90 * hours)}, LOAD: {CONNECTIONS: kept}}
    assert verdicts(series) == {(WORKER, CONNECTIONS): EXPLAINED}
    series[WORKER][RSS] = points(lambda hours: (70 + 5 * hours) * MIB)
    assert verdicts(series)[WORKER, RSS] == EXPLAINED
    series[WORKER][RSS] = points(lambda hours: (70 + 9 * hours) * MIB)
    assert verdicts(series)[WORKER, RSS] == GROWS
    del series[WORKER][RSS]
    series[LOAD] = {CONNECTIONS: points(lambda _: 40.0)}
    assert verdicts(series) == {(WORKER, CONNECTIONS): GROWS}


def redis_of(memory_per_key, keys_an_hour=20_000):
    nodes = {
        f"redis {number}": {
            KEYS: points(lambda hours: 3_000 + keys_an_hour * hours),
            USED_MEMORY: points(lambda hours: 4 * MIB + memory_per_key * keys_an_hour * hours),
        }
        for number in range(6)
    }
    return {**nodes, f"topic {GROWING}": {RECORDS: points(lambda hours: 60_000 * hours)}}


def test_what_the_load_adds_to_redis_is_explained_and_what_a_key_should_not_take_is_not():
    fair = bytes_per_key(GROWING_KEY)
    assert set(verdicts(redis_of(fair * 1.1)).values()) == {EXPLAINED}
    found = verdicts(redis_of(fair * 1.6))
    assert found["redis 0", KEYS] == EXPLAINED
    assert found["redis 0", USED_MEMORY] == GROWS
    assert verdicts(redis_of(fair, keys_an_hour=40_000))["redis 3", KEYS] == GROWS


def minutes_of(age, load=lambda _: 2.0):
    return [
        {
            "minute": minute,
            "load_1min": load(minute),
            "ages_ms": {"steady": {"p50": age(minute)}},
            "requests": {"read": {"p50": 5.0}},
            "keys": {"steady": 1_900, "expiring": 7_000 + minute % 3},
        }
        for minute in range(1, 61)
    ]


def test_an_age_that_grows_minute_by_minute_is_found():
    rows = verdicts_of_minutes(lambda minute: minute * 9)
    assert rows.pop(("steady", "age p50, ms")) == GROWS
    assert set(rows.values()) == {STEADY}


def test_an_age_that_grows_with_the_load_of_the_machine_is_explained_by_it_and_more_is_not():
    assert verdicts_of_minutes(lambda minute: minute * 9, load=float)["steady", "age p50, ms"] == EXPLAINED
    rows = verdicts_of_minutes(lambda minute: minute**2 * 9, load=float)
    assert rows["steady", "age p50, ms"] == GROWS


def verdicts_of_minutes(age, **others):
    return {(row.name, row.figure): row.verdict for row in judge_minutes(minutes_of(age, **others), 2)}


def test_the_pictures_have_a_line_for_each_process_that_was_sampled():
    series = redis_of(300) | {DRIVER: {RSS: points(lambda _: 1.0 * MIB), FDS: points(lambda _: 40.0)}}
    series[DRIVER]["threads"] = points(lambda _: 9.0)
    series[SPARK] = {RSS: points(lambda _: 9.0 * MIB), FDS: points(lambda _: 400.0)}
    pictures = draw_all(series, minutes_of(lambda _: 200.0))
    assert set(pictures) == {"memory", "handles", "redis", "speed"}
    assert "File descriptors" in pictures["handles"]
    assert "<circle" not in "".join(pictures.values())
