"""Records that Spark can't take as they are: any timestamp is data; a text that is too long fails alone.

Spark's source knows microseconds in 64 bits. Java recurses for each character of some texts; others, short in
Kafka, would take its memory.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.servers.own import create_topic, eventually, produce
from tests.support import jobs
from tests.support.views import eventually_equal

from keylane.state.windows import KEYS, Column, Definition
from keylane_spark.rows.json_values import LARGEST_VALUE
from keylane_spark.views.table_rows import row_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from tests.support.views import Query

    from keylane_spark.rows.records import ArrowFunction

GO_ZERO_MS, NANOSECONDS = -6_795_364_578_871_345_152, 1_700_000_000_000_000_000
AT_MS = 1_700_000_000_000
ANY = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
ANY["retention.ms"] = "-1"
ODD_COUNT, PLAIN_COUNT = 5_000, 200
JOB = """[job]
reader = "{reader}"
small_batch_records = {small}
heartbeat_ms = 100
"""
TOPICS = {
    "long": "where = \"regexp_replace(value, '(a|b)*', '') is not null\"\non_error = 'skip'\n",
    "large": "where = 'json:k is not null'\non_error = 'skip'\n",
    "plain": "",
    "odd": "",
    "sql": "where = 'json is not null'\n",
    "many": "",
    "rows": "envelope = 'debezium'\n",
}
A_DAY = "window = '1d'\nlateness = '36500d'\n"
VIEWS = {
    "of-long": ("long", TOPICS["long"].partition("\n")[0] + "\n"),
    "of-large": ("large", TOPICS["large"].partition("\n")[0] + "\n"),
    "by-field": ("many", f"time = 'at'\n{A_DAY}"),
    "by-record": ("many", A_DAY),
    "of-rows": ("rows", ""),
}
PLAIN, LONG = b'{"k":"x"}', json.dumps({"k": "x", "text": "a" * 100_000}).encode()


class Odd(NamedTuple):
    """A job over all topics. `run`: ends their names, and those of its views."""

    kafka: str
    run: str
    job: jobs.RunningJob

    def produce(self, kind: str, records: Any, **settings: object) -> str:
        """Write to a topic; return its name."""
        produce(self.kafka, kind + self.run, records, linger_ms=200, **settings)
        return kind + self.run

    def never_restarts(self) -> bool:
        return not [line for line in self.job.lines if "restarts in" in line]


DIRECT = [
    pytest.param(("direct", 20_000), id="direct, driver", marks=pytest.mark.long),
    pytest.param(("direct", 0), id="direct, tasks"),
]
BY_SPARK = [
    pytest.param(("spark", 20_000), id="spark, driver", marks=pytest.mark.long),
    pytest.param(("spark", 0), id="spark, tasks", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=[*DIRECT, *BY_SPARK])
def odd(request, kafka, redis_cluster, tmp_path_factory) -> Iterator[Odd]:
    reader, small = request.param
    run = f"-{reader}-{small}"
    for topic in TOPICS:
        create_topic(kafka, topic + run, 1, config=ANY)
    config = JOB.format(reader=reader, small=small)
    config += "".join(f"[topics.{topic}{run}]\n{table}" for topic, table in TOPICS.items())
    for view, (topic, table) in VIEWS.items():
        config += f"[views.{view}{run}]\ntopic = '{topic}{run}'\nkey = 'k'\n{table}"
        config += f"[views.{view}{run}.columns]\nn = 'count()'\n"
    with jobs.running(kafka, redis_cluster, tmp_path_factory.mktemp("odd"), config) as job:
        job.wait_for("keylane: ready")
        yield Odd(kafka, run, job)


def test_records_with_any_timestamp_are_stored(odd: Odd, state_of: Callable[[str], jobs.State]):
    times = [GO_ZERO_MS, *[AT_MS] * 6, 2**63 - 1, *[AT_MS] * 12]
    records = [(b"%d" % number, b'{"n":%d}' % number, -1, at) for number, at in enumerate(times)]
    for state in (state_of(odd.produce(kind, records)) for kind in ("odd", "sql")):
        eventually(lambda state=state: state.holds({key: value for key, value, *_ in records}))
    assert odd.never_restarts()


def test_thousands_of_odd_timestamps_stop_no_view(odd: Odd, query: Query):
    """A batch and nothing that is divided: 5,000 odd records are as quick as one."""
    row = b'{"k":"a","at":"2026-11-01"}'
    for kind, value in (("many", row), ("rows", b'{"before":null,"after":%s,"op":"c"}' % row)):
        odd.produce(
            kind,
            (
                (b"%d" % number, value, -1, AT_MS if number % 26 == 0 else GO_ZERO_MS + number)
                for number in range(ODD_COUNT + PLAIN_COUNT)
            ),
        )
    wanted = {
        "by-field": (ODD_COUNT + PLAIN_COUNT, 0, 0),
        "by-record": (PLAIN_COUNT, ODD_COUNT, 0),
        "of-rows": (ODD_COUNT + PLAIN_COUNT, 0, 0),
    }
    for view, counts in wanted.items():
        eventually_equal(lambda view=view: query.counted(view + odd.run), counts)
        assert not [line for line in odd.job.lines if view + odd.run in line and "FAILED" in line]
    assert odd.never_restarts()


def test_a_text_that_is_too_long_for_a_regular_expression_fails_alone(
    odd: Odd, query: Query, state_of: Callable[[str], jobs.State]
):
    records = [(b"%d" % number, LONG if number in (7, 8) else PLAIN) for number in range(20)]
    long, beside = (odd.produce(kind, records) for kind in ("long", "plain"))
    state, state_beside = state_of(long), state_of(beside)
    eventually(lambda: state_beside.holds(dict(records)))
    wanted = {key: value if value == PLAIN else None for key, value in records}
    eventually(lambda: state.holds(wanted))
    odd.job.wait_for(f"topic {long!r}: its transform fails on")
    eventually_equal(lambda: query.counted(f"of-{long}"), (18, 0, 2))
    assert odd.never_restarts()


@pytest.mark.parametrize("odd", DIRECT, indirect=True)
def test_a_value_that_is_short_in_kafka_and_too_large_for_spark_fails_alone(
    odd: Odd, query: Query, state_of: Callable[[str], jobs.State]
):
    large = json.dumps({"k": "x", "text": "a" * LARGEST_VALUE}).encode()
    records = [(b"%d" % number, large if number == 2 else PLAIN) for number in range(6)]
    settings = {"compression_type": "gzip", "message_max_bytes": 2 * LARGEST_VALUE}
    topic = odd.produce("large", records, **settings)
    state = state_of(topic)
    eventually(lambda: state.holds({key: PLAIN if value == PLAIN else None for key, value in records}))
    odd.job.wait_for(f"topic {topic!r}: its transform fails on")
    eventually_equal(lambda: query.counted(f"of-{topic}"), (5, 0, 1))
    assert odd.never_restarts()


class TimedRows:
    """Rows of a log with these times. See `LogRows`."""

    def __init__(self, spark: SparkSession, *times_ms: int) -> None:
        rows = [(0, offset, ms, b"k", b"{}") for offset, ms in enumerate(times_ms)]
        schema = "partition int, offset bigint, ms bigint, key binary, value binary"
        self._rows = spark.createDataFrame(rows, schema)

    def through(self, function: ArrowFunction, schema: str) -> DataFrame:
        return self._rows.mapInArrow(function, schema)


def test_changes_of_rows_have_the_times_by_which_lanes_order_records(spark: SparkSession):
    """In a view of keys nanoseconds were older than anything, in the topic's lanes they are newer."""
    view = Definition("t", (Column("n", "count"),), of=KEYS)
    changes = row_changes(TimedRows(spark, -1, GO_ZERO_MS, 0, 5, NANOSECONDS), view).toArrow()
    assert changes.sort_by("offset").column("ms").to_pylist() == [0, 0, 0, 5, NANOSECONDS]
