"""Long texts: Java recurses for each character of some; others, short in Kafka, would take its memory."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.servers.own import create_topic, eventually
from tests.support import jobs
from tests.support.views import Query, eventually_equal

from keylane_spark.rows.json_values import LARGEST_VALUE

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """[job]
reader = "{reader}"
small_batch_records = {small}
heartbeat_ms = 100
[topics.{topic}]
where = "{where}"
on_error = "skip"
[topics.{beside}]
[views.of-{topic}]
topic = "{topic}"
key = "k"
where = "{where}"
[views.of-{topic}.columns]
n = "count()"
"""
PLAIN, LONG = b'{"k":"x"}', json.dumps({"k": "x", "text": "a" * 100_000}).encode()


def counted(query: Query, path: str) -> tuple[int, int]:
    """How many records are in windows, and how many failed."""
    status, page = query.ask(f"{path}/keys")
    rows = page["windows"] if status == 200 else []
    return sum(row["values"]["n"] for row in rows), query.ask(path)[1].get("failed", 0)


@pytest.mark.parametrize(
    ("reader", "small"),
    [
        ("direct", 20_000),
        ("direct", 3),
        pytest.param("spark", 20_000, marks=pytest.mark.long),
        pytest.param("spark", 3, marks=pytest.mark.long),
    ],
)
def test_a_text_that_is_too_long_for_a_regular_expression_fails_alone(
    kafka: str, redis_cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, small: int
):
    name = f"{reader}-{small}"
    topics = [f"long-{name}", f"beside-{name}"]
    for topic in topics:
        create_topic(kafka, topic, 1)
    where = "regexp_replace(value, '(a|b)*', '') is not null"
    config = CONFIG.format(reader=reader, small=small, topic=topics[0], beside=topics[1], where=where)
    with jobs.running(kafka, redis_cluster, tmp_path, config) as job:
        job.wait_for("keylane: ready")
        producer = Producer({"bootstrap.servers": kafka, "linger.ms": 200})
        for number in range(20):
            for topic in topics:
                producer.produce(topic, LONG if number in (7, 8) else PLAIN, b"%d" % number)
        assert producer.flush(60) == 0
        for topic in topics:
            skipped = {7, 8} if topic == topics[0] else set()
            wanted = {
                b"%d" % number: None if number in skipped else LONG if number in (7, 8) else PLAIN
                for number in range(20)
            }
            with contextlib.closing(jobs.State(redis_cluster, topic)) as state:
                eventually(lambda state=state, wanted=wanted: state.holds(wanted))
        job.wait_for(f"topic {topics[0]!r}")
        query = Query(redis_cluster, monkeypatch)
        path = f"/views/of-{topics[0]}"

        eventually_equal(lambda: counted(query, path), (18, 2))
        assert not [line for line in job.lines if "restarts in" in line]


@pytest.mark.parametrize("small", [20_000, 0])
def test_a_value_that_is_short_in_kafka_and_too_large_for_spark_fails_alone(
    kafka: str, redis_cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
):
    topic, beside = f"large-{small}", f"beside-large-{small}"
    for each in (topic, beside):
        create_topic(kafka, each, 2)
    where = "json:k is not null"
    config = CONFIG.format(reader="direct", small=small, topic=topic, beside=beside, where=where)
    large = json.dumps({"k": "x", "text": "a" * LARGEST_VALUE}).encode()
    with jobs.running(kafka, redis_cluster, tmp_path, config) as job:
        job.wait_for("keylane: ready")
        producer = Producer(
            {
                "bootstrap.servers": kafka,
                "compression.type": "gzip",
                "message.max.bytes": 2 * LARGEST_VALUE,
                "linger.ms": 200,
            }
        )
        for number in range(6):
            producer.produce(topic, large if number == 2 else PLAIN, b"%d" % number)
        assert producer.flush(60) == 0
        wanted = {b"%d" % number: None if number == 2 else PLAIN for number in range(6)}
        with contextlib.closing(jobs.State(redis_cluster, topic)) as state:
            eventually(lambda: state.holds(wanted))
        job.wait_for(f"topic {topic!r}: its transform fails on")
        query = Query(redis_cluster, monkeypatch)
        eventually_equal(lambda: counted(query, f"/views/of-{topic}"), (5, 1))
        assert not [line for line in job.lines if "restarts in" in line]
