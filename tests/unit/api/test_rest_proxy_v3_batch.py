"""POST /v3/clusters/{cluster}/topics/{topic}/records:batch: REST Proxy v3's batches, over a fake log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import load_produce
from tests.support.fakes import FakeIdempotencyStore, FakeLog

from keylane.errors import LogUnavailable, ProduceFailed
from keylane.produce.guards import Guards

if TYPE_CHECKING:
    from collections.abc import Callable

    Post = Callable[[Any], tuple[int, dict[str, Any]]]

PATH = "/v3/clusters/cluster-1/topics/test/records:batch"
JSON = {"Content-Type": "application/json"}
AT = "2021-02-05T19:14:42Z"


@pytest.fixture
def post(log: FakeLog) -> Post:
    function = load_produce(log)

    def ask(body: Any) -> tuple[int, dict[str, Any]]:
        answer = function(PATH, body, headers=JSON)
        return answer["statusCode"], json.loads(answer["body"])

    return ask


def entry(name: str, text: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": name, "value": {"type": "STRING", "data": text}, **more}


def test_what_was_written_is_listed_apart_from_what_failed(post: Post, log: FakeLog):
    entries = [
        entry("first", timestamp=AT, partition_id=1),
        {"id": "second", "value": {"type": "BINARY", "data": "Message$"}},
        entry("third-3_", "b", timestamp=AT, partition_id=1),
        entry("no-partition", partition_id=7),
    ]
    status, document = post({"entries": entries})
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
    post: Post, log: FakeLog, body: Any, status: int, code: int
):
    found, document = post(body)
    assert (found, document["status"], document["error_code"]) == (status, status, code)
    assert document["message"] == document["detail"]
    assert log.sent == []


def test_kafkas_errors_are_failures_with_rest_proxys_codes(post: Post, log: FakeLog):
    for error, code in (
        (LogUnavailable("away"), 50003),
        (ProduceFailed("UNKNOWN_SERVER_ERROR", "refused", retriable=False), 50002),
        (ProduceFailed("TOPIC_AUTHORIZATION_FAILED", "refused", retriable=False), 40301),
    ):
        log.refusals["test"] = error
        status, document = post({"entries": [entry("a"), entry("b")]})
        assert (status, document["successes"]) == (207, [])
        assert [(each["id"], each["error_code"]) for each in document["failures"]] == [
            ("a", code),
            ("b", code),
        ]


def test_a_batch_that_is_repeated_with_its_key_is_not_written_again(log: FakeLog):
    store = FakeIdempotencyStore()
    function = load_produce(log, guards=Guards(idempotency=lambda: store))
    headers = {**JSON, "Idempotency-Key": '"8e03978e-40d5-43dd-bc93-6894a57f9324"'}
    first, again = (function(PATH, {"entries": [entry("a")]}, headers=headers) for _ in range(2))
    assert (first["statusCode"], again["statusCode"], again["body"]) == (207, 207, first["body"])
    assert len(log.sent) == 1
