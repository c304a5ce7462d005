"""`keylane new` looks at a real Kafka and a real Redis Cluster."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from tests.servers.own import create_topic, eventually
from tests.servers.registry_double import RegistryDouble
from tests.support.builders import a_topic

from keylane_cli import new_project
from keylane_cli.survey.lane_balance import divide, propose_stripes
from keylane_client.cli.commands import keylane
from keylane_local.process.ports import HOST, Ports
from keylane_local.tools import find_redis
from keylane_spark.config.config_file import load


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
    # Fifty records need not be spread evenly.
    assert (found.stripes, document["stripes"]) == (1, None)


def test_stripes_are_proposed_for_a_topic_that_is_large(new, kafka, tmp_path, monkeypatch):
    topic = a_topic()
    create_topic(kafka, topic, 3)
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, key=b"k", value=b"1")
    assert producer.flush(60) == 0
    monkeypatch.setattr(new_project, "WORTH_BYTES", 100)
    [document] = json.loads(new(topic).stdout)["topics"]
    # The cluster has three shards in ranges, as redis-cli divides slots.
    proposed = propose_stripes(3, divide(3)).stripes
    assert load(tmp_path / "keylane.toml").topics[topic].stripes == document["stripes"] == proposed > 1


def test_a_topic_that_is_missing_is_one_that_the_job_creates_if_it_is_asked_for(new, tmp_path):
    topic = a_topic()
    assert f"Kafka has no topic {topic!r}" in str(new(topic).exception)
    assert list(tmp_path.iterdir()) == []
    assert json.loads(new(topic, "--create-topics").stdout)["topics"][0]["partitions"] == 0
    config = load(tmp_path / "keylane.toml")
    assert config.job.create_topics
    assert config.topics[topic].partitions == 9


def test_a_redis_that_is_no_cluster_is_said_to_be_none(kafka, tmp_path):
    port = Ports().any()
    address = f"{HOST}:{port}"
    options = ["--kafka", kafka, "--redis", address, "--topic", a_topic(), "--stack", "s"]

    def error() -> str:
        return str(CliRunner().invoke(keylane, ["new", str(tmp_path / "own"), *options]).exception)

    with subprocess.Popen(
        [str(find_redis()), "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL
    ) as server:
        try:
            eventually(lambda: "Connection refused" not in error())
            said = error()
        finally:
            server.kill()
    assert f"redis: {address}: This instance has cluster support disabled. Is --redis" in said


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


def test_values_of_a_registry_are_looked_at_and_one_that_is_away_is_said(new, kafka, tmp_path, monkeypatch):
    topic = a_topic()
    create_topic(kafka, topic, 1)
    producer = Producer({"bootstrap.servers": kafka})
    event = b'{"after":"{\\"_id\\": {\\"$oid\\": \\"a\\"}, \\"n\\": 1}","op":"c"}'
    producer.produce(topic, key=b'{"ID":{"scale":0,"value":"Bw=="}}', value=b"\0\0\0\0\7" + event)
    assert producer.flush(60) == 0
    with RegistryDouble() as registry:
        registry.has("/schemas/ids/7", {"schema": "{}", "schemaType": "JSON"})
        monkeypatch.setenv("KEYLANE_SCHEMA_REGISTRY_URL", registry.url)
        result = new(topic)
        assert result.exit_code == 0, result.output
        found = load(tmp_path / "keylane.toml").topics[topic]
        assert (found.value_format, found.envelope) == ("registry", "debezium")
        text = (tmp_path / "keylane.toml").read_text()
        assert "# keys are asked for as they are in Kafka: the field 'ID' is not a string" in text
        command = ["check", "--config", str(tmp_path / "keylane.toml"), "--kafka", kafka]
        assert "warning" not in CliRunner().invoke(keylane, command).output
    printed = CliRunner().invoke(keylane, command).output
    assert (
        f"the values of topic {topic!r} are of a Schema Registry, and were not looked at: the Schema"
        in printed
    )
