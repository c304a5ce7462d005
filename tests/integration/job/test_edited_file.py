"""SIGHUP: what the file says by now never ends a job that serves."""

from __future__ import annotations

import os
import signal
from contextlib import closing

from confluent_kafka.admin import AdminClient
from tests.servers.own import create_topic, eventually, produce
from tests.support import jobs
from tests.support.jobs import State


def read_again(job: jobs.RunningJob, folder, config: str, said: str) -> None:
    """Have a job read this file, and wait until it has said that, and serves."""
    before = len(job.lines)
    (folder / "keylane.toml").write_text(f"{config}[spark]\n{jobs.SELDOM}")
    os.kill(job.process.pid, signal.SIGHUP)
    job.wait_for(said, after=before)
    job.wait_for("keylane: ready", after=before)


def serves(kafka: str, redis_cluster: str, topic: str, value: bytes) -> None:
    """Wait until the state has what is written now."""
    produce(kafka, topic, [(b"key", value)])
    with closing(State(redis_cluster, topic)) as state:
        eventually(lambda: state.holds({b"key": value}))


def test_a_new_topic_that_can_not_be_served_leaves_everything_as_it_was(kafka, redis_cluster, tmp_path):
    topic, wide, refused = "edited-kept", "edited-wide", "edited-refused"
    create_topic(kafka, topic, 2)
    create_topic(kafka, wide, 2)
    config = f"[job]\ncreate_topics = true\n[topics.{topic}]\n"
    with jobs.running(kafka, redis_cluster, tmp_path, config) as job:
        job.wait_for("keylane: ready")
        more = f'{config}[topics.{refused}.kafka]\n"retention.ms" = "soon"\n'
        read_again(job, tmp_path, more, f"goes on as before: topics {refused} can't be created")
        more = f"{config}[topics.{wide}]\nstripes = 9000\n"
        read_again(job, tmp_path, more, f"goes on as before: topic '{wide}': 2 partitions x 9000 stripes")
        serves(kafka, redis_cluster, topic, b"after")


def test_an_edit_while_a_topic_is_missing_in_kafka_is_applied_to_the_others(kafka, redis_cluster, tmp_path):
    topic, gone = "edited-there", "edited-gone"
    create_topic(kafka, topic, 2)
    create_topic(kafka, gone, 2)
    with jobs.running(kafka, redis_cluster, tmp_path, f"[topics.{topic}]\n[topics.{gone}]\n") as job:
        job.wait_for("keylane: ready")
        admin = AdminClient({"bootstrap.servers": kafka})  # it must live until it has the result
        admin.delete_topics([gone])[gone].result(30)
        job.wait_for(f"topic '{gone}' is missing in Kafka")
        edited = f"[topics.{topic}]\nindex = true\n[topics.{gone}]\n"
        read_again(job, tmp_path, edited, f"topic '{gone}' is missing in Kafka")
        serves(kafka, redis_cluster, topic, b"after")
        with closing(State(redis_cluster, topic)) as state:
            eventually(lambda: state.layout.options.index == 1)
