"""Views whose lanes or topics lose records: final windows stay as they were, missing records are reported."""

from __future__ import annotations

import itertools
import signal
import time

import pytest
from tests.servers.own import create_topic
from tests.support import jobs
from tests.support import lanes as t
from tests.support.compaction import compact
from tests.support.views import Event, Query, StoredLane, eventually_equal, produce

from keylane import routing

NUMBERS = itertools.count()
MINUTE_MS = 60_000
BEGIN_MS = int(time.time()) // 3600 * 3_600_000 - 3_600_000
PARTITIONS = 3
TABLE = "topic = '{topic}'\nkey = 'user'\ntime = 'at'\nlateness = '10s'\n"
TABLES = (
    f"[job]\nheartbeat_ms = 100\n[topics.{{topic}}]\n"
    f"[views.{{view}}]\n{TABLE}window = '1m'\n[views.{{view}}.columns]\nn = 'count()'\n"
    f"[views.{{view}}-visits]\n{TABLE}session = '20s'\n[views.{{view}}-visits.columns]\nn = 'count()'\n"
)
ANN = next(
    name
    for name in (f"ann-{number}" for number in itertools.count())
    if routing.partition_for(name.encode(), PARTITIONS) == 0
)
"""A key of lane 0."""


@pytest.fixture
def names(kafka):
    """A topic, and a view's name that no other test has."""
    number = next(NUMBERS)
    create_topic(kafka, f"repaired-{number}", PARTITIONS)
    return {"topic": f"repaired-{number}", "view": f"repaired-view-{number}"}


@pytest.fixture
def job(kafka, redis_cluster, tmp_path, names):
    running = jobs.start(kafka, redis_cluster, tmp_path, TABLES.format(**names))
    yield running
    running.end()


@pytest.fixture
def query(redis_cluster, monkeypatch):
    return Query(redis_cluster, monkeypatch)


def of_one(user: str, at_ms: int, partition: int = 0) -> Event:
    return Event(user, at_ms, 100, "s", 1, partition)


def windows_of(query: Query, view: str, key: str):
    """Start, finality and count of the key's windows; or the status."""
    status, document = query.ask(f"/views/{view}/keys/{key}")
    if status != 200:
        return status
    return [(row["start"], row["final"], row["values"]["n"]) for row in document["windows"]]


def lanes_hold(query: Query, view: str, records: int, late: int) -> bool:
    """Whether each lane has counted so many records, and the view so many as late."""
    status, document = query.ask(f"/views/{view}")
    return (
        status == 200
        and document["late"] == late
        and all(sum(lane["offsets"]) == records for lane in document["lanes"])
    )


def test_a_final_window_stays_as_it_was_though_a_failover_takes_back_the_commits_that_closed_it(
    kafka, redis_cluster, names, job, query
):
    view, visits = names["view"], f"{names['view']}-visits"
    both = (view, visits)
    produce(kafka, names["topic"], [of_one(ANN, BEGIN_MS + 1_000)])
    eventually_equal(lambda: windows_of(query, view, ANN), [(BEGIN_MS, False, 1)])
    eventually_equal(lambda: windows_of(query, visits, ANN), [(BEGIN_MS + 1_000, False, 1)])
    with t.client(redis_cluster) as client:
        before = [StoredLane(client, name) for name in both]
        # The event time passes both windows; then a record of theirs arrives, which is late.
        produce(kafka, names["topic"], [of_one("bob", BEGIN_MS + MINUTE_MS + 10_000, 1)])
        eventually_equal(lambda: windows_of(query, view, ANN), [(BEGIN_MS, True, 1)])
        eventually_equal(lambda: windows_of(query, visits, ANN), [(BEGIN_MS + 1_000, True, 1)])
        produce(kafka, names["topic"], [of_one(ANN, BEGIN_MS + 2_000)])
        for name in both:
            eventually_equal(lambda name=name: lanes_hold(query, name, 3, late=1), True)
        job.signal(signal.SIGSTOP)
        for lane in before:
            lane.restore()
        assert windows_of(query, view, ANN) == [(BEGIN_MS, False, 1)]
        job.signal(signal.SIGCONT)
    for name in both:
        job.wait_for(f"view {name!r}: 1 of the lanes are behind the others: they catch up first")
    for name in both:
        eventually_equal(lambda name=name: lanes_hold(query, name, 3, late=1), True)
    eventually_equal(lambda: windows_of(query, view, ANN), [(BEGIN_MS, True, 1)])
    eventually_equal(lambda: windows_of(query, visits, ANN), [(BEGIN_MS + 1_000, True, 1)])
    assert not query.ask(f"/views/{view}")[1]["incomplete"]


def test_a_view_over_a_compacted_topic_is_incomplete_once_records_are_missing(
    kafka, redis_cluster, tmp_path, query
):
    names = {"topic": "compacted", "view": "compacted-view"}
    create_topic(kafka, names["topic"], 1)
    produce(kafka, names["topic"], [of_one(ANN, BEGIN_MS + 1_000 + number) for number in range(5)])
    compact(kafka, names["topic"], 1)
    running = jobs.start(kafka, redis_cluster, tmp_path, TABLES.format(**names))
    try:
        eventually_equal(lambda: windows_of(query, names["view"], ANN), [(BEGIN_MS, False, 1)])
        line = running.wait_for(f"view {names['view']!r}: INCOMPLETE: partition 0: ")
        assert "the topic is compacted" in line
        _, document = query.ask(f"/views/{names['view']}/keys/{ANN}")
        assert document["incomplete"] is True
    finally:
        running.end()
