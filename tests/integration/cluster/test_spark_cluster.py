"""The job on a standalone Spark cluster: a master, two workers, executors in processes of their own.

In all tests the wall clock of one worker's machine is an hour behind, and that of the other an hour ahead, as
far as Python's `time` says it; the clocks of JVMs are right (`tests.support.clocked_workers`).
"""

from __future__ import annotations

import time

import pytest
from tests.servers.own import eventually
from tests.servers.spark_cluster import own_spark_cluster
from tests.support import clocked_workers, jobs
from tests.support import lanes as t
from tests.support.spark_jobs import TTL_MS, Scene, kill

from keylane import routing
from keylane.state import redis_keys

# Executors are JVMs that start again and again, where other tests run too.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

HOUR_S = 3600
AHEAD_S = -HOUR_S, HOUR_S
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    clocks = {
        number: {clocked_workers.VARIABLE: str(ahead)} for number, ahead in enumerate((-HOUR_S, HOUR_S))
    }
    with own_spark_cluster(tmp_path_factory.mktemp("spark"), of_worker=clocks) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def scene(kafka, redis_cluster, spark, tmp_path_factory):
    """The job that all tests share; the last one replaces it."""
    shared = Scene(kafka, redis_cluster, spark, tmp_path_factory.mktemp("scene"), "cluster")
    shared.start()
    yield shared
    shared.close()


def test_executors_that_are_killed_in_the_middle_of_bursts_lose_nothing_and_double_nothing(scene, spark):
    first, second = spark.workers
    with scene.watched():
        scene.wait_until_writing(first, second)
        for victims in ([first], [second], [first, second]):
            scene.in_a_burst(lambda victims=victims: kill([e for each in victims for e in each.executors]))
            scene.wait_until_writing(*victims)
    assert scene.job.process.poll() is None


def test_a_worker_that_is_killed_is_done_without_and_used_again_when_it_is_back(scene, spark):
    first, second = spark.workers
    with scene.watched():
        scene.wait_until_writing(first, second)
        scene.in_a_burst(second.program.kill)
        eventually(lambda: spark.alive == {first.port})
        for _ in range(3):
            scene.write(10_000)
            scene.wait_until_written()
        assert not second.executors
        second.program.start()
        scene.wait_until_writing(first, second)


def test_executors_with_clocks_hours_apart_change_no_claim_and_no_time_to_live(scene, spark, redis_cluster):
    first, second = spark.workers
    now_ms = t.CLOCK.now_ms()
    with scene.watched():
        scene.wait_until_writing(first, second)
        for worker, ahead_s in zip(spark.workers, AHEAD_S, strict=True):
            assert abs(worker.clock_s() - time.time() - ahead_s) < HOUR_S / 2
        for number in range(2_000):
            scene.produce(scene.timed, b"young-%d" % number, b"v", now_ms - TTL_MS // 3)
            scene.produce(scene.timed, b"old-%d" % number, b"v", now_ms - TTL_MS * 4 // 3)
            scene.produce(scene.mixed, b"gone-%d" % number, None, now_ms)
        scene.write(20_000)
    layout = scene.states[scene.mixed].layout
    with t.client(redis_cluster) as client:
        for number in range(200):
            key = b"gone-%d" % number
            slot = routing.slot_for(routing.partition_for(key, layout.partition_count), 0, 4, 1)
            name = redis_keys.value_key(routing.hash_tag(slot), scene.mixed, layout.generation, key)
            assert DAY_MS - HOUR_S * 500 < client.pttl(name) <= DAY_MS


def test_a_driver_that_is_killed_in_the_middle_of_a_burst_is_succeeded_without_loss(scene, spark):
    old = jobs.epoch_of(scene.job)
    with scene.watched():
        scene.wait_until_writing(*spark.workers)
        scene.in_a_burst(scene.job.kill)
        scene.start()
        assert jobs.epoch_of(scene.job) > old
        scene.wait_until_writing(*spark.workers)
