"""The package by `spark-submit` on a standalone cluster, as a managed Spark starts it."""

from __future__ import annotations

import signal

import pytest
from tests.servers.own import eventually
from tests.servers.spark_cluster import own_spark_cluster
from tests.support.spark_jobs import SubmittedScene, kill

from keylane_spark.engine.session import WORKER_DAEMON

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

STOPPED = "keylane: stopped"


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with own_spark_cluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def scene(kafka, redis_cluster, spark, tmp_path_factory):
    shared = SubmittedScene(kafka, redis_cluster, spark, tmp_path_factory.mktemp("scene"), "submitted")
    yield shared
    shared.close()


@pytest.fixture(params=["direct", "spark"])
def job(scene, request):
    """A job with each of the readers; the second one goes on where the first has stopped."""
    return scene.start(f'reader = "{request.param}"')


def test_a_submitted_job_bears_a_killed_executor_and_a_killed_worker_and_stops_in_order(scene, spark, job):
    first, second = spark.workers
    with scene.watched():
        scene.wait_until_writing(first, second)
        for worker in spark.workers:
            for daemon in worker.python_daemons:
                assert WORKER_DAEMON in daemon.cmdline()
                environment = daemon.environ()
                assert not [name for name in environment if name.startswith("KEYLANE_")]
                path = {each for each in environment["PYTHONPATH"].split(":") if str(spark.home) not in each}
                assert path == {"./python"}
        scene.in_a_burst(lambda: kill(first.executors))
        scene.wait_until_writing(first)
        scene.in_a_burst(second.program.kill)
        eventually(lambda: spark.alive == {first.port})
        scene.write(10_000)
        scene.wait_until_written()
        second.program.start()
        scene.wait_until_writing(first, second)
    scene.in_a_burst(job.process.terminate)
    # Java's own for a JVM that a signal has ended, whatever its hooks did.
    assert job.exit_code() == 128 + signal.SIGTERM
    [last] = [line for line in job.lines if line.startswith(STOPPED)]
    assert not [line for line in job.lines[job.lines.index(last) :] if "ShutdownHook" in line]
    assert not [line for line in job.lines if line.startswith("keylane: stops")]
