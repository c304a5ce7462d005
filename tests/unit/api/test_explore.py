"""The explore function over fakes: what it takes, and the documents that it gives."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import (
    a_layout,
    an_application,
    an_event,
    explore_settings,
    headers_of,
    layout_entry,
    load_handler,
    no_schemas,
)
from tests.support.fakes import FakeKafka, FakePartition, FakeState, FakeTime

from keylane.adapters.kafka import reader
from keylane.api.http.gateway import answer
from keylane.app import explore
from keylane.errors import LogUnavailable
from keylane.model.clusters import DEFAULT
from keylane.model.kafka import LogRecord
from keylane.model.records import Options
from keylane.ports import SubjectVersion
from keylane.query import summaries
from keylane.query.layouts import Layouts
from keylane.query.store import Store
from keylane.wiring.explore import ExploreParts

if TYPE_CHECKING:
    from collections.abc import Callable

    Get = Callable[..., dict[str, Any]]

LAYOUT = a_layout("t", 2)
RECORDS = "/topics/t/partitions/0/records"
OFFSETS = "/topics/t/partitions/0/offsets"


@pytest.fixture
def world() -> SimpleNamespace:
    kafka = FakeKafka()
    return SimpleNamespace(kafka=kafka, logs=kafka.create("t", 2), state=FakeState(layout_entry(LAYOUT)))


@pytest.fixture
def log(world: SimpleNamespace) -> FakePartition:
    return world.logs[0]


@pytest.fixture
def get(world: SimpleNamespace) -> Get:
    clock = FakeTime().clock
    parts = ExploreParts(
        explore_settings(),
        clock,
        world.kafka,
        world.kafka,
        {DEFAULT: world.kafka},
        no_schemas,
        Store(world.state, Layouts(world.state, clock, 0), clock),
    )
    application = an_application(explore.OPERATIONS, parts)

    def ask(path: str, method: str = "GET", **query: str) -> dict[str, Any]:
        answered = answer(application, an_event(method, path, query=query or None), None)
        assert len(json.dumps(answered)) < 6 * 1024 * 1024
        return answered

    return ask


def document(answer: dict[str, Any], status: int = 200) -> dict[str, Any]:
    assert answer["statusCode"] == status, answer["body"]
    return json.loads(answer["body"])


def test_records_show_what_they_are(get: Get, log: FakePartition):
    log.add(
        LogRecord(0, b"k", b'{"a": 1.50}', 1000, "CreateTime", (("h", b"x"), ("n", None), ("b", b"\xff"))),
        LogRecord(1, None, b"a text", 2000, "LogAppendTime"),
        LogRecord(2, b"\xff", b"\xfe", None, None),
        LogRecord(3, b"", None, 3000, "CreateTime"),
        LogRecord(4, b"k", b"null", 3000, "CreateTime"),
        LogRecord(5, b"k", b"", 3000, "CreateTime"),
    )
    answer = get(RECORDS)
    assert '"value": {"a": 1.50}' in answer["body"]
    page = document(answer)
    assert {name: page[name] for name in page if name != "records"} == {
        "topic": "t",
        "partition": 0,
        "isolation": "read_committed",
        "next_offset": 6,
        "watermarks": {"low": 0, "high": 6},
    }
    first, *others = page["records"]
    assert first == {
        "partition": 0,
        "offset": 0,
        "position": "0:0",
        "timestamp": 1000,
        "timestamp_type": "CreateTime",
        "key": "k",
        "key_format": "text",
        "headers": [
            {"name": "h", "value": "x", "value_format": "text"},
            {"name": "n", "value": None, "value_format": "null"},
            {"name": "b", "value": "/w==", "value_format": "base64"},
        ],
        "value_format": "json",
        "value": {"a": 1.5},
    }
    names = ("timestamp_type", "key", "key_format", "value", "value_format")
    assert [tuple(each[name] for name in names) for each in others] == [
        ("LogAppendTime", None, "null", "a text", "text"),
        (None, "/w==", "base64", "/g==", "base64"),
        ("CreateTime", "", "text", None, "null"),
        ("CreateTime", "k", "text", None, "json"),
        ("CreateTime", "k", "text", "", "text"),
    ]
    assert others[1]["timestamp"] is None


def test_topics_say_how_they_are_if_asked(get: Get, world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    world.kafka.create("u", 1)
    assert document(get("/topics"))["topics"] == [
        {"topic": "t", "partitions": 2},
        {"topic": "u", "partitions": 1},
    ]
    kept, unkept = document(get("/topics", summary="true"))["topics"]
    assert (kept["summary"]["building"], unkept) == (True, {"topic": "u", "partitions": 1})
    monkeypatch.setattr(summaries, "MOST_LANES", 2)
    world.state.entries |= layout_entry(a_layout("u", 1))
    page = document(get("/topics", summary="true"))
    assert ([each["topic"] for each in page["topics"]], page["next"]) == (["t"], "t")
    assert document(get("/topics", summary="true", prefix="none")) == {"topics": []}


def test_a_topic_has_those_subjects_that_the_registry_has(world: SimpleNamespace):
    versions = {"t-value": [SubjectVersion(2, 7, "AVRO", '"int"')]}
    registry = SimpleNamespace(newest_versions=lambda subject, *_: versions.get(subject, ()))

    def subjects_of(has_registry: bool) -> list[dict[str, Any]]:
        settings = replace(explore_settings(), has_registry=has_registry)
        schemas = (lambda: registry) if has_registry else no_schemas
        parts = ExploreParts(settings, FakeTime().clock, world.kafka, world.kafka, {}, schemas)
        application = an_application(explore.OPERATIONS, parts)
        found = document(answer(application, an_event("GET", "/topics/t/schemas"), None))
        assert found["topic"] == "t"
        return found["subjects"]

    version = {"version": 2, "id": 7, "type": "AVRO", "schema": '"int"'}
    assert subjects_of(True) == [{"subject": "t-value", "versions": [version]}]
    assert subjects_of(False) == []


def test_typed_keys_are_shown_as_reads_show_them(get: Get, log: FakePartition, world: SimpleNamespace):
    typed = a_layout("t", 2, options=Options(key_fields=(("id", "integer"),)))
    log.add(
        LogRecord(0, b'{"id":7}', b"{}", 1000, "CreateTime"), LogRecord(1, b"7", None, 1000, "CreateTime")
    )

    def keys(**query: str) -> list[tuple[object, str]]:
        return [(each["key"], each["key_format"]) for each in document(get(RECORDS, **query))["records"]]

    as_text = [('{"id":7}', "text"), ("7", "text")]
    assert keys() == as_text
    world.state.entries |= layout_entry(typed)
    assert keys() == [({"id": 7}, "json"), ("7", "text")]
    assert keys(key_format="base64") == as_text
    world.state.away = True
    assert keys() == as_text


def test_headers_that_can_not_be_read_are_null(get: Get, log: FakePartition):
    class Message:
        """As confluent-kafka has one whose header's name is not valid UTF-8."""

        def headers(self) -> None:
            raise SystemError("returned a result with an exception set")

    log.add(LogRecord(0, b"k", b"v", headers=reader._headers(Message())))
    (record,) = document(get(RECORDS))["records"]
    assert (record["headers"], record["value"]) == (None, "v")


def test_a_page_ends_where_its_bytes_do(get: Get, log: FakePartition):
    log.add(*(LogRecord(n, b"k", b"v" * 9, n, "CreateTime") for n in range(5)))
    page = document(get(RECORDS, max_bytes="30"))
    assert (len(page["records"]), page["next_offset"]) == (3, 3)
    page = document(get(RECORDS, offset="3", max_bytes="1"))
    assert (len(page["records"]), page["next_offset"]) == (1, 4)
    assert document(get(RECORDS, offset="latest"))["records"] == []


@pytest.mark.parametrize(
    ("value", "value_format"),
    [
        (b"\xff" * 4_194_304, "base64"),
        (b"a" * 4_194_304, "text"),
        ("ж".encode() * 2_000_000, "base64"),
        (b'["\\""]'[:2] + b'\\"' * 1_990_000 + b'"]', "base64"),
    ],
)
def test_a_value_of_4_mib_is_shown_whatever_it_is(
    get: Get, log: FakePartition, value: bytes, value_format: str
):
    log.add(LogRecord(0, b"k", value), LogRecord(1, b"k", value))
    page = document(get(RECORDS, max_bytes=str(4 << 20)))
    (record,) = page["records"]
    assert (record["value_format"], page["next_offset"]) == (value_format, 1)
    shown = base64.b64decode(record["value"]) if value_format == "base64" else record["value"].encode()
    assert shown == value


def test_a_value_that_no_answer_can_hold_is_told_with_its_size(get: Get, log: FakePartition):
    log.add(LogRecord(0, b"k", b"\xff" * 5_000_000), LogRecord(1, b"k", b"v"))
    (record,) = document(get(RECORDS, limit="1"))["records"]
    assert (record["value"], record["value_format"], record["value_bytes"]) == (
        None,
        "left-in-kafka",
        5_000_000,
    )
    assert document(get(RECORDS, offset="1"))["records"][0]["value"] == "v"


def test_pages_that_are_larger_as_json_than_they_were_go_on_where_they_were_cut(get: Get, log: FakePartition):
    log.add(*(LogRecord(n, b"k", "ж".encode() * 200_000) for n in range(9)))
    page = document(get(RECORDS, max_bytes=str(4 << 20)))
    assert 1 < len(page["records"]) < 9
    assert page["next_offset"] == len(page["records"])


def test_an_offset_outside_has_kafkas_name_and_the_range(get: Get, log: FakePartition):
    log.add(LogRecord(5, b"k", b"v"))
    log.low = 5
    problem = document(get(RECORDS, offset="4"), 404)
    assert (problem["code"], problem["low"], problem["high"]) == ("OFFSET_OUT_OF_RANGE", 5, 6)
    assert (problem["type"], problem["parameter"]) == ("urn:keylane:problem:offset-out-of-range", "offset")


@pytest.mark.parametrize(
    ("path", "query", "parameter"),
    [
        (RECORDS, {"offset": "-1"}, "offset"),
        (RECORDS, {"offset": "last"}, "offset"),
        (RECORDS, {"offset": "1" * 19}, "offset"),
        (RECORDS, {"limit": "0"}, "limit"),
        (RECORDS, {"limit": "1001"}, "limit"),
        (RECORDS, {"max_bytes": "4194305"}, "max_bytes"),
        (RECORDS, {"isolation": "none"}, "isolation"),
        (OFFSETS, {"at": "last"}, "at"),
        (OFFSETS, {"at": "-1"}, "at"),
        (OFFSETS, {"isolation": ""}, "isolation"),
        ("/topics/t/partitions/-1/offsets", {}, "partition"),
        ("/topics/t/partitions/2147483648/records", {}, "partition"),
        ("/topics/t/partitions/x", {}, "partition"),
        ("/topics/t/partitions/%D9%A1", {}, "partition"),
        ("/topics/t!/partitions", {}, "topic"),
        ("/topics", {"limit": "10001"}, "limit"),
        ("/topics", {"prefix": "a" * 250}, "prefix"),
        ("/topics", {"after": "a" * 250}, "after"),
    ],
)
def test_what_is_wrong_is_named(get: Get, path: str, query: dict[str, str], parameter: str):
    assert document(get(path, **query), 400)["parameter"] == parameter


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/topics/elsewhere/partitions", "unknown-topic"),
        ("/topics/elsewhere/partitions/0/records", "unknown-topic"),
        ("/topics/t/partitions/2", "unknown-partition"),
        ("/topics/t/partitions/2/offsets", "unknown-partition"),
        ("/topics/t/partitions/2/records", "unknown-partition"),
    ],
)
def test_what_is_not_there_has_kafkas_name(get: Get, path: str, kind: str):
    problem = document(get(path), 404)
    assert (problem["type"], problem["code"]) == (f"urn:keylane:problem:{kind}", "UNKNOWN_TOPIC_OR_PARTITION")


def test_topics_are_listed_page_by_page(get: Get, world: SimpleNamespace):
    world.kafka.create("s", 1)
    assert document(get("/topics")) == {
        "topics": [{"topic": "s", "partitions": 1}, {"topic": "t", "partitions": 2}]
    }
    assert document(get("/topics", limit="1"))["next"] == "s"
    assert document(get("/topics", after="s"))["topics"] == [{"topic": "t", "partitions": 2}]


def test_partitions_tell_brokers_slot_and_shard(get: Get):
    second = {"leader": 1, "replicas": [1], "in_sync": [1], "slot": 12_288, "shard": "redis-2:7000"}
    topic = document(get("/topics/t/partitions"))
    assert topic["partitions"][1] == {"partition": 1} | second
    assert {name: topic[name] for name in ("topic", "topic_id", "internal", "state")} == {
        "topic": "t",
        "topic_id": "id of t",
        "internal": False,
        "state": "kept",
    }
    one = document(get("/topics/t/partitions/1"))
    assert one == {"topic": "t", "state": "kept", "partition": 1} | second


def test_an_offset_is_told_or_null(get: Get, log: FakePartition):
    log.add(LogRecord(7, b"k", b"v", 5000, "CreateTime"))
    answer = document(get(OFFSETS, at="4000"))
    assert answer == {
        "topic": "t",
        "partition": 0,
        "at": "4000",
        "isolation": "read_committed",
        "offset": 7,
        "timestamp": 5000,
    }
    latest = document(get(OFFSETS))
    assert (latest["at"], latest["offset"], latest["timestamp"]) == ("latest", 8, None)
    assert document(get(OFFSETS, at="1970-01-01T00:00:06Z"))["offset"] is None


def test_clusters_tell_their_brokers(get: Get):
    broker = {"id": 1, "host": "kafka", "port": 9092, "rack": None}
    assert document(get("/clusters")) == {
        "clusters": [{"name": "default", "cluster_id": "fake", "controller": 1, "brokers": [broker]}]
    }


def test_clusters_report_the_versions_of_each_api_where_they_are_asked_for(get: Get):
    (cluster,) = document(get("/clusters", api_versions="true"))["clusters"]
    (broker,) = cluster["brokers"]
    assert broker["api_versions"][1] == {"api_key": 1, "min_version": 4, "max_version": 17}
    assert "why" not in broker


def test_a_broker_that_does_not_report_its_versions_has_none_and_the_reason(
    get: Get, world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: Any) -> None:
        raise LogUnavailable("broker 1 did not answer: TimeoutError")

    monkeypatch.setattr(world.kafka, "api_versions", refuse)
    (cluster,) = document(get("/clusters", api_versions="true"))["clusters"]
    (broker,) = cluster["brokers"]
    assert (broker["api_versions"], broker["why"]) == (None, "broker 1 did not answer: TimeoutError")


def test_health_is_503_with_each_part_that_is_away(get: Get, world: SimpleNamespace):
    ready = {"ready": True, "took_ms": 0}
    answer = get("/health")
    assert document(answer) == {"live": True, "ready": True, "parts": {"kafka": ready, "redis": ready}}
    assert headers_of(answer)["Content-Type"] == "application/json"
    world.kafka.away = True
    health = document(get("/health"), 503)
    assert (health["live"], health["ready"], health["parts"]["redis"]) == (True, False, ready)
    assert health["parts"]["kafka"]["why"] == "Kafka did not answer in time"


def test_kafka_away_is_503(get: Get, world: SimpleNamespace):
    world.kafka.away = True
    for path in ("/topics", "/topics/t/partitions", OFFSETS, RECORDS, "/clusters"):
        answer = get(path)
        assert document(answer, 503)["type"] == "urn:keylane:problem:log-unavailable"
        assert headers_of(answer)["Retry-After"] == "1"


@pytest.mark.parametrize(
    "path", ["/topics", "/clusters", "/health", "/topics/t/partitions", OFFSETS, RECORDS]
)
def test_paths_take_get_and_head_alone(get: Get, path: str):
    head = get(path, "HEAD")
    assert (head["statusCode"], head["body"]) == (200, "")
    answer = get(path, "DELETE")
    assert answer["statusCode"] == 405
    assert headers_of(answer)["Allow"] == "GET, HEAD"


def test_missing_settings_are_an_answer_and_a_log_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.delenv("KEYLANE_KAFKA_BOOTSTRAP", raising=False)
    answer = load_handler("explore").lambda_handler(an_event("GET", "/health"), None)
    assert document(answer, 500)["type"] == "urn:keylane:problem:misconfigured"
    assert "KEYLANE_KAFKA_BOOTSTRAP" in caplog.text
    assert "KEYLANE_" not in answer["body"]
