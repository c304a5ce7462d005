"""POST /push: kprf's requests and answers, over a fake log, and what invites no client to send it again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import headers_of, load_produce
from tests.support.fakes import FakeLog, FakeRateLimiter
from tests.support.http_doubles import over_http

from keylane import routing
from keylane.errors import LogUnavailable, ProduceFailed, Unacknowledged
from keylane.model.records import NewRecord
from keylane.produce.guards import Guards
from keylane.produce.rate_limits import Rate, RateLimits, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from keylane.errors import KeylaneError

    Post = Callable[..., dict[str, Any]]


@pytest.fixture
def push(log: FakeLog) -> Post:
    post = load_produce(log)
    return lambda body: post("/push", body)


def told(answer: dict[str, Any]) -> dict[str, Any]:
    assert headers_of(answer)["Content-Type"] == "application/json"
    document: dict[str, Any] = json.loads(answer["body"])
    return document


def problem(answer: dict[str, Any]) -> tuple[int, str]:
    assert headers_of(answer)["Content-Type"] == "application/problem+json"
    return answer["statusCode"], json.loads(answer["body"]).get("parameter")


@pytest.mark.parametrize("wait_for_send", [{"wait_for_send": False}, {"wait_for_send": True}, {}])
def test_the_request_of_kprfs_readme_is_answered_as_there(push: Post, log: FakeLog, wait_for_send: dict):
    answer = push({"records": [{"topic": "SOME_TOPIC", "data": '{"a": "b"}'}], **wait_for_send})
    document = told(answer)
    assert answer["statusCode"] == 200
    assert (document["status"], document["errors"]) == ("ok", [])
    assert log.sent == [NewRecord("SOME_TOPIC", None, b'{"a": "b"}')]


def test_positions_come_in_the_order_of_the_records(push: Post):
    records = [{"topic": "SOME_TOPIC", "key": f"k{number}", "data": "1"} for number in range(3)]
    partitions = [routing.partition_for(b"k%d" % number, 9) for number in range(3)]
    positions = told(push({"records": [*records, {**records[0], "partition": 8}]}))["positions"]
    assert positions[:3] == [f"{partition}:0" for partition in partitions]
    assert positions[3].startswith("8:")


def test_one_records_error_does_not_hide_the_others_and_has_kprfs_form(push: Post):
    records = [
        {"topic": "SOME_TOPIC", "key": "a", "data": "1"},
        {"topic": "nowhere", "key": "b", "data": "2"},
        {"topic": "SOME_TOPIC", "key": "c", "data": "x" * 1_001},
        {"topic": "SOME_TOPIC", "partition": 9, "data": "4"},
        {"topic": "no topic", "data": "5"},
    ]
    answer = push({"records": records})
    document = told(answer)
    assert (answer["statusCode"], document["status"]) == (413, "err")
    good, *failed = document["errors"]
    assert good == {"status": "ok", "error": False, "message": None}
    assert all(entry["error"] is True and entry["status"] == "error" for entry in failed)
    assert [(entry["index"], entry["field"], entry["code"], entry["retriable"]) for entry in failed] == [
        (1, "topic", "UNKNOWN_TOPIC_OR_PARTITION", False),
        (2, "data", "MESSAGE_TOO_LARGE", False),
        (3, "partition", "UNKNOWN_TOPIC_OR_PARTITION", False),
        (4, "topic", "INVALID_TOPIC_EXCEPTION", False),
    ]
    assert "the limit is 1000" in failed[1]["message"]
    assert [bool(position) for position in document["positions"]] == [True, False, False, False, False]


def test_uncertain_records_are_reported_with_the_time_to_retry(push: Post, log: FakeLog):
    log.refusals = {
        "hangs": Unacknowledged(),
        "refuses": ProduceFailed("NOT_ENOUGH_REPLICAS", "Kafka refused the record", retriable=True),
    }
    answer = push({"records": [{"topic": topic, "data": "1"} for topic in ("hangs", "refuses")]})
    assert (answer["statusCode"], headers_of(answer)["Retry-After"]) == (503, "1")
    first, second = told(answer)["errors"]
    assert (first["code"], first["retriable"], first["uncertain"]) == ("REQUEST_TIMED_OUT", True, True)
    assert (second["code"], second["retriable"], "uncertain" in second) == (
        "NOT_ENOUGH_REPLICAS",
        True,
        False,
    )


def test_no_records_are_no_error(push: Post, log: FakeLog):
    assert told(push({"records": []})) == {"status": "ok", "errors": [], "positions": []}
    assert not log.sent


def test_fields_may_be_null_and_unknown_ones_are_ignored(push: Post, log: FakeLog):
    record = {"topic": "SOME_TOPIC", "data": "1", "key": None, "partition": None, "other": [1]}
    assert told(push({"records": [record], "wait_for_send": None, "more": 1}))["status"] == "ok"
    assert log.sent == [NewRecord("SOME_TOPIC", None, b"1")]


def test_partition_minus_1_means_no_partition_as_in_librdkafka(push: Post, log: FakeLog):
    assert told(push({"records": [{"topic": "SOME_TOPIC", "data": "1", "partition": -1}]}))["status"] == "ok"
    assert log.sent[0].partition is None
    document = told(push({"records": [{"topic": "SOME_TOPIC", "data": "1", "partition": -2}]}))
    assert document["errors"][0]["field"] == "partition"


def test_empty_keys_and_data_are_kept_apart_from_missing_ones(push: Post, log: FakeLog):
    push({"records": [{"topic": "SOME_TOPIC", "key": "", "data": ""}]})
    assert log.sent == [NewRecord("SOME_TOPIC", b"", b"")]


GOOD = {"topic": "SOME_TOPIC", "data": "1"}


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"\xff\xfe{", "body"),
        (b"[" * 100_000, "body"),
        (b'{"records": [NaN]}', "body"),
        (b'{"records": [1e999]}', "body"),
        (b"9" * 5_000, "body"),
        ([], "body"),
        (None, "body"),
        ({}, "records"),
        ({"records": None}, "records"),
        ({"records": {}}, "records"),
        ({"records": [GOOD] * 10_001}, "records"),
        ({"records": [GOOD | {"topic": f"t{number}"} for number in range(101)]}, "records"),
        ({"records": [GOOD, 7]}, "records[1]"),
        ({"records": [GOOD, {"data": "1"}]}, "records[1].topic"),
        ({"records": [GOOD, GOOD | {"topic": 1}]}, "records[1].topic"),
        ({"records": [{"topic": "SOME_TOPIC"}]}, "records[0].data"),
        ({"records": [GOOD | {"data": None}]}, "records[0].data"),
        ({"records": [GOOD | {"data": {"a": 1}}]}, "records[0].data"),
        ({"records": [GOOD | {"data": "\ud800"}]}, "records[0].data"),
        ({"records": [GOOD | {"key": 1}]}, "records[0].key"),
        ({"records": [GOOD | {"partition": "1"}]}, "records[0].partition"),
        ({"records": [GOOD | {"partition": True}]}, "records[0].partition"),
        ({"records": [GOOD | {"partition": 1.0}]}, "records[0].partition"),
        ({"records": [GOOD | {"partition": 2**31}]}, "records[0].partition"),
        ({"records": [GOOD], "wait_for_send": "yes"}, "wait_for_send"),
    ],
)
def test_body_that_is_wrong_is_refused_whole_with_the_place(
    push: Post, log: FakeLog, body: Any, parameter: str
):
    answer = push(body)
    assert problem(answer) == (400, parameter)
    assert "no record was written" in json.loads(answer["body"])["detail"]
    assert not log.sent
    if parameter.startswith("records["):
        assert json.loads(answer["body"])["index"] == int(parameter[8])


def test_body_over_lambdas_limit_is_413(push: Post, log: FakeLog):
    answer = push(b'{"records": [], "x": "' + b"x" * (6 * 1024 * 1024) + b'"}')
    assert (answer["statusCode"], json.loads(answer["body"])["type"]) == (
        413,
        "urn:keylane:problem:body-too-large",
    )
    assert not log.sent


def test_as_many_records_as_may_be_are_taken_at_once(push: Post, log: FakeLog):
    document = told(push({"records": [GOOD] * 10_000}))
    assert (document["status"], len(document["positions"]), len(log.sent)) == ("ok", 10_000, 10_000)


def test_answer_about_many_failures_stays_below_lambdas_limit(push: Post):
    answer = push({"records": [{"topic": "t" * 249, "data": "1"}] * 10_000})
    assert (answer["statusCode"], len(told(answer)["errors"])) == (404, 10_000)
    assert len(json.dumps(answer)) < 5 * 1024 * 1024


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
RECORDS = st.fixed_dictionaries(
    {"topic": st.text(max_size=5) | JSON_VALUES, "data": st.text(max_size=5) | JSON_VALUES},
    optional={"key": st.text(max_size=5) | JSON_VALUES, "partition": st.integers() | JSON_VALUES},
)


@given(st.lists(RECORDS, max_size=3) | JSON_VALUES, JSON_VALUES)
def test_any_json_is_answered_and_nothing_is_our_fault(records: Any, wait_for_send: Any):
    log = FakeLog()
    answer = load_produce(log)("/push", {"records": records, "wait_for_send": wait_for_send})
    assert answer["statusCode"] < 500
    if answer["statusCode"] == 400 and headers_of(answer)["Content-Type"] == "application/problem+json":
        assert not log.sent


FULL = RateLimits(
    (Rule("limited", (Rate("records", 1, 1),)),), (), FakeRateLimiter({("limited", "records"): 0})
)
WRITTEN, LIMITED = {"topic": "good", "data": "1"}, {"topic": "limited", "data": "1"}
STOCK = urllib3.Retry(
    3,
    allowed_methods=None,
    status_forcelist=(429, 500, 502, 503, 504),
    raise_on_status=False,
    retry_after_max=0,
)
"""What urllib3's documentation shows, for POST too. It does not wait, to save the test's time."""
REFUSALS = [
    LogUnavailable("Kafka is away"),
    ProduceFailed("NOT_ENOUGH_REPLICAS", "Kafka refused the record", retriable=True),
    ProduceFailed("UNKNOWN_SERVER_ERROR", "Kafka refused the record", retriable=False),
]


@pytest.fixture
def post(log: FakeLog) -> Callable[..., dict[str, Any]]:
    return load_produce(log, guards=Guards(limits=FULL))


def test_a_stock_retry_sends_no_record_twice(log: FakeLog):
    post = load_produce(log, guards=Guards(limits=FULL))
    handler = lambda event, _: post(event["path"], event["body"].encode())  # noqa: E731
    with over_http(handler) as url, urllib3.PoolManager(retries=STOCK) as client:
        answer = client.request(
            "POST", f"{url}/push", json={"records": [WRITTEN, LIMITED], "wait_for_send": True}
        )
    assert [entry["error"] for entry in answer.json()["errors"]] == [False, True]
    assert [record.topic for record in log.sent] == ["good"]


def test_a_stock_retry_repeats_a_push_of_which_nothing_was_written(log: FakeLog):
    post = load_produce(log, guards=Guards(limits=FULL))
    calls: list[Any] = []
    handler = lambda event, _: calls.append(1) or post(event["path"], event["body"].encode())  # noqa: E731
    with over_http(handler) as url, urllib3.PoolManager(retries=STOCK) as client:
        answer = client.request("POST", f"{url}/push", json={"records": [LIMITED]})
    assert (answer.status, len(calls), log.sent) == (429, 4, [])


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal).partition(":")[0])
def test_a_partly_written_push_has_a_status_that_no_client_retries(
    post: Callable[..., dict[str, Any]], log: FakeLog, refusal: KeylaneError
):
    log.refusals = {"away": refusal}
    answer = post("/push", {"records": [WRITTEN, {"topic": "away", "data": "1"}], "wait_for_send": True})
    assert answer["statusCode"] == 422
    assert "Retry-After" not in headers_of(answer)
    document = json.loads(answer["body"])
    assert (document["status"], document["positions"]) == ("err", ["0:0", None])
    assert post("/push", {"records": [{"topic": "away", "data": "1"}]})["statusCode"] in {502, 503}


def test_a_fault_of_the_request_keeps_its_status_where_a_part_was_written(
    post: Callable[..., dict[str, Any]],
):
    assert post("/push", {"records": [WRITTEN, {"topic": "nowhere", "data": "1"}]})["statusCode"] == 404
