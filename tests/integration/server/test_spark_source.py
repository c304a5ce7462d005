"""Topics as tables of Spark, from `keylane serve`: what rows they have, and what is asked of the server."""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.servers.standing import StandingServer, plain_variables, standing
from tests.support.cut_relay import relaying

from keylane_client import Client, InvalidArgument, Position
from keylane_client.spark import position_of, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame
    from tests.support.logged_topic import LoggedTopic

TOKEN = "the-token-of-these-tables"
FIELDS = (("dest", "text"), ("delay", "number"), ("left", "time"), ("late", "boolean"))
FLIGHTS = {
    "US/1": {"dest": "LAX", "delay": 75, "left": "2013-07-04T10:00:00Z", "late": True, "seats": [1, 2]},
    "US/2": {"dest": "SFO", "delay": 0.1, "left": 1372932000000, "late": False, "more": {"x": "é"}},
    "US/3": {"dest": "LAX", "delay": -3},
    "EU/1": {"dest": "OSL", "delay": 75, "more": {"x": 5}},
}


@pytest.fixture(scope="module")
def variables(redis_cluster: str, kafka: str) -> dict[str, str]:
    return plain_variables(redis_cluster, kafka)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    settings = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)  # which has the client
        running = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        register(running)
        yield running
        running.stop()


@pytest.fixture(scope="module")
def flights(logged_topic: Callable[..., LoggedTopic]) -> LoggedTopic:
    topic = logged_topic(index=1, fields=tuple(sorted(FIELDS)))
    for key, value in FLIGHTS.items():
        topic.put(key.encode(), json.dumps(value, ensure_ascii=False).encode())
    topic.put(b"US/4", b'{"dest": "JFK"}')
    topic.put(b"US/4", None)
    return topic


def table(spark: SparkSession, url: str, topic: str, schema: str = "", **options: str) -> DataFrame:
    reading = spark.read.format("keylane").option("url", url).option("topic", topic).options(**options)
    return (reading.schema(schema) if schema else reading).load()


def values_of(found: DataFrame) -> dict[str, Any]:
    return {row.key: row.value.asDict(recursive=True) for row in found.collect()}


def test_a_table_has_the_record_of_each_key_and_its_declared_fields(
    spark: SparkSession, server: StandingServer, flights: LoggedTopic
):
    found = table(spark, server.url, flights.name)
    at = position_of(found)
    assert found.drop("key").schema.simpleString() == (
        "struct<value:struct<delay:double,dest:string,late:boolean,left:timestamp>,"
        "partition:int,offset:bigint,timestamp:timestamp>"
    )
    when = datetime(2013, 7, 4, 10)  # noqa: DTZ001 (as Spark gives it)
    assert values_of(found) == {
        "US/1": {"delay": 75.0, "dest": "LAX", "late": True, "left": when},
        "US/2": {"delay": 0.1, "dest": "SFO", "late": False, "left": when},
        "US/3": {"delay": -3.0, "dest": "LAX", "late": None, "left": None},
        "EU/1": {"delay": 75.0, "dest": "OSL", "late": None, "left": None},
    }
    with Client(server.url) as client:
        records = {record.key: record for record in client.topic(flights.name).snapshot()}
    for row in found.collect():
        record = records[row.key]
        assert Position(row.partition, row.offset) == record.position
        assert record.position in at
        assert row.timestamp.timestamp() * 1000 == pytest.approx(record.timestamp_ms)


def test_columns_are_of_the_types_that_are_asked_for(
    spark: SparkSession, server: StandingServer, flights: LoggedTopic
):
    value = "STRUCT<dest: STRING, seats: ARRAY<INT>, more: STRUCT<x: STRING>, delay: DECIMAL(5, 1)>"
    found = {row.key: row.value for row in table(spark, server.url, flights.name, value=value).collect()}
    assert found["US/1"].seats == [1, 2]
    assert (found["US/2"].more.x, found["EU/1"].more.x, found["US/3"].more) == ("é", "5", None)
    assert str(found["US/2"].delay) == "0.1"
    texts = table(spark, server.url, flights.name, "key BINARY, value STRING, next_offset BIGINT").collect()
    assert {bytes(row.key).decode(): json.loads(row.value) for row in texts} == FLIGHTS
    ends = position_of(table(spark, server.url, flights.name)).next_offsets
    assert {row.next_offset for row in texts} <= set(ends.values())
    with pytest.raises(InvalidArgument, match="schema"):
        position_of(table(spark, server.url, flights.name, "key STRING"))


@pytest.mark.parametrize(
    ("condition", "asked", "keys"),
    [
        ("key LIKE 'EU/%' AND value.delay <= 75", ".delay=..75.00000000000001&prefix=EU%2F", ["EU/1"]),
        (
            "value.left >= TIMESTAMP'2013-07-04 10:00:00'",
            ".left=2013-07-04T09:59:59.999999Z..",
            ["US/1", "US/2"],
        ),
        ("value.dest = 'OSL' OR value.late", "", ["EU/1", "US/1"]),
    ],
)
def test_filters_are_asked_of_the_server(
    spark: SparkSession,
    server: StandingServer,
    flights: LoggedTopic,
    condition: str,
    asked: str,
    keys: list[str],
):
    with relaying(server.port) as relay:
        found = table(spark, relay.url, flights.name)
        relay.asked.clear()
        assert sorted(row.key for row in found.where(condition).collect()) == keys
        tasks = [path for path in relay.asked if "/snapshot" in path and "cursor" in path]
        assert tasks
        for path in tasks:
            query = path.partition("?")[2].split("&")
            assert "fields=delay%2Cdest%2Clate%2Cleft" in query
            others = [each for each in query if each.partition("=")[0] not in {"fields", "cursor", "lanes"}]
            assert "&".join(sorted(others)).replace("%2A", "*").replace("%3A", ":") == asked


def test_tasks_divide_the_lanes_among_them(spark: SparkSession, server: StandingServer, flights: LoggedTopic):
    with relaying(server.port) as relay:
        found = table(spark, relay.url, flights.name, tasks="3")
        relay.asked.clear()
        assert found.count() == len(FLIGHTS)
        assert found.rdd.getNumPartitions() == 3
        ranges = sorted(
            path.rpartition("lanes=")[2].partition("&")[0] for path in relay.asked if "lanes=" in path
        )
        assert ranges == ["0-2", "3-5", "6-8"]
    assert table(spark, server.url, flights.name, tasks="100").rdd.getNumPartitions() == 9


def test_a_task_goes_on_where_its_connection_was_cut(
    spark: SparkSession, server: StandingServer, logged_topic: Callable[..., LoggedTopic]
):
    topic = logged_topic()
    values = random.Random(1)  # which do not become small when they are compressed
    for number in range(300):
        topic.put(b"k%d" % number, b'{"n": "%s"}' % values.randbytes(200).hex().encode())
    with relaying(server.port) as relay:
        found = table(spark, relay.url, topic.name, value="STRUCT<n: STRING>", tasks="1")
        relay.cut_after_bytes = 30_000
        keys = [row.key for row in found.collect()]
        assert relay.connections > 3
        assert sorted(keys) == sorted(f"k{number}" for number in range(300))


def test_values_that_are_no_json_name_their_record_and_can_be_read_as_strings(
    spark: SparkSession, server: StandingServer, logged_topic: Callable[..., LoggedTopic]
):
    topic = logged_topic()
    position = topic.put(b"k", b"not JSON")
    with pytest.raises(PySparkException, match=rf"record {position} \(key 'k'\) .* it is not a JSON object"):
        table(spark, server.url, topic.name, value="STRUCT<a: INT>").collect()
    assert table(spark, server.url, topic.name).head().value == "not JSON"
    topic.put(b"\xff", b"\xfe")
    found = table(spark, server.url, topic.name, "key BINARY, value BINARY").collect()
    assert {bytes(row.key): bytes(row.value) for row in found} == {b"k": b"not JSON", b"\xff": b"\xfe"}


def test_a_topic_that_is_not_there_and_a_server_that_is_away_are_named(
    spark: SparkSession, server: StandingServer
):
    with pytest.raises(PySparkException, match="404 unknown-topic"):
        table(spark, server.url, "nowhere-at-all")
    with pytest.raises(PySparkException, match="cannot be reached"):
        table(spark, "http://localhost:9", "t")
    with pytest.raises(PySparkException, match="give the options url and topic"):
        spark.read.format("keylane").load()


def test_a_token_is_sent_and_one_that_is_refused_is_named(
    spark: SparkSession, variables: dict[str, str], flights: LoggedTopic, tmp_path: Path
):
    access = json.dumps(
        {hashlib.sha256(TOKEN.encode()).hexdigest(): {"name": "spark", "read": [flights.name]}}
    )
    options = ("--authorization", "tokens")
    with standing(tmp_path / "log", variables | {"KEYLANE_ACCESS": access}, *options) as running:
        assert table(spark, running.url, flights.name, token=TOKEN).count() == len(FLIGHTS)
        with pytest.raises(PySparkException, match="401"):
            table(spark, running.url, flights.name, token="another").count()
        with pytest.raises(PySparkException, match="401"):
            table(spark, running.url, flights.name).count()


def test_the_page_makes_parquet_files_that_pandas_counts(
    spark: SparkSession,
    server: StandingServer,
    logged_topic: Callable[..., LoggedTopic],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    topic = logged_topic(index=1, fields=(("dep_delay", "number"), ("origin", "text")))
    for number, origin in enumerate(["JFK", "LGA", "JFK"]):
        topic.put(
            b"N%d" % number, json.dumps({"origin": origin, "dest": "LAX", "dep_delay": number}).encode()
        )
    page = Path("docs/use/snapshots.md").read_text(encoding="utf-8")
    example = page.partition("\n## A table of Spark\n")[2].partition("```python\n")[2].partition("```")[0]
    # The example's session is this one, whose files are where it was started.
    for old, new in {
        "http://localhost:8080": server.url,
        '"flights"': f'"{topic.name}"',
        '"from_jfk"': f'"{tmp_path}/from_jfk"',
    }.items():
        assert old in example
        example = example.replace(old, new)
    exec(compile(example, "the page", "exec"), {})  # noqa: S102
    counts, since = capsys.readouterr().out.splitlines()[-2:]
    assert counts == "2 2"
    assert re.fullmatch(r"changes since then: 0:0,1:0(,\d:\d)+", since)
