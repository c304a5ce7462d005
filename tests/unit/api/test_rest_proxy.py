"""POST /topics/{topic}, and one of its partitions: REST Proxy v2's requests and answers, over a fake log.

The examples are those of its public API reference.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import headers_of, load_produce
from tests.support.fakes import FakeLog

from keylane.errors import LogUnavailable, ProduceFailed, Unacknowledged
from keylane.model.records import NewRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    Post = Callable[..., dict[str, Any]]

JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
TEXT = "application/vnd.kafka.text.v2+json"
ACCEPT = "application/vnd.kafka.v2+json, application/vnd.kafka+json, application/json"


@pytest.fixture
def post(log: FakeLog) -> Post:
    function = load_produce(log)

    def ask(body: Any, media_type: str = JSON, path: str = "/topics/test", **event: Any) -> dict[str, Any]:
        return function(path, body, headers={"Content-Type": media_type, "Accept": ACCEPT}, **event)

    return ask


def offsets(answer: dict[str, Any]) -> list[dict[str, Any]]:
    assert answer["statusCode"] == 200, answer["body"]
    assert headers_of(answer)["Content-Type"] == "application/vnd.kafka.v2+json"
    document = json.loads(answer["body"])
    assert (document["key_schema_id"], document["value_schema_id"]) == (None, None)
    return list(document["offsets"])


def problem(answer: dict[str, Any]) -> tuple[int, int, str | None]:
    assert headers_of(answer)["Content-Type"] == "application/problem+json"
    document = json.loads(answer["body"])
    assert document["status"] == answer["statusCode"]
    assert document["message"] == document["detail"]
    return answer["statusCode"], document["error_code"], document.get("parameter")


def test_the_partition_example_of_the_reference(post: Post, log: FakeLog):
    records = [{"key": "a2V5", "value": "Y29uZmx1ZW50"}, {"value": "a2Fma2E="}]
    told = offsets(post({"records": records}, BINARY, "/topics/test/partitions/1"))
    assert [(each["partition"], each["offset"]) for each in told] == [(1, 0), (1, 1)]
    assert log.topics["test"][1] == [(b"key", b"confluent"), (None, b"kafka")]


def test_keys_are_written_without_their_quotes_where_that_is_asked_for(post: Post, log: FakeLog):
    records = [{"key": "N1", "value": "v"}, {"key": {"b": 1, "a": 2}, "value": None}]
    offsets(post({"records": records}, query={"key_format": "text"}))
    assert log.sent == [NewRecord("test", b"N1", b'"v"'), NewRecord("test", b'{"b":1,"a":2}', None)]


@pytest.mark.parametrize("media_type", [JSON, BINARY])
def test_another_format_of_keys_is_refused_whatever_the_body(post: Post, log: FakeLog, media_type: str):
    answer = post({"records": [{}]}, media_type, query={"key_format": ""})
    assert problem(answer) == (400, 400, "key_format")
    assert not log.sent


@pytest.mark.parametrize("media_type", [JSON, BINARY, TEXT])
def test_headers_of_strimzi_and_karapace_are_base64(post: Post, log: FakeLog, media_type: str):
    headers = [
        {"key": "a", "value": "/w=="},
        {"key": "b", "value": "x", "value_format": "text"},
        {"key": "c"},
    ]
    offsets(post({"records": [{"headers": headers}]}, media_type))
    assert log.sent[-1].headers == (("a", b"\xff"), ("b", b"x"), ("c", None))


def test_the_text_of_strimzi_is_written_as_it_is(post: Post, log: FakeLog):
    records = [{"key": "my-key", "value": "plain \u00fc"}, {"value": None}, {"value": ""}]
    offsets(post({"records": records}, TEXT))
    assert [(each.key, each.value) for each in log.sent] == [
        (b"my-key", "plain \u00fc".encode()),
        (None, None),
        (None, b""),
    ]
    assert problem(post({"records": [{"value": {"a": 1}}]}, TEXT))[::2] == (400, "records[0].value")


def test_timestamps_and_headers_are_written_too(post: Post, log: FakeLog):
    headers = [{"name": "a", "value": "ü"}, {"name": "b", "value": "/w==", "value_format": "base64"}]
    records = [
        {"value": 1, "timestamp": 1_357_034_400_000, "headers": [*headers, {"name": "a", "value": None}]},
        {"value": 1, "timestamp": "2013-01-01T10:00:00Z", "headers": []},
    ]
    offsets(post({"records": records}))
    both = (("a", "ü".encode()), ("b", b"\xff"), ("a", None))
    assert log.sent == [
        NewRecord("test", None, b"1", timestamp_ms=1_357_034_400_000, headers=both),
        NewRecord("test", None, b"1", timestamp_ms=1_357_034_400_000),
    ]
    offsets(post({"records": [{"headers": [{"name": "a", "value": "/w=="}]}]}, BINARY))
    assert log.sent[-1].headers == (("a", b"\xff"),)


def test_one_records_error_does_not_hide_the_others(post: Post, log: FakeLog):
    records = [{"value": "x" * 1_000}, {"value": 1, "partition": 3}, {"key": "k" * 65_536}, {"value": 2}]
    large, elsewhere, long, good = offsets(post({"records": records}))
    assert [each["error_code"] for each in (large, elsewhere, long, good)] == [50002, 50002, 50002, None]
    assert [each["offset"] for each in (large, elsewhere, long)] == [None] * 3
    assert (large["index"], large["field"], large["code"]) == (0, "value", "MESSAGE_TOO_LARGE")
    assert (elsewhere["field"], elsewhere["code"]) == ("partition", "UNKNOWN_TOPIC_OR_PARTITION")
    assert (long["field"], long["retriable"]) == ("key", False)
    assert good["offset"] == 0


def test_error_that_may_pass_has_code_50003(post: Post, log: FakeLog):
    log.refusals["test"] = ProduceFailed("NOT_ENOUGH_REPLICAS", "Kafka refused the record", retriable=True)
    told = offsets(post({"records": [{"value": 1}, {"value": 2}]}))
    assert [each["error_code"] for each in told] == [50003, 50003]
    assert told[0]["error"].startswith("NOT_ENOUGH_REPLICAS")


def test_unknown_topic_is_theirs_40401(post: Post):
    answer = post({"records": [{"value": 1}, {"value": 2}]}, path="/topics/nowhere")
    assert problem(answer) == (404, 40401, None)
    document = json.loads(answer["body"])
    assert document["type"] == "urn:keylane:problem:unknown-topic"
    assert [each["error_code"] for each in document["offsets"]] == [50002, 50002]


def test_unknown_partition_of_the_path_is_theirs_40402(post: Post):
    for partition in ("3", "9999999999"):
        answer = post({"records": [{"value": 1}]}, path=f"/topics/test/partitions/{partition}")
        assert problem(answer) == (404, 40402, None)


def test_kafka_that_is_away_is_503_and_uncertain_records_are_reported(post: Post, log: FakeLog):
    log.refusals["test"] = LogUnavailable("away")
    answer = post({"records": [{"value": 1}]})
    assert problem(answer) == (503, 50003, None)
    assert headers_of(answer)["Retry-After"] == "1"
    log.refusals["test"] = Unacknowledged()
    document = json.loads(post({"records": [{"value": 1}]})["body"])
    assert (document["offsets"][0]["error_code"], document["offsets"][0]["uncertain"]) == (50003, True)
    assert "may or may not have been written" in document["message"]


def test_topic_that_we_may_not_write_to_is_403(post: Post, log: FakeLog):
    log.refusals["test"] = ProduceFailed("TOPIC_AUTHORIZATION_FAILED", "Kafka refused it", retriable=False)
    answer = post({"records": [{"value": 1}, {"value": 2}]})
    assert problem(answer) == (403, 40301, None)
    assert [each["error_code"] for each in json.loads(answer["body"])["offsets"]] == [40301, 40301]
    mixed = post({"records": [{"value": "x" * 1_000}, {"value": 2}]})
    assert problem(mixed) == (403, 40301, None)
    assert [each["error_code"] for each in json.loads(mixed["body"])["offsets"]] == [50002, 40301]


@pytest.mark.parametrize(
    "media_type",
    ["", "application/json", "application/vnd.kafka.thrift.v2+json", "application/vnd.kafka.json.v1+json"],
)
def test_other_bodies_are_415_and_supported_ones_are_named(post: Post, media_type: str):
    answer = post({"records": [{"value": 1}]}, media_type)
    assert problem(answer) == (415, 415, "Content-Type")
    detail = json.loads(answer["body"])["detail"]
    assert JSON in detail
    assert BINARY in detail


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[1]", b"7", b'{"records": [{"value": 1e999}]}'])
def test_body_that_is_no_json_object_is_400(post: Post, body: bytes):
    assert problem(post(body)) == (400, 400, "body")


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({}, "records"),
        ({"records": None}, "records"),
        ({"records": []}, "records"),
        ({"records": [{}] * 10_001}, "records"),
        ({"records": [{}], "record": 1}, "record"),
        ({"records": [{}, {"vlaue": 1}]}, "records[1].vlaue"),
        ({"records": [{"partition": -1}]}, "records[0].partition"),
        ({"records": [{"timestamp": 0}]}, "records[0].timestamp"),
        ({"records": [{"timestamp": "1970-01-01"}]}, "records[0].timestamp"),
        ({"records": [{"headers": [{"name": "a"}] * 101}]}, "records[0].headers"),
        ({"records": [{"headers": [{"name": "a", "vlaue": "b"}]}]}, "records[0].headers[0]"),
        ({"records": [{"headers": [{"value": "b"}]}]}, "records[0].headers[0].name"),
        ({"records": [{"headers": [{"key": "a", "name": "a"}]}]}, "records[0].headers[0]"),
        ({"records": [{"headers": [{"key": None}]}]}, "records[0].headers[0].key"),
    ],
)
def test_field_that_is_missing_or_unknown_or_out_of_bounds_is_422_and_nothing_is_written(
    post: Post, log: FakeLog, body: Any, parameter: str
):
    assert problem(post(body)) == (422, 422, parameter)
    assert not log.sent


def with_header(**header: Any) -> dict[str, Any]:
    return {"records": [{"headers": [{"name": "a"}, header]}]}


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({"records": "a"}, "records"),
        ({"records": {"value": 1}}, "records"),
        ({"records": [{}, None]}, "records[1]"),
        ({"records": ["value"]}, "records[0]"),
        ({"records": [{"partition": "one"}]}, "records[0].partition"),
        ({"records": [{"partition": "1.0"}]}, "records[0].partition"),
        ({"records": [{"partition": 1.5}]}, "records[0].partition"),
        ({"records": [{"partition": True}]}, "records[0].partition"),
        ({"records": [{"partition": [1]}]}, "records[0].partition"),
        ({"records": [{"partition": 2**31}]}, "records[0].partition"),
        ({"records": [{"value": "\ud800"}]}, "records[0].value"),
        ({"records": [{"key": {"a": ["\udfff"]}}]}, "records[0].key"),
        ({"records": [{"timestamp": "soon"}]}, "records[0].timestamp"),
        ({"records": [{"timestamp": 1.5}]}, "records[0].timestamp"),
        ({"records": [{"headers": {"a": "b"}}]}, "records[0].headers"),
        ({"records": [{"headers": ["a"]}]}, "records[0].headers[0]"),
        (with_header(name="\ud800"), "records[0].headers[1].name"),
        (with_header(name=7), "records[0].headers[1].name"),
        (with_header(key=7), "records[0].headers[1].key"),
        (with_header(key="a", value="*"), "records[0].headers[1].value"),
        (with_header(name="b", value=7), "records[0].headers[1].value"),
        (with_header(name="b", value="*", value_format="base64"), "records[0].headers[1].value"),
        (with_header(name="b", value="c", value_format=["text"]), "records[0].headers[1].value_format"),
    ],
)
def test_value_of_a_wrong_type_is_400_with_its_place_and_nothing_is_written(
    post: Post, log: FakeLog, body: Any, parameter: str
):
    assert problem(post(body)) == (400, 400, parameter)
    assert not log.sent


@pytest.mark.parametrize("partition", [1, 1.0, "1", " 1 ", "+1", "01"])
def test_numbers_are_read_as_jackson_reads_them(post: Post, log: FakeLog, partition: Any):
    (written,) = offsets(post({"records": [{"value": 1, "partition": partition}]}))
    assert written["partition"] == 1
    offsets(post({"records": [{"value": 1, "partition": ""}]}))
    assert log.sent[-1].partition is None


@pytest.mark.parametrize("wrong", ["a", "*", 7, {"a": 1}, "YQ=", "YR=="])
def test_binary_that_is_no_base64_is_400(post: Post, log: FakeLog, wrong: Any):
    for field in ("key", "value"):
        answer = post({"records": [{"value": ""}, {field: wrong}]}, BINARY)
        assert problem(answer) == (400, 400, f"records[1].{field}")
    assert not log.sent


def test_partitions_of_path_and_record_must_agree(post: Post, log: FakeLog):
    path = "/topics/test/partitions/1"
    offsets(post({"records": [{"value": 1, "partition": 1}]}, path=path))
    answer = post({"records": [{"value": 1, "partition": 2}]}, path=path)
    assert problem(answer) == (422, 422, "records[0].partition")
    for wrong in ("x", "-1", "1.5", "%31"):
        answer = post({"records": [{"value": 1}]}, path=f"/topics/test/partitions/{wrong}")
        assert problem(answer) == (400, 400, "partition")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["key", "value", "partition", "timestamp", "headers"])


@given(
    st.lists(st.dictionaries(NAMES, JSON_VALUES, max_size=3), max_size=3) | JSON_VALUES,
    st.sampled_from([JSON, BINARY]),
)
def test_any_json_is_answered_and_nothing_is_our_fault(records: Any, media_type: str):
    log = FakeLog()
    log.create("test", 3)
    headers = {"Content-Type": media_type}
    answer = load_produce(log)("/topics/test", {"records": records}, headers=headers)
    assert answer["statusCode"] in {200, 400, 422}
    if answer["statusCode"] == 200:
        assert len(log.sent) == len(json.loads(answer["body"])["offsets"]) == len(records)
    else:
        assert not log.sent


@given(st.lists(st.tuples(JSON_VALUES, JSON_VALUES), min_size=1, max_size=3))
def test_json_is_written_as_it_was_given(pairs: list[tuple[Any, Any]]):
    log = FakeLog()
    log.create("test", 3)
    body = {"records": [{"key": key, "value": value} for key, value in pairs]}
    load_produce(log)("/topics/test", body, headers={"Content-Type": JSON})
    for (key, value), record in zip(pairs, log.sent, strict=False):
        assert record.key is None if key is None else json.loads(record.key or b"") == key
        assert record.value is None if value is None else json.loads(record.value or b"") == value
