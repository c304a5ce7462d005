"""Any timestamp of a record is data, whoever reads it: Spark's source knows microseconds in 64 bits."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.servers.own import create_topic, eventually
from tests.support import jobs
from tests.support.views import Query, eventually_equal

if TYPE_CHECKING:
    from pathlib import Path

GO_ZERO_MS = -6_795_364_578_871_345_152
ANY = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
ANY["retention.ms"] = "-1"
CONFIG = """[job]
reader = "{reader}"
small_batch_records = 3
heartbeat_ms = 100
[topics.odd-{reader}]
[topics.odd-sql-{reader}]
where = "json is not null"
"""


@pytest.mark.parametrize("reader", [pytest.param("spark", marks=pytest.mark.long), "direct"])
def test_records_with_any_timestamp_are_stored_in_the_driver_and_in_tasks(
    kafka: str, redis_cluster: str, tmp_path: Path, reader: str
):
    topics = [f"odd-{reader}", f"odd-sql-{reader}"]
    for topic in topics:
        create_topic(kafka, topic, 1, config=ANY)
    with jobs.running(kafka, redis_cluster, tmp_path, CONFIG.format(reader=reader)) as job:
        job.wait_for("keylane: ready")
        producer = Producer({"bootstrap.servers": kafka, "linger.ms": 200})
        wanted: dict[bytes, bytes | None] = {}
        for count in (1, 20):  # the driver writes the one, tasks the others
            for number in range(count):
                key = b"%d-%d" % (count, number)
                wanted[key] = b'{"n":%d}' % number
                for topic in topics:
                    at = GO_ZERO_MS if number == 0 else 2**63 - 1 if number == 7 else 1_700_000_000_000
                    producer.produce(topic, wanted[key], key, timestamp=at)
            assert producer.flush(60) == 0
            for topic in topics:
                with contextlib.closing(jobs.State(redis_cluster, topic)) as state:
                    eventually(lambda state=state: state.holds(wanted))
        assert not [line for line in job.lines if "restarts in" in line]


ODD_COUNT, PLAIN_COUNT = 5_000, 200
VIEWS = """[job]
reader = "{reader}"
heartbeat_ms = 100
[topics.many-{reader}]
[topics.rows-{reader}]
envelope = "debezium"
[views.by-field-{reader}]
topic = "many-{reader}"
key = "k"
time = "at"
window = "1d"
lateness = "36500d"
[views.by-field-{reader}.columns]
n = "count()"
[views.by-record-{reader}]
topic = "many-{reader}"
key = "k"
window = "1d"
lateness = "36500d"
[views.by-record-{reader}.columns]
n = "count()"
[views.of-rows-{reader}]
topic = "rows-{reader}"
key = "k"
[views.of-rows-{reader}.columns]
n = "count()"
"""


@pytest.mark.parametrize("reader", ["spark", pytest.param("direct", marks=pytest.mark.long)])
def test_thousands_of_odd_timestamps_stop_no_view(
    kafka: str, redis_cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
):
    for topic in (f"many-{reader}", f"rows-{reader}"):
        create_topic(kafka, topic, 1, config=ANY)
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 50})
    for number in range(ODD_COUNT + PLAIN_COUNT):
        at = 1_700_000_000_000 if number % 26 == 0 else GO_ZERO_MS + number
        row = b'{"k":"a","at":"2026-11-01"}'
        key = b"%d" % number
        producer.produce(f"many-{reader}", row, key, timestamp=at)
        producer.produce(f"rows-{reader}", b'{"before":null,"after":%s,"op":"c"}' % row, key, timestamp=at)
        producer.poll(0)
    assert producer.flush(60) == 0
    with jobs.running(kafka, redis_cluster, tmp_path, VIEWS.format(reader=reader)) as job:
        query = Query(redis_cluster, monkeypatch)

        def seen(view: str) -> tuple[int, int, int]:
            """How many records are in windows, invalid and failed."""
            _, state = query.ask(f"/views/{view}-{reader}")
            if query.ask(f"/views/{view}-{reader}/keys")[0] != 200:
                return 0, 0, 0
            windows = query.windows(f"{view}-{reader}").values()
            return sum(int(row["n"]) for row in windows), state["invalid"], state["failed"]

        eventually_equal(lambda: seen("by-field"), (ODD_COUNT + PLAIN_COUNT, 0, 0))
        eventually_equal(lambda: seen("by-record"), (PLAIN_COUNT, ODD_COUNT, 0))
        eventually_equal(lambda: seen("of-rows"), (ODD_COUNT + PLAIN_COUNT, 0, 0))
        # A batch and nothing that is divided: 5,000 odd records are as quick as one.
        assert not [line for line in job.lines if "FAILED" in line or "restarts in" in line]
