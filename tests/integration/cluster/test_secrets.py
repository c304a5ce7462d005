"""Passwords of Redis, Kafka and Spark where others may look: logs, processes, event logs, pages of Spark."""

from __future__ import annotations

import contextlib
import json
import secrets
import urllib.request
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Producer
from redis import Redis
from tests.servers.own import create_topic, eventually
from tests.servers.secure_kafka import secure_kafka
from tests.servers.spark_cluster import own_spark_cluster
from tests.support.jobs import State
from tests.support.spark_jobs import SubmittedJob, complete_package

from keylane_local.process.ports import HOST, Ports
from keylane_spark.engine.session import WORKER_DAEMON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

COUNT = 20_000
REDIS, KAFKA, SPARK = (f"{name}-{secrets.token_hex(8)}" for name in ("of-redis", "of-kafka", "of-spark"))
SECRETS = REDIS, KAFKA, SPARK
CONFIG = """\
[job]
small_batch_records = 0
reader = "{reader}"
[topics."{topic}"]
[views."{topic}-view"]
topic = "{topic}"
[views."{topic}-view".columns]
n = "count()"
[spark]
"spark.ui.enabled" = true
"spark.ui.port" = {port}
"spark.eventLog.enabled" = true
"spark.eventLog.dir" = "file://{events}"
"spark.eventLog.compress" = false
"spark.eventLog.rolling.enabled" = false
"""
PAGES = "jobs", "stages", "storage", "environment", "executors", "SQL", "StreamingQuery"
DOCUMENTS = "environment", "sql?details=true", "jobs", "allexecutors"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with secure_kafka(tmp_path_factory.mktemp("kafka")) as running:
        running.set_password("carol", "SCRAM-SHA-512", KAFKA)
        yield running


@pytest.fixture(scope="module")
def user(cluster):
    """A user of Redis with a password."""
    for node in cluster.nodes:
        with Redis(port=node.port) as client:
            client.execute_command("ACL", "SETUSER", "writer", "on", f">{REDIS}", "~*", "&*", "+@all")
    yield "writer"
    for node in cluster.nodes:
        with Redis(port=node.port) as client:
            client.execute_command("ACL", "DELUSER", "writer")


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """A cluster with everything that encrypts what Spark sends and stores."""
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": SPARK,
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    }
    with own_spark_cluster(tmp_path_factory.mktemp("spark"), settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return complete_package(tmp_path_factory.mktemp("job") / "job")


def text_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    """What processes have written there: neither the archives, nor what the test has."""
    for path in folder.rglob("*"):
        parts = {*path.relative_to(folder).parts}
        if path.is_file() and not {"python", "conf"} & parts and path.suffix != ".jar":
            with contextlib.suppress(OSError):
                yield str(path), path.read_bytes()


def shown_at(port: int) -> Iterator[tuple[str, bytes]]:
    """Spark's pages, and the documents that they are made of."""

    def get(path: str) -> bytes:
        with urllib.request.urlopen(f"http://{HOST}:{port}/{path}", timeout=30) as answer:
            return answer.read()

    [application] = json.loads(get("api/v1/applications"))
    documents = (f"api/v1/applications/{application['id']}/{name}" for name in DOCUMENTS)
    for path in (*PAGES, *documents):
        yield path, get(path)


def commands() -> Iterator[tuple[str, bytes]]:
    """What each process of this machine was started with."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            yield f"command of {process.pid}", " ".join(process.cmdline()).encode()


def found_in(places: Iterator[tuple[str, bytes]], known: str) -> list[str]:
    """Where secrets are; `known` is in one of the places, or the search looks at the wrong ones."""
    texts = dict(places)
    assert any(known.encode() in text for text in texts.values())
    return [name for name, text in texts.items() if any(secret.encode() in text for secret in SECRETS)]


@pytest.mark.parametrize("reader", ["direct", "spark"])
def test_no_password_is_in_a_log_a_process_list_or_on_a_page_of_spark(
    broker, redis_cluster, user, spark, package, tmp_path, reader
):
    topic, port, events = f"secrets-{reader}", Ports().any(), tmp_path / "events"
    events.mkdir()
    create_topic(broker.bootstrap, topic, 3)
    environment = {
        "KEYLANE_KAFKA_BOOTSTRAP": broker.at("UNENCRYPTED"),
        "KEYLANE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KEYLANE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KEYLANE_KAFKA_SASL_USERNAME": "carol",
        "KEYLANE_KAFKA_SASL_PASSWORD": KAFKA,
        "KEYLANE_REDIS_NODES": redis_cluster,
        "KEYLANE_REDIS_USERNAME": user,
        "KEYLANE_REDIS_PASSWORD": REDIS,
    }
    config = CONFIG.format(reader=reader, topic=topic, port=port, events=events)
    job = SubmittedJob(package, spark, config, environment)
    try:
        job.wait_for("keylane: ready")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
        for number in range(COUNT):
            producer.produce(topic, b"%d" % number, b"key-%d" % number)
            producer.poll(0)
        assert producer.flush(60) == 0
        state = State(redis_cluster, topic)
        read = lambda: sum(mark.next_offset for mark in state.watermarks().values() if mark)  # noqa: E731
        eventually(lambda: state.layout is not None and read() == COUNT)
        state.close()
        executors = [each for worker in spark.workers for each in (*worker.executors, *worker.python_daemons)]
        assert len(executors) == 4
        for process in executors:
            assert not {REDIS, KAFKA} & {*process.environ().values()}
        assert found_in(shown_at(port), "spark.eventLog.dir") == []
        assert found_in(commands(), spark.master) == []
    finally:
        job.end()
    assert found_in(text_of(events), "SparkListenerSQLExecutionStart") == []
    assert found_in(text_of(job.log.parent), "keylane: ready") == []
    assert found_in(text_of(spark.data), WORKER_DAEMON) == []
    assert not any("without encryption" in line for line in job.lines)
