"""`keylane new` looks at a real Kafka and a real Redis Cluster."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from tests.servers.own import create_topic
from tests.support.builders import a_topic

from keylane_cli.survey.lane_balance import divide, propose_stripes
from keylane_client.cli.commands import keylane
from keylane_local.process.ports import HOST, Ports
from keylane_spark.config.topics import load


@pytest.fixture
def new(tmp_path, kafka, redis_cluster):
    def run(topic: str, *more: str):
        options = [
            "--kafka",
            kafka,
            "--redis",
            redis_cluster,
            "--topic",
            topic,
            "--stack",
            "s",
            "--json",
            *more,
        ]
        return CliRunner().invoke(keylane, ["new", str(tmp_path), *options])

    return run


def test_the_first_records_name_the_partitioner(new, kafka, tmp_path):
    topic = a_topic()
    create_topic(kafka, topic, 3)
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "fnv1a"})
    for number in range(50):
        producer.produce(topic, key=b"k-%d" % number, value=b"1")
    assert producer.flush(60) == 0
    result = new(topic)
    assert result.exit_code == 0, result.output
    [document] = json.loads(result.stdout)["topics"]
    assert (document["partitioner"], document["partitions"], document["guarded"]) == ("fnv1a", 3, False)
    found = load(tmp_path / "keylane.toml").topics[topic]
    assert found.partitioner == "fnv1a"
    # The cluster has three shards in ranges, as redis-cli divides slots.
    assert found.stripes == document["stripes"] == propose_stripes(3, divide(3)).stripes


def test_a_topic_that_is_missing_is_one_that_the_job_creates_if_it_is_asked_for(new, tmp_path):
    topic = a_topic()
    assert f"Kafka has no topic {topic!r}" in str(new(topic).exception)
    assert list(tmp_path.iterdir()) == []
    assert json.loads(new(topic, "--create-topics").stdout)["topics"][0]["partitions"] == 0
    config = load(tmp_path / "keylane.toml")
    assert config.job.create_topics
    assert config.topics[topic].partitions == 9


@pytest.mark.parametrize("part", ["kafka", "redis"])
def test_a_part_that_is_away_is_named_in_one_line_and_nothing_is_written(
    kafka, redis_cluster, tmp_path, part
):
    given = {"kafka": kafka, "redis": redis_cluster} | {part: f"{HOST}:{Ports().any()}"}
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "keylane_client.cli", "new", str(tmp_path / "own"), *options]
    command += ["--topic", a_topic(), "--stack", "s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 5
    [line] = done.stderr.splitlines()
    assert line.startswith(f"keylane: {part}: ")
    assert f"Is --{part} " in line
    assert list(tmp_path.iterdir()) == []
