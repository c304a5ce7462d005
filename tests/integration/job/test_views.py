"""Views: a real job over real topics, its windows against the plainest fold, read through the function.

One job serves all tests but long ones, each by a topic and views of its own: see VIEWS. Those that have
theirs come first: the shared one, with its queries, would take half of a core from them.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from dataclasses import dataclass, replace

import pytest
from tests.servers import own
from tests.servers.own import create_topic, eventually, grow_topic
from tests.support import jobs, views
from tests.support import lanes as t
from tests.support.compaction import compact
from tests.support.jobs import scrape
from tests.support.views import COLUMNS, Event, Query, StoredLane, eventually_equal, produce

from keylane import __version__, routing
from keylane_local.process.ports import Ports

NUMBERS = itertools.count()
MINUTE_MS = 60_000
# Not long ago: Kafka's retention goes by these.
BEGIN_MS = int(time.time()) // 3600 * 3_600_000 - 3_600_000
PARTITIONS = 3
JOB = "[job]\nheartbeat_ms = 100\n"
METRICS = "metrics = 'openmetrics'\nmetrics_port = {port}\n"
BY_USER = 'topic = "{topic}"\nkey = "user"\ntime = "at"\nlateness = "1d"\n'
SOON_FINAL = "topic = '{topic}'\nkey = 'user'\ntime = 'at'\nlateness = '10s'\n"
COMPRESSED = "compression = 'zstd'\n"
COUNT = "columns]\nn = 'count()'\n"
OF_USERS = "where = \"try_variant_get(json, '$.user', 'string') like 'user-%'\"\n"
OF_NUMBERS = "where = \"cast(variant_get(json, '$.user', 'string') as int) > 0\"\n"
MINUTES = f"[views.{{view}}]\n{BY_USER}window = '1m'\n[views.{{view}}.columns]{COLUMNS}"
MINUTES_AND_VISITS = (
    f"{MINUTES}[views.{{view}}-visits]\n{BY_USER}session = '15s'\n{COMPRESSED}"
    f"[views.{{view}}-visits.columns]{COLUMNS}"
)
COUNTS_THAT_CLOSE = (
    f"[views.{{view}}]\n{SOON_FINAL}window = '1m'\n[views.{{view}}.{COUNT}"
    f"[views.{{view}}-visits]\n{SOON_FINAL}session = '20s'\n[views.{{view}}-visits.{COUNT}"
)
VIEWS = {
    "every-kind": (
        f"{MINUTES}[views.{{view}}-hopping]\n{BY_USER}window = '1m'\nevery = '20s'\n"
        f"[views.{{view}}-hopping.columns]{COLUMNS}"
        f"[views.{{view}}-sessions]\n{BY_USER}session = '15s'\n[views.{{view}}-sessions.columns]{COLUMNS}"
        f"[views.{{view}}-totals]\ntopic = '{{topic}}'\n{OF_USERS}[views.{{view}}-totals.columns]{COLUMNS}"
    ),
    "closing": COUNTS_THAT_CLOSE,
    "grown": MINUTES,
    "failing": (
        f"[views.{{view}}]\ntopic = '{{topic}}'\nwhere = 'no_such > 1'\n[views.{{view}}.{COUNT}"
        "[views.{view}-many]\ntopic = '{topic}'\nwhere = 'row_number() over (order by offset) = 1'\n"
        f"[views.{{view}}-many.{COUNT}"
        "[views.{view}-path]\ntopic = '{topic}'\nwhere = \"variant_get(json, 'user', 'string') = 'ann'\"\n"
        f"[views.{{view}}-path.{COUNT}"
        f"[views.{{view}}-other]\n{BY_USER}window = '1m'\n[views.{{view}}-other.{COUNT}"
    ),
    "early": f"[views.{{view}}]\ntopic = '{{topic}}-later'\n[views.{{view}}.{COUNT}",
    "odd": (
        f"[views.{{view}}]\n{BY_USER}window = '1m'\n[views.{{view}}.{COUNT}"
        f"[views.{{view}}-picky]\ntopic = '{{topic}}'\n{OF_NUMBERS}[views.{{view}}-picky.{COUNT}"
    ),
    "timestamps": (
        f"where = \"json:user::string = 'ann'\"\non_error = 'skip'\n"
        f"[views.{{view}}]\n{BY_USER}window = '1m'\n[views.{{view}}.{COUNT}"
    ),
    "restored": MINUTES_AND_VISITS,
    "closed": COUNTS_THAT_CLOSE,
    "compacted": f"[views.{{view}}]\n{SOON_FINAL}window = '1m'\n[views.{{view}}.{COUNT}",
}
"""The views of the job that tests share, by what their topic goes through."""
ANN = next(
    name
    for name in (f"ann-{number}" for number in itertools.count())
    if routing.partition_for(name.encode(), PARTITIONS) == 0
)
"""A key of lane 0."""


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


@dataclass(frozen=True, slots=True)
class Shared:
    """The job of VIEWS, where it serves its metrics, and what its topics had when it began."""

    running: jobs.RunningJob
    metrics_port: int
    written: dict[str, list[Event]]


def named(kind: str) -> tuple[str, str]:
    """The topic of one of VIEWS, and its first view."""
    return f"events-{kind}", f"view-{kind}"


def filled(tables: str, topic: str, view: str) -> str:
    return f"[topics.{topic}]\n" + tables.replace("{topic}", topic).replace("{view}", view)


@pytest.fixture(scope="module")
def shared(kafka, redis_cluster, tmp_path_factory):
    for kind in VIEWS:
        create_topic(kafka, named(kind)[0], 1 if kind == "compacted" else PARTITIONS)
    at_first = {
        "every-kind": [*some_events(500, 1), *INVALID],
        "compacted": [of_one(ANN, BEGIN_MS + 1_000 + number) for number in range(5)],
    }
    written = {kind: produce(kafka, named(kind)[0], events) for kind, events in at_first.items()}
    compact(kafka, named("compacted")[0], 1)
    port = Ports().any()
    tables = "".join(filled(tables, *named(kind)) for kind, tables in VIEWS.items())
    config = JOB + METRICS.format(port=port) + tables
    with jobs.running(kafka, redis_cluster, tmp_path_factory.mktemp("views"), config) as running:
        for kind in VIEWS.keys() - {"failing", "early"}:
            running.wait_for(f"view {named(kind)[1]!r} is ready")
        yield Shared(running, port, written)


@pytest.fixture
def job(start, view):
    """Start a job of the test's own: `job(topic, tables)`, whose tables have `{topic}` and `{view}`."""
    return lambda topic, tables: start(JOB + filled(tables, topic, view))


@pytest.fixture
def view():
    """A view's name that no other test has."""
    return f"view-{next(NUMBERS)}"


INVALID = [
    (b"k", b"no json"),
    (b"k", b'{"user": "no-time"}'),
    (b"k", b'{"at": 1760000000000}'),
    (b"k", None),
    (b"k", b'{"user": "", "at": 1760000000000}'),
    (b"k", b'{"user": "u", "at": "some day"}'),
]
"""To views by user and time. A tombstone is not counted as invalid."""


@pytest.mark.long
def test_a_changed_view_is_built_beside_the_old_one_which_is_read_meanwhile(kafka, topic, job, query, view):
    written = produce(kafka, topic, some_events(300, 20))
    first = job(topic, MINUTES)
    wanted = views.fixed(written, MINUTE_MS, MINUTE_MS)
    eventually_equal(lambda: query.whole(view), wanted)
    first.end()
    second = job(topic, MINUTES.replace("'1m'", "'2m'"))
    wider = views.fixed(written, 2 * MINUTE_MS, 2 * MINUTE_MS)
    while (found := query.windows(view)) != wider:
        assert found == wanted
        assert second.process.poll() is None
        time.sleep(0.1)
    second.wait_for("generation 1 is removed")
    assert query.windows(view) == wider
    assert query.ask(f"/views/{view}")[1]["generation"] == 2


def test_windows_of_every_kind_are_the_fold_of_the_events(kafka, shared, query):
    topic, view = named("every-kind")
    written = shared.written["every-kind"]
    eventually_equal(lambda: query.whole(view), views.fixed(written, MINUTE_MS, MINUTE_MS))
    written = written + produce(kafka, topic, some_events(500, 2))
    eventually_equal(lambda: query.whole(view), views.fixed(written, MINUTE_MS, MINUTE_MS))
    eventually_equal(lambda: query.whole(f"{view}-hopping"), views.fixed(written, MINUTE_MS, 20_000))
    eventually_equal(lambda: query.whole(f"{view}-sessions"), views.sessions(written, 15_000))
    of_all_time = {
        (user, None, None): views.columns_of([event for event in written if event.user == user])
        for user in {event.user for event in written}
    }
    eventually_equal(lambda: query.whole(f"{view}-totals"), of_all_time)
    status, told = query.ask(f"/views/{view}")
    assert status == 200
    assert told["invalid"] == 5
    assert told["late"] == 0
    assert told["window"] == {"kind": "tumbling", "size_ms": MINUTE_MS, "every_ms": None}
    assert not told["building"]
    assert told["age_ms"] < 60_000
    lags = ("keylane_topic_lag", topic), ("keylane_view_lag", view)
    # Measured once a second.
    eventually(lambda: [scrape(shared.metrics_port).get(lag) for lag in lags] == [0, 0])
    found = scrape(shared.metrics_port)
    assert found["keylane_job_metadata", __version__] == 1
    assert found["keylane_topic_records_total", topic] == found["keylane_view_records_total", view] == 1006
    assert 0 <= found["keylane_topic_age_ms", topic] < 60_000
    assert found["keylane_view_windows_total", view] >= len(views.fixed(written, MINUTE_MS, MINUTE_MS))
    assert found["keylane_view_invalid_total", view] == 5


def of_one(user: str, at_ms: int, partition: int = 0, cents: int = 100) -> Event:
    return Event(user, at_ms, cents, "s", 1, partition)


def test_a_window_is_final_once_the_event_time_is_past_it_and_what_comes_later_is_counted_late(
    kafka, shared, query
):
    topic, view = named("closing")
    first = [of_one("ann", BEGIN_MS + 1_000), of_one("ann", BEGIN_MS + 15_000, 1)]
    produce(kafka, topic, first)
    final = {"final": True, "values": {"n": 2}}
    minute = {"start": BEGIN_MS, "end": BEGIN_MS + MINUTE_MS}
    visit = {"start": BEGIN_MS + 1_000, "end": BEGIN_MS + 35_000}
    shown = {"key": "ann", "key_format": "text"}

    def rows(name: str, **more: str):
        status, document = query.ask(f"/views/{name}/keys/ann", **more)
        for row in document.get("windows", []):
            del row["changed"]
        return document.get("windows") if status == 200 else status

    eventually_equal(lambda: rows(view), [{**shown, **minute, "final": False, "values": {"n": 2}}])
    eventually_equal(lambda: rows(f"{view}-visits"), [{**shown, **visit, "final": False, "values": {"n": 2}}])
    assert rows(view, final="true") == []
    # Another key, in another partition, moves the event time past both, but for the lateness.
    produce(kafka, topic, [of_one("bob", BEGIN_MS + MINUTE_MS + 9_000, 2)])
    assert_still(lambda: rows(view)[0]["final"] is False, query, view, 3)
    produce(kafka, topic, [of_one("bob", BEGIN_MS + MINUTE_MS + 10_000, 2)])
    eventually_equal(lambda: rows(view), [{**shown, **minute, **final}])
    eventually_equal(lambda: rows(f"{view}-visits", final="true"), [{**shown, **visit, **final}])
    produce(kafka, topic, [of_one("ann", BEGIN_MS + 2_000), of_one("cid", BEGIN_MS + MINUTE_MS + 1_000)])
    eventually_equal(lambda: query.ask(f"/views/{view}")[1].get("late"), 1)
    eventually_equal(lambda: query.ask(f"/views/{view}-visits")[1].get("late"), 1)
    assert rows(view) == [{**shown, **minute, **final}]
    assert [row["key"] for row in query.pages(f"/views/{view}/keys")] == ["ann", "bob", "cid"]
    assert [
        row["key"] for row in query.pages(f"/views/{view}/keys", limit="1", key_from="b", key_to="c")
    ] == ["bob"]
    assert query.pages(f"/views/{view}/keys", prefix="a", to=str(BEGIN_MS)) == []
    assert query.pages(f"/views/{view}/keys/ann", **{"from": str(BEGIN_MS + 1)}) == []


def assert_still(condition, query: Query, view: str, records: int) -> None:
    """It holds once so many records are in the view."""
    lanes = lambda: query.ask(f"/views/{view}")[1]["lanes"]  # noqa: E731
    eventually(lambda: all(sum(lane["offsets"]) == records for lane in lanes()))
    assert condition()


def test_a_view_counts_the_records_of_partitions_that_its_topic_is_given_later(kafka, shared, query):
    topic, view = named("grown")
    written = produce(kafka, topic, some_events(200, 30))
    eventually_equal(lambda: query.whole(view), views.fixed(written, MINUTE_MS, MINUTE_MS))
    grow_topic(kafka, topic, 5)
    later = [replace(each, partition=number % 5) for number, each in enumerate(some_events(200, 31))]
    written += produce(kafka, topic, later)
    eventually_equal(lambda: query.whole(view), views.fixed(written, MINUTE_MS, MINUTE_MS))
    assert shared.running.process.poll() is None
    document = query.ask(f"/views/{view}")[1]
    assert (document["generation"], document.get("incomplete", False)) == (1, False)
    assert [len(lane["offsets"]) for lane in document["lanes"]] == [5] * len(document["lanes"])


def test_a_view_that_spark_cannot_compute_stops_alone_and_says_why(kafka, shared, query):
    """One condition names a column that there is not, one looks at more than a single record, one has a path
    that is none."""
    topic, view = named("failing")
    for name in (view, f"{view}-many", f"{view}-path"):
        shared.running.wait_for(f"view {name!r} STOPS until the job's next start: ")
    produce(kafka, topic, some_events(50, 5))
    eventually(lambda: query.counted(f"{view}-other")[0] == 50)
    assert shared.running.process.poll() is None
    document = query.ask(f"/views/{view}")[1]
    assert "Spark can't compute it" in document["stopped"]
    assert "no_such" in document["stopped"]
    assert "window functions" in query.ask(f"/views/{view}-many")[1]["stopped"]
    assert "INVALID_VARIANT_GET_PATH" in query.ask(f"/views/{view}-path")[1]["stopped"]
    assert "stopped" not in query.ask(f"/views/{view}-other")[1]
    eventually(lambda: scrape(shared.metrics_port).get(("keylane_view_stops_total", view)) == 1)
    eventually(lambda: scrape(shared.metrics_port).get(("keylane_view_stopped", view)) == 1)
    eventually(lambda: scrape(shared.metrics_port).get(("keylane_view_stopped", f"{view}-other")) == 0)


def test_a_view_of_a_missing_topic_says_so_and_opens_once_the_topic_is_there(kafka, shared, query):
    topic, view = named("early")
    missing = f"{topic}-later"

    def why() -> str:
        status, document = query.ask(f"/views/{view}")
        return document["detail"] if status == 404 and "view-not-opened" in document["type"] else ""

    eventually(lambda: f"topic {missing!r} is unknown" in why())
    [listed] = [each for each in query.ask("/views")[1]["views"] if each["view"] == view]
    assert listed == {"view": view, "stopped": why().partition("opened: ")[2]}
    create_topic(kafka, missing, 2)
    eventually(lambda: query.ask(f"/views/{view}")[0] == 200)
    # The reason goes once the lanes are open, a moment after readers find them.
    eventually(lambda: "stopped" not in query.ask(f"/views/{view}")[1])
    [listed] = [each for each in query.ask("/views")[1]["views"] if each["view"] == view]
    assert listed["topic"] == missing
    assert "stopped" not in listed


def test_records_that_a_view_cannot_take_are_counted_and_stop_nothing(kafka, shared, query):
    """A time in nanoseconds, and a condition that fails on a value."""
    topic, view = named("odd")
    odd = [(b"k", b'{"user": "7", "at": 1760000000000000000}'), (b"k", b'{"user": "8", "at": 1760000000000}')]
    produce(kafka, topic, [*some_events(20, 6), *odd])
    eventually(lambda: query.counted(view)[0] == 21)
    assert query.ask(f"/views/{view}")[1]["invalid"] == 1
    eventually(lambda: query.ask(f"/views/{view}-picky")[1].get("failed") == 20)
    picky = query.ask(f"/views/{view}-picky")[1]
    partition, offset = map(int, picky["failed_at"].split(":"))
    assert partition in range(3)
    assert offset >= 0
    eventually(lambda: query.counted(f"{view}-picky")[0] == 2)


def test_a_record_with_nanoseconds_as_its_timestamp_counts_in_views_by_a_field_and_is_read_by_sql(
    kafka, shared, query
):
    """Go's time without a value, which Kafka takes; Spark's source fails on it before any expression."""
    topic, view = named("timestamps")
    value, now_ms = b'{"user": "ann", "at": %d}' % BEGIN_MS, int(time.time() * 1000)
    times = enumerate((now_ms, -6_795_364_578_871_345_152, now_ms))
    own.produce(kafka, topic, ((b"k%d" % number, value, 0, timestamp) for number, timestamp in times))
    eventually(lambda: query.counted(view)[0] == 3)
    found = query.ask(f"/views/{view}")[1]
    assert (found["failed"], found["invalid"]) == (0, 0)
    for number in range(3):
        eventually(lambda number=number: query.ask(f"/topics/{topic}/keys/k{number}")[0] == 200)


@pytest.mark.long
def test_windows_that_together_are_too_large_for_one_answer_are_written_in_parts(
    kafka, topic, job, query, view
):
    """`latest` values of 40 kB, 1,000 windows of one lane: 40 MB."""
    running = job(
        topic,
        "[views.{view}]\ntopic = '{topic}'\nkey = 'user'\npartitions = 1\n"
        "[views.{view}.columns]\nn = 'count()'\np = 'latest(p)'\n",
    )
    users = [f"u{number}" for number in range(1000)]
    large = [(b"k", json.dumps({"user": user, "p": "x" * 40_000}).encode()) for user in users]
    produce(kafka, topic, large)
    produce(kafka, topic, [(b"k", json.dumps({"user": user}).encode()) for user in users])

    def count_of(user: str) -> int | None:
        windows = query.ask(f"/views/{view}/keys/{user}")[1].get("windows")
        return windows[0]["values"]["n"] if windows else None

    eventually(lambda: [count_of(user) for user in (users[0], users[500], users[-1])] == [2, 2, 2])
    assert running.process.poll() is None
    [window] = query.ask(f"/views/{view}/keys/u7")[1]["windows"]
    assert len(window["values"]["p"]) == 40_000


def test_a_view_that_nobody_has_declared_is_404(query):
    status, document = query.ask("/views/never/keys/k")
    assert status == 404
    assert document["type"] == "urn:keylane:problem:unknown-view"


def test_a_lane_that_loses_what_it_had_acknowledged_is_brought_to_where_the_others_are(
    kafka, redis_cluster, shared, query
):
    """As by a failover to a replica that was behind: the lane stands at an older moment, whole in itself."""
    topic, view = named("restored")
    written = produce(kafka, topic, some_events(300, 30))
    eventually_equal(lambda: query.whole(view), views.fixed(written, MINUTE_MS, MINUTE_MS))
    eventually_equal(lambda: query.whole(f"{view}-visits"), views.sessions(written, 15_000))
    with t.client(redis_cluster) as client:
        before = [StoredLane(client, name) for name in (view, f"{view}-visits")]
        written += produce(kafka, topic, some_events(300, 31))
        eventually_equal(lambda: query.whole(view), views.fixed(written, MINUTE_MS, MINUTE_MS))
        eventually_equal(lambda: query.whole(f"{view}-visits"), views.sessions(written, 15_000))
        with shared.running.paused():
            for lane in before:
                lane.restore()
    for name in (view, f"{view}-visits"):
        shared.running.wait_for(f"view {name!r}: 1 of the lanes are behind the others: they catch up first")
    written += produce(kafka, topic, some_events(50, 32))
    eventually_equal(lambda: query.whole(view), views.fixed(written, MINUTE_MS, MINUTE_MS))
    eventually_equal(lambda: query.whole(f"{view}-visits"), views.sessions(written, 15_000))


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
    kafka, redis_cluster, shared, query
):
    topic, view = named("closed")
    both = (view, visits := f"{view}-visits")
    produce(kafka, topic, [of_one(ANN, BEGIN_MS + 1_000)])
    eventually_equal(lambda: windows_of(query, view, ANN), [(BEGIN_MS, False, 1)])
    eventually_equal(lambda: windows_of(query, visits, ANN), [(BEGIN_MS + 1_000, False, 1)])
    with t.client(redis_cluster) as client:
        before = [StoredLane(client, name) for name in both]
        # The event time passes both windows; then a record of theirs arrives, which is late.
        produce(kafka, topic, [of_one("bob", BEGIN_MS + MINUTE_MS + 10_000, 1)])
        eventually_equal(lambda: windows_of(query, view, ANN), [(BEGIN_MS, True, 1)])
        eventually_equal(lambda: windows_of(query, visits, ANN), [(BEGIN_MS + 1_000, True, 1)])
        produce(kafka, topic, [of_one(ANN, BEGIN_MS + 2_000)])
        for name in both:
            eventually_equal(lambda name=name: lanes_hold(query, name, 3, late=1), True)
        with shared.running.paused():
            for lane in before:
                lane.restore()
            assert windows_of(query, view, ANN) == [(BEGIN_MS, False, 1)]
    for name in both:
        shared.running.wait_for(f"view {name!r}: 1 of the lanes are behind the others: they catch up first")
    for name in both:
        eventually_equal(lambda name=name: lanes_hold(query, name, 3, late=1), True)
    eventually_equal(lambda: windows_of(query, view, ANN), [(BEGIN_MS, True, 1)])
    eventually_equal(lambda: windows_of(query, visits, ANN), [(BEGIN_MS + 1_000, True, 1)])
    assert not query.ask(f"/views/{view}")[1]["incomplete"]


def test_a_view_over_a_compacted_topic_is_incomplete_once_records_are_missing(shared, query):
    _, view = named("compacted")
    eventually_equal(lambda: windows_of(query, view, ANN), [(BEGIN_MS, False, 1)])
    line = shared.running.wait_for(f"view {view!r}: INCOMPLETE: partition 0: ")
    assert "the topic is compacted" in line
    _, document = query.ask(f"/views/{view}/keys/{ANN}")
    assert document["incomplete"] is True
