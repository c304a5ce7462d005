"""Views: a real job over real topics, its windows against the plainest fold, read through the function."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from tests import jobs, views
from tests.servers import create_topic
from tests.views import COLUMNS, Event, Query, eventually_equal, produce

NUMBERS = itertools.count()
MINUTE_MS = 60_000
# Not long ago: Kafka's retention goes by these.
BEGIN_MS = int(time.time()) // 3600 * 3_600_000 - 3_600_000
JOB = "[job]\nheartbeat_ms = 100\n[topics.{topic}]\n"
BY_USER = 'topic = "{topic}"\nkey = "user"\ntime = "at"\nlateness = "1d"\n'


def some_events(count: int, seed: int, users: int = 12, first_ms: int = BEGIN_MS) -> list[Event]:
    """Of a few minutes, out of order, in partitions that have nothing to do with their users."""
    chance = random.Random(seed)
    return [
        Event(
            f"user-{chance.randrange(users)}",
            first_ms + chance.randrange(10 * MINUTE_MS),
            None if chance.random() < 0.1 else chance.randrange(-50_000, 50_000),
            f"s{number}",
            chance.randrange(1000),
            chance.randrange(3),
        )
        for number in range(count)
    ]


@pytest.fixture
def query(redis_cluster, monkeypatch):
    return Query(redis_cluster, monkeypatch)


@pytest.fixture
def job(kafka, redis_cluster, tmp_path):
    """Start a job: `job(topic, tables)`; `{topic}` in the tables is the topic."""
    started = []

    def start(topic: str, tables: str) -> jobs.RunningJob:
        config = (JOB + tables).replace("{topic}", topic)
        started.append(jobs.start(kafka, redis_cluster, tmp_path, config))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def topic(kafka):
    name = f"events-{next(NUMBERS)}"
    create_topic(kafka, name, 3)
    return name


def test_windows_of_every_kind_are_the_fold_of_the_events(kafka, topic, job, query):
    bad = [
        (b"k", b"no json"),
        (b"k", b'{"user": "no-time"}'),
        (b"k", b'{"at": 1760000000000}'),
        (b"k", None),
        (b"k", b'{"user": "", "at": 1760000000000}'),
        (b"k", b'{"user": "u", "at": "some day"}'),
    ]
    written = produce(kafka, topic, [*some_events(500, 1), *bad])
    where = "where = \"try_variant_get(json, '$.user', 'string') like 'user-%'\"\n"
    job(
        topic,
        f"[views.tumbling]\n{BY_USER}window = '1m'\n[views.tumbling.columns]{COLUMNS}"
        f"[views.hopping]\n{BY_USER}window = '1m'\nevery = '20s'\n[views.hopping.columns]{COLUMNS}"
        f"[views.sessions]\n{BY_USER}session = '15s'\n[views.sessions.columns]{COLUMNS}"
        f"[views.totals]\ntopic = '{{topic}}'\n{where}[views.totals.columns]{COLUMNS}",
    )
    eventually_equal(lambda: whole(query, "tumbling"), views.fixed(written, MINUTE_MS, MINUTE_MS))
    written += produce(kafka, topic, some_events(500, 2))
    eventually_equal(lambda: whole(query, "tumbling"), views.fixed(written, MINUTE_MS, MINUTE_MS))
    eventually_equal(lambda: whole(query, "hopping"), views.fixed(written, MINUTE_MS, 20_000))
    eventually_equal(lambda: whole(query, "sessions"), views.sessions(written, 15_000))
    of_all_time = {
        (user, None, None): views.columns_of([event for event in written if event.user == user])
        for user in {event.user for event in written}
    }
    eventually_equal(lambda: whole(query, "totals"), of_all_time)
    status, told = query.ask("/views/tumbling")
    assert status == 200
    assert told["invalid"] == 5
    assert told["late"] == 0
    assert told["window"] == {"kind": "tumbling", "size_ms": MINUTE_MS, "every_ms": None}
    assert not told["building"]
    assert told["age_ms"] < 60_000


def whole(query: Query, view: str):
    """All windows, once the view is there and whole."""
    status, document = query.ask(f"/views/{view}/keys")
    if status != 200:
        assert document["type"].rsplit(":", 1)[1] in {"unknown-view", "lane-building"}, document
        return None
    return query.windows(view)
