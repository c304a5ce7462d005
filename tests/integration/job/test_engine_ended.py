"""Spark's JVM dies under a job, or is stopped: the process ends, and says what must happen now."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

import psutil
import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.servers.own import create_topic, eventually
from tests.support import jobs

from keylane_build import job_package
from keylane_spark.engine.connector_jars import connector

TOPIC = "engine-ended"
CONFIG = """\
[topics.{topic}]
[views.{topic}-counts]
topic = "{topic}"
[views.{topic}-counts.columns]
n = "count()"
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tmp_path_factory.mktemp("engine") / "checkpoint"


@pytest.fixture(scope="module")
def job(kafka, redis_cluster, checkpoint):
    create_topic(kafka, TOPIC, 1)
    config = CONFIG.format(topic=TOPIC)
    running = jobs.start(kafka, redis_cluster, checkpoint.parent, config, KEYLANE_CHECKPOINT=str(checkpoint))
    yield running
    running.kill()


@pytest.mark.long
def test_a_sigterm_to_spark_submit_stops_the_job_before_spark_s_own_hook_ends_the_engine(
    kafka, tmp_path, start
):
    create_topic(kafka, topic := "engine-submitted", 2)
    (tmp_path / "main.py").write_text(job_package.MAIN)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    jars = ",".join(connector(jobs.JARS))
    command = [str(submit), "--master=local[2]", f"--jars={jars}", str(tmp_path / "main.py")]
    config, python = CONFIG.format(topic=topic), {"PYSPARK_PYTHON": sys.executable}
    job = start(config, command=command, **python)
    job.wait_for("keylane: ready")
    job.process.terminate()
    # Java's own for a JVM that a signal has ended, whatever its hooks did.
    assert job.exit_code() == 128 + signal.SIGTERM, "\n".join(job.lines[-40:])
    assert [line for line in job.lines if line.startswith("keylane: stopped")]
    assert "ShutdownHook" not in "\n".join(job.lines)


FUNCTION = """
import pyarrow as pa, threading, time

threading.Thread(target=time.sleep, args=(100_000,)).start()

def same(batch):
    if b"bad" in batch.column("value").to_pylist():
        raise KeyboardInterrupt
    return batch
"""


def test_an_interrupt_ends_the_job_in_order_and_one_of_its_transform_is_a_failure(
    kafka, redis_cluster, tmp_path
):
    create_topic(kafka, topic := "engine-interrupted", 1)
    (tmp_path / "interrupting.py").write_text(FUNCTION)
    config = f'[topics.{topic}]\ntransform = "interrupting:same"\non_error = "skip"\n'
    job = jobs.start(kafka, redis_cluster, tmp_path, config)
    try:
        job.wait_for("keylane: ready")
        producer = Producer({"bootstrap.servers": kafka})
        for key in (b"bad", b"good"):
            producer.produce(topic, key, key)
        assert producer.flush(60) == 0
        with contextlib.closing(jobs.State(redis_cluster, topic)) as state:
            eventually(lambda: state.holds({b"good": b"good"}))
        job.process.send_signal(signal.SIGINT)
        assert job.exit_code() == 0, "\n".join(job.lines[-40:])
        assert [line for line in job.lines if line.startswith("keylane: stopped")]
        assert not [line for line in job.lines if "restarts in" in line or "Traceback" in line]
    finally:
        job.kill()


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (
            '"spark.sql.streaming.checkpointFileManagerClass" = "no.such.Manager"',
            "java.lang.ClassNotFoundException: no.such.Manager",
        ),
        ('"spark.master" = "nowhere"', "keylane: stops: Spark does not start: "),
    ],
)
def test_what_spark_refuses_at_the_start_is_a_sentence_and_an_exit_code(kafka, start, setting, line):
    create_topic(kafka, topic := f"engine-refuses-{len(line)}", 1)
    job = start(f"[spark]\n{setting}\n[topics.{topic}]\n")
    assert job.exit_code() == 4, "\n".join(job.lines[-40:])
    log = "\n".join(job.lines)
    assert "keylane: stops: Spark" in log
    assert line in log
    assert "Traceback" not in log


def test_what_spark_refuses_later_is_tried_again(job, kafka, checkpoint):
    job.wait_for("keylane: ready")
    # The folder is gone, and can't be made, when the lanes are opened for the new partition.
    # At once: Spark writes into it all the time, and would make a file in what is being removed.
    checkpoint.rename(checkpoint.with_name("former-checkpoint"))
    checkpoint.touch()
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_partitions([NewPartitions(TOPIC, 2)])[TOPIC].result(30)
    assert "keylane: restarts in " in job.wait_for(" s: Spark refuses: ")
    checkpoint.unlink()
    job.wait_for(f"keylane: switched topic '{TOPIC}' to generation 2")
    job.wait_for(", 1 topics, 2 partitions")


@pytest.mark.last
def test_a_job_whose_jvm_was_killed_ends_at_once_instead_of_trying_for_ever(job):
    job.wait_for("keylane: ready")
    [jvm] = [each for each in psutil.Process(job.process.pid).children() if "java" in each.name()]
    jvm.kill()
    assert job.exit_code() == 5, "\n".join(job.lines[-40:])
    assert "keylane: stops: Spark's JVM does not answer any more: start the job again" in "\n".join(job.lines)
