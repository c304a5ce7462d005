"""POST /v3/clusters/{cluster}/topics/{topic}/records and records:batch, over a fake log.

Examples and codes are those of its OpenAPI document and of its integration tests.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import headers_of, load_produce
from tests.support.fakes import FakeIdempotencyStore, FakeLog

from keylane.errors import LogUnavailable, ProduceFailed, Superseded, Unacknowledged
from keylane.model.records import NewRecord
from keylane.model.served_topics import ServedTopics
from keylane.produce.guards import Guards

if TYPE_CHECKING:
    from collections.abc import Callable

    Post = Callable[..., list[dict[str, Any]]]
    PostBatch = Callable[[Any], tuple[int, dict[str, Any]]]

PATH = "/v3/clusters/cluster-1/topics/test/records"
BATCH_PATH = f"{PATH}:batch"
JSON = {"Content-Type": "application/json"}
AT, AT_MS = "2021-02-05T19:14:42Z", 1_612_552_482_000


@pytest.fixture
def post(log: FakeLog) -> Post:
    function = load_produce(log)

    def ask(*documents: Any, path: str = PATH) -> list[dict[str, Any]]:
        body = b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in documents)
        answer = function(path, body, headers=JSON)
        assert (answer["statusCode"], headers_of(answer)["Content-Type"]) == (200, "application/json")
        *reports, rest = answer["body"].split("\r\n")
        assert rest == ""
        return [json.loads(report) for report in reports]

    return ask


def problem(answer: dict[str, Any]) -> tuple[int, int]:
    document = json.loads(answer["body"])
    assert document["message"] == document["detail"]
    return answer["statusCode"], document["error_code"]


def test_the_example_of_the_openapi_document(post: Post, log: FakeLog):
    record = {
        "partition_id": 1,
        "headers": [{"name": "Header-1", "value": "SGVhZGVyLTE="}, {"name": "Header-2", "value": None}],
        "key": {"type": "BINARY", "data": "Zm9vYmFy"},
        "value": {"type": "JSON", "data": {"foo": "bar"}},
        "timestamp": AT,
    }
    assert post(record) == [
        {
            "error_code": 200,
            "cluster_id": "cluster-1",
            "topic_name": "test",
            "timestamp": AT,
            "partition_id": 1,
            "offset": 0,
            "key": {"type": "BINARY", "size": 6},
            "value": {"type": "JSON", "size": 13},
        }
    ]
    headers = (("Header-1", b"Header-1"), ("Header-2", None))
    assert log.sent == [NewRecord("test", b"foobar", b'{"foo":"bar"}', 1, AT_MS, headers)]


def test_strings_are_written_without_quotes_and_null_is_no_key_and_a_tombstone(post: Post, log: FakeLog):
    reports = post(
        {"value": {"type": "STRING", "data": "My message"}, "timestamp": AT},
        {"key": {"type": "JSON", "data": "k"}, "value": {"type": "JSON", "data": None}},
        {"key": {"type": "STRING"}},
        {},
    )
    assert [each["error_code"] for each in reports] == [200] * 4
    assert "key" not in reports[0]
    assert reports[1]["value"] == {"type": "JSON", "size": -1}
    assert [(each.key, each.value) for each in log.sent] == [
        (None, b"My message"),
        (b'"k"', None),
        (None, None),
        (None, None),
    ]
    assert all(each.timestamp_ms for each in log.sent)


def test_a_stream_of_records_has_a_report_for_each_in_their_order(post: Post, log: FakeLog):
    records = [
        {"partition_id": number % 3, "value": {"type": "JSON", "data": number}} for number in range(100)
    ]
    together = b"".join(
        json.dumps(each).encode() + (b"\r\n" if number % 2 else b"") for number, each in enumerate(records)
    )
    reports = post(b"\xef\xbb\xbf" + together)
    assert [(each["partition_id"], each["offset"]) for each in reports] == [
        (number % 3, number // 3) for number in range(100)
    ]
    assert [each.value for each in log.sent] == [b"%d" % number for number in range(100)]


def test_invalid_records_are_reported_and_do_not_hold_up_the_others(post: Post, log: FakeLog):
    good = {"value": {"type": "STRING", "data": "a"}}
    reports = post(good, {"value": {"type": "BINARY", "data": 1}}, {"valeu": {}}, 7, None, good, b"{", good)
    assert [each["error_code"] for each in reports] == [200, 400, 400, 400, 400, 200, 400]
    assert reports[1]["message"] == "value.data is not a string in base64"
    assert "what follows was not read" in reports[-1]["message"]
    assert len(log.sent) == 2


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"key": {"type": "BINARY", "subject": "foobar"}}, 400),
        ({"key": {"type": "STRING", "subject_name_strategy": "TOPIC"}}, 400),
        ({"key": {"type": "JSON", "schema": '{"type": "string"}'}}, 400),
        ({"key": {"type": "BINARY", "schema_id": 1}}, 400),
        ({"key": {"type": "BINARY", "schema_version": 1}}, 400),
        ({"key": {"type": "TEXT", "data": "a"}}, 400),
        ({"key": {"type": ["JSON"], "data": "a"}}, 400),
        ({"key": {"type": "STRING", "data": 7}}, 400),
        ({"key": {"type": "BINARY", "data": "fooba"}}, 400),
        ({"key": {"type": "STRING", "data": "\ud800"}}, 400),
        ({"key": "a"}, 400),
        ({"key": {"type": "STRING", "dada": "a"}}, 400),
        ({"key": {"schema_id": 1, "data": 1000}}, 42206),
        ({"value": {"type": "AVRO", "schema": '"string"', "data": "a"}}, 42206),
        ({"value": {"data": "a"}}, 42206),
        ({"partition_id": "A"}, 400),
        ({"partition_id": -1}, 40402),
        ({"partition_id": 3}, 40402),
        ({"timestamp": "soon"}, 400),
        ({"timestamp": 1_612_552_482}, 400),
        ({"timestamp": "1970-01-01T00:00:00Z"}, 400),
        ({"headers": {"a": "b"}}, 400),
        ({"headers": [{"name": "a", "value": "b"}] * 101}, 400),
        ({"headers": [{"name": "a", "value": "*"}]}, 400),
        ({"headers": [{"value": "YQ=="}]}, 400),
        ({"headers": ["a"]}, 400),
        ({"value": {"type": "STRING", "data": "x" * 1_001}}, 413),
    ],
)
def test_faults_have_rest_proxys_codes(post: Post, log: FakeLog, record: dict[str, Any], code: int):
    (report,) = post(record)
    assert (report["error_code"], set(report)) == (code, {"error_code", "message"})
    assert not log.topics["test"][0]


def test_kafkas_errors_are_in_the_reports(post: Post, log: FakeLog):
    record = {"value": {"type": "JSON", "data": 1}}
    (unknown,) = post(record, path="/v3/clusters/c/topics/nowhere/records")
    assert unknown["error_code"] == 40401
    for error, code in (
        (LogUnavailable("away"), 50003),
        (ProduceFailed("NOT_ENOUGH_REPLICAS", "refused", retriable=True), 50003),
        (ProduceFailed("UNKNOWN_SERVER_ERROR", "refused", retriable=False), 50002),
        (ProduceFailed("TOPIC_AUTHORIZATION_FAILED", "refused", retriable=False), 40301),
        (ProduceFailed("POLICY_VIOLATION", "refused", retriable=False), 40002),
    ):
        log.refusals["test"] = error
        assert [each["error_code"] for each in post(record, record)] == [code, code]


def test_reports_say_what_may_have_been_written_and_what_must_not_be_sent_again(post: Post, log: FakeLog):
    """Their codes are REST Proxy's, and it has none for either."""
    refused = ProduceFailed("NOT_ENOUGH_REPLICAS", "refused", retriable=True)
    for error, code, said in (
        (Unacknowledged("it may have been written"), 50003, {"uncertain": True}),
        (Superseded(refused), 50002, {"superseded": True}),
        (refused, 50003, {}),
    ):
        log.refusals["test"] = error
        (report,) = post({"value": {"type": "JSON", "data": 1}})
        assert report == {"error_code": code, "message": str(error), **said}


def test_a_topic_that_is_not_served_is_40301(log: FakeLog):
    function = load_produce(log, served=ServedTopics(write=("other",)))
    answer = function(PATH, {"value": {"type": "JSON", "data": 1}}, headers=JSON)
    assert json.loads(answer["body"])["error_code"] == 40301
    assert log.sent == []


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"", "application/json", 422, 422),
        (b" \r\n", "application/json", 422, 422),
        (b"{}", "application/vnd.kafka.json.v2+json", 415, 415),
        (b"{}", "", 415, 415),
        (b"{}", "application/json; charset=utf-16", 400, 400),
        (b"{}" * 10_001, "application/json", 422, 422),
        (b"{}" + b" " * (6 << 20), "application/json", 413, 413),
    ],
)
def test_faults_of_the_whole_request(log: FakeLog, body: bytes, content_type: str, status: int, code: int):
    answer = load_produce(log)(PATH, body, headers={"Content-Type": content_type})
    assert problem(answer) == (status, code)
    assert log.sent == []


def test_a_charset_and_an_encoded_cluster_are_accepted(log: FakeLog):
    headers = {"Content-Type": "application/json; charset=UTF-8"}
    answer = load_produce(log)(PATH.replace("cluster-1", "a%2Fb"), {}, headers=headers)
    assert json.loads(answer["body"])["cluster_id"] == "a/b"


@pytest.fixture
def post_batch(log: FakeLog) -> PostBatch:
    function = load_produce(log)

    def ask(body: Any) -> tuple[int, dict[str, Any]]:
        answer = function(BATCH_PATH, body, headers=JSON)
        return answer["statusCode"], json.loads(answer["body"])

    return ask


def entry(name: str, text: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": name, "value": {"type": "STRING", "data": text}, **more}


def test_what_was_written_is_listed_apart_from_what_failed(post_batch: PostBatch, log: FakeLog):
    entries = [
        entry("first", timestamp=AT, partition_id=1),
        {"id": "second", "value": {"type": "BINARY", "data": "Message$"}},
        entry("third-3_", "b", timestamp=AT, partition_id=1),
        entry("no-partition", partition_id=7),
    ]
    status, document = post_batch({"entries": entries})
    common = {"cluster_id": "cluster-1", "topic_name": "test", "partition_id": 1, "timestamp": AT}
    value = {"value": {"type": "STRING", "size": 1}}
    assert status == 207
    assert document["successes"] == [
        {"id": "first", **common, "offset": 0, **value},
        {"id": "third-3_", **common, "offset": 1, **value},
    ]
    assert [(each["id"], each["error_code"]) for each in document["failures"]] == [
        ("second", 400),
        ("no-partition", 40402),
    ]
    assert document["failures"][0]["message"] == "value.data is not a string in base64"
    assert log.topics["test"][1] == [(None, b"a"), (None, b"b")]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 422, 42208),
        (b"null", 422, 42208),
        ({}, 422, 42208),
        ({"entries": None}, 422, 42208),
        ({"entries": []}, 422, 42208),
        ({"entries": [entry("a")] * 2}, 422, 42208),
        ({"entries": [entry(f"{number}") for number in range(10_001)]}, 422, 42208),
        ({"entries": [{}]}, 422, 42208),
        ({"entries": [entry("a"), entry("a" * 81)]}, 422, 42208),
        ({"entries": [entry("é")]}, 422, 42208),
        ({"entries": [entry("a\n")]}, 422, 42208),
        ({"entries": [{"id": None}]}, 422, 42208),
        ({"entries": [entry("a")], "records": []}, 422, 422),
        (b"{", 400, 400),
        ([], 400, 400),
        ({"entries": {}}, 400, 400),
        ({"entries": ["a"]}, 400, 400),
        ({"entries": [entry("a"), entry("b", partition_id="A")]}, 400, 400),
        ({"entries": [entry("a"), entry("b", valeu=1)]}, 400, 400),
        ({"entries": [entry("a"), {"id": "b", "value": {"type": "TEXT"}}]}, 400, 400),
        ({"entries": [entry("a"), {"id": "b", "headers": [{"name": "a", "value": "*"}]}]}, 400, 400),
        ({"entries": [entry("a"), {"id": "b", "key": {"type": "JSON", "schema_id": 1}}]}, 400, 400),
    ],
)
def test_a_batch_that_is_wrong_as_a_whole_writes_nothing(
    post_batch: PostBatch, log: FakeLog, body: Any, status: int, code: int
):
    found, document = post_batch(body)
    assert (found, document["status"], document["error_code"]) == (status, status, code)
    assert document["message"] == document["detail"]
    assert log.sent == []


def test_a_batch_that_is_repeated_with_its_key_is_not_written_again(log: FakeLog):
    store = FakeIdempotencyStore()
    function = load_produce(log, guards=Guards(idempotency=lambda: store))
    headers = {**JSON, "Idempotency-Key": '"8e03978e-40d5-43dd-bc93-6894a57f9324"'}
    first, again = (function(BATCH_PATH, {"entries": [entry("a")]}, headers=headers) for _ in range(2))
    assert (first["statusCode"], again["statusCode"], again["body"]) == (207, 207, first["body"])
    assert len(log.sent) == 1


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "data", "name", "value", "a"]), inner, max_size=3)
    ),
    max_leaves=5,
)
FIELDS = st.sampled_from(["partition_id", "headers", "key", "value", "timestamp", "a"])


@given(st.lists(st.dictionaries(FIELDS, ANYTHING, max_size=3) | ANYTHING, min_size=1, max_size=4))
def test_any_json_has_a_report_and_nothing_is_our_fault(documents: list[Any]):
    log = FakeLog()
    log.create("test", 3)
    body = b"\n".join(json.dumps(each).encode() for each in documents)
    answer = load_produce(log)(PATH, body, headers=JSON)
    assert answer["statusCode"] == 200
    reports = [json.loads(report) for report in answer["body"].split("\r\n")[:-1]]
    assert len(reports) == len(documents)
    assert sum(report["error_code"] == 200 for report in reports) == sum(map(len, log.topics["test"]))
