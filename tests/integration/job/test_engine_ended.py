"""Spark's JVM dies under a job: the process ends, and says that another one must go on."""

from __future__ import annotations

import psutil
import pytest
from tests.servers.own import create_topic
from tests.support import jobs

TOPIC = "engine-ended"
CONFIG = """\
[topics.{topic}]
[views.{topic}-counts]
topic = "{topic}"
[views.{topic}-counts.columns]
n = "count()"
"""


@pytest.fixture
def job(kafka, redis_cluster, tmp_path):
    create_topic(kafka, TOPIC, 2)
    running = jobs.start(kafka, redis_cluster, tmp_path, CONFIG.format(topic=TOPIC))
    yield running
    running.kill()


def test_a_job_whose_jvm_was_killed_ends_at_once_instead_of_trying_for_ever(job):
    job.wait_for("keylane: ready")
    [jvm] = [each for each in psutil.Process(job.process.pid).children() if "java" in each.name()]
    jvm.kill()
    assert job.exit_code() == 5, "\n".join(job.lines[-40:])
    assert "keylane: stops: Spark's JVM does not answer any more: start the job again" in "\n".join(job.lines)


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
def test_what_spark_refuses_at_the_start_is_a_sentence_and_an_exit_code(
    kafka, redis_cluster, tmp_path, setting, line
):
    create_topic(kafka, topic := f"engine-refuses-{len(line)}", 1)
    job = jobs.start(kafka, redis_cluster, tmp_path, f"[spark]\n{setting}\n[topics.{topic}]\n")
    try:
        assert job.exit_code() == 4, "\n".join(job.lines[-40:])
        log = "\n".join(job.lines)
        assert "keylane: stops: Spark" in log
        assert line in log
        assert "Traceback" not in log
    finally:
        job.kill()
