"""`keylane new` and `keylane up` for a Kafka and a Redis Cluster that the stack did not start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.servers.own import create_topic, eventually, messages_of, own_cluster, own_kafka

from keylane_local.process.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from keylane_local.servers.kafka import Kafka

TOPICS = {"orders.eu": 3, "Mixed_Case-2": 2}
KEYS = [
    b"plain",
    b"a/b",
    b"100%",
    b"\xc3\xa9t\xc3\xa9",
    b"with space",
    b"?q=1&r",
    b"#",
    b"..",
    b"+",
    b"\xf0\x9f\x9a\x80",
]


def describe(kafka: Kafka) -> tuple[dict[str, int], list[str], dict[str, int]]:
    """What Kafka has: topics with partition counts, consumer groups, and records by topic."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    # Kafka creates __consumer_offsets for the first consumer that asks for a coordinator: the tests' own.
    found = admin.list_topics(timeout=20).topics
    topics = {name: len(each.partitions) for name, each in found.items() if not name.startswith("__")}
    groups = [each.group_id for each in admin.list_consumer_groups().result(20).valid]
    records = {
        name: sum(len(messages_of(kafka.bootstrap, name, number)) for number in range(count))
        for name, count in topics.items()
    }
    return topics, groups, records


@pytest.fixture(scope="module")
def kafka_with_topics(tmp_path_factory) -> Iterator[Kafka]:
    with own_kafka(tmp_path_factory.mktemp("theirs")) as kafka:
        for topic, partitions in TOPICS.items():
            create_topic(kafka.bootstrap, topic, partitions)
            # crc32: not the partitioner that a topic has by default.
            producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "consistent"})
            for key in KEYS:
                producer.produce(topic, key=key, value=json.dumps({"of": key.decode()}).encode())
            for number in range(40):
                producer.produce(topic, key=b"k-%d" % number, value=b"%d" % number)
            assert producer.flush(30) == 0
        create_topic(kafka.bootstrap, "lines", 1)
        producer.produce("lines", value=b"a line")
        assert producer.flush(30) == 0
        yield kafka


def run(folder: Path, *arguments: str, exit_code: int = 0) -> str:
    """Run the program in a folder, and return what it prints."""
    command = [sys.executable, "-m", "keylane_client.cli", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KEYLANE_")}
    environment["COLUMNS"] = "250"
    if tools := os.environ.get("KEYLANE_TOOLS"):
        environment["KEYLANE_TOOLS"] = tools
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stdout + done.stderr


def lag(url: str, topic: str) -> int | None:
    """The topic's lag; None while it has no layout, or a lane is being built."""
    try:
        with urllib.request.urlopen(f"{url}/topics/{topic}", timeout=30) as got:  # noqa: S310
            document = json.loads(got.read())
    except urllib.error.HTTPError:
        return None
    return None if document["building"] or "next" in document else int(document["lag"])


def read(url: str, topic: str, key: bytes) -> bytes:
    # Whoever resolves dots in a path would take a key of dots away: in base64 it arrives.
    path = "Li4=?key_format=base64" if key == b".." else urllib.parse.quote(key, safe="")
    address = f"{url}/topics/{topic}/keys/{path}"
    with urllib.request.urlopen(address, timeout=30) as got:  # noqa: S310
        return bytes(got.read())


def allow_writes(project: Path) -> None:
    """Take the other of the two lines that `keylane new` has written, as its comment says."""
    file = project / "keylane.env"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("KEYLANE_TOPICS=")]
    text = "\n".join(line.removeprefix("# ") if "# KEYLANE_TOPICS=" in line else line for line in lines)
    file.write_text(f"{text}\n")


def assert_that_an_edit_is_applied(project: Path, url: str) -> None:
    config = project / "keylane.toml"
    assert "starts again" not in run(project, "up")
    assert "no-index" in run(project, "scan", "orders.eu", exit_code=1)
    job = (project / ".keylane" / "run" / "job.json").read_text
    began = json.loads(job())["pid"]
    config.write_text(
        config.read_text().replace('[topics."orders.eu"]', '[topics."orders.eu"]\nindex = true')
    )
    printed = run(project, "up")
    assert "goes on: keylane.toml changed" in printed
    assert "topic 'orders.eu' is built again beside its present state" in printed
    assert json.loads(job())["pid"] == began
    broken = "[views.none]\ntopic = 'nowhere'\ncolumns = {n = 'count()'}\n"
    config.write_text(config.read_text() + broken)
    assert "Kafka has no topic 'nowhere'" in run(project, "check", exit_code=1)
    printed = run(project, "up")
    assert "starts again: keylane.toml changed" in printed
    assert "view 'none' is new: it is built" in printed

    def is_shown() -> bool:
        shown = run(project, "status")
        return "view none" in shown and "was never opened: topic 'nowhere' is unknown" in shown

    eventually(is_shown, 60)

    eventually(lambda: lag(url, "orders.eu") == 0, 60)
    assert len(run(project, "scan", "orders.eu", "--keys-only").splitlines()) == len(KEYS) + 40


def test_new_and_up_serve_the_topics_of_a_kafka_and_nothing_in_it_changes(tmp_path, kafka_with_topics):
    project = tmp_path / "project"
    with own_cluster(tmp_path / "redis") as cluster, guarded(project / ".keylane"):
        before = describe(kafka_with_topics)
        printed = run(
            tmp_path, "new", "project", "--kafka", kafka_with_topics.bootstrap, "--redis", cluster.addresses
        )
        assert printed.count("partitioner crc32: all 50 keys are where it puts them") == len(TOPICS)
        assert "lines: left out, because its first records have no keys" in printed
        assert (project / "keylane.env").stat().st_mode & 0o077 == 0
        assert run(project, "check").count("at most 50 keys of ") == len(TOPICS)
        run(project, "up")
        try:
            port = json.loads((project / ".keylane" / "stack.json").read_text())["http_port"]
            url = f"http://127.0.0.1:{port}"
            assert describe(kafka_with_topics) == before

            for topic in TOPICS:
                eventually(lambda topic=topic: lag(url, topic) == 0, 90)
            for topic in TOPICS:
                for key in KEYS:
                    assert json.loads(read(url, topic, key)) == {"of": key.decode()}
            shown = run(project, "status")
            assert re.search(rf"^kafka +outside +{kafka_with_topics.bootstrap}", shown, re.MULTILINE)
            assert not (project / ".keylane" / "kafka").exists()
            assert not (project / ".keylane" / "redis").exists()
            refused = run(project, "put", "orders.eu", "100%", "new", exit_code=4)
            assert "403 topic-not-served" in refused
            assert "KEYLANE_TOPICS" in refused
            assert describe(kafka_with_topics) == before
            allow_writes(project)
            assert "starts again: KEYLANE_TOPICS changed" in run(project, "up")
            # A write lies where the topic's own producers would have put it, so nothing becomes a stray.
            written = run(project, "put", "orders.eu", "100%", "new").strip()
            [of_key] = {
                partition
                for partition in range(TOPICS["orders.eu"])
                for message in messages_of(kafka_with_topics.bootstrap, "orders.eu", partition)
                if message.key() == b"100%"
            }
            assert written.startswith(f"{of_key}:")
            assert "the demo writes" in run(project, "demo", exit_code=2)
            assert (
                run(project, "get", "orders.eu", "100%", "--min-position", written, "--wait", "20") == "new\n"
            )
            assert_that_an_edit_is_applied(project, url)
        finally:
            run(project, "down")
        assert describe(kafka_with_topics)[:2] == before[:2]
        assert all(node.running for node in cluster.nodes)
        assert kafka_with_topics.running


def test_a_topic_that_kafka_does_not_have_is_said_before_anything_starts(tmp_path, kafka_with_topics):
    run(tmp_path, "new", "project", "--kafka", kafka_with_topics.bootstrap, "--topic", "orders.eu")
    config = tmp_path / "project" / "keylane.toml"
    config.write_text(config.read_text().replace("orders.eu", "order.eu"))
    said = run(tmp_path / "project", "up", exit_code=2)
    assert "Kafka has no topic 'order.eu': did you mean 'orders.eu'?" in said
    assert not (tmp_path / "project" / ".keylane").exists()
    assert "did you mean 'orders.eu'" in run(
        tmp_path, "new", "other", "--kafka", kafka_with_topics.bootstrap, "--topic", "orders.eu2", exit_code=2
    )
