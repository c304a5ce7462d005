"""Rate limits, idempotency keys and schemas over HTTP; the fixture `stack` has the settings."""

from __future__ import annotations

import json

import pytest
from tests.e2e.client import path_of
from tests.servers.own import create_topic, records_of
from tests.support.builders import a_topic


@pytest.fixture
def topic(stack):
    """Return a function that creates a topic with this prefix."""

    def make(prefix: str) -> str:
        name = prefix + a_topic()
        create_topic(stack.kafka_bootstrap, name, 1)
        return name

    return make


def push(client, records, **headers):
    body = json.dumps({"records": records, "wait_for_send": True}).encode()
    return client.request("POST", "/push", body, Content_Type="application/json", **headers)


def test_a_topic_accepts_writes_up_to_its_limit_and_says_when_to_retry(client, stack, topic):
    name, other = topic("limited-"), topic("limited-")
    for left in range(5, -1, -1):
        answer = client.request("PUT", path_of(name, b"k"), b"v")
        assert (answer.status, answer.headers["RateLimit-Remaining"]) == (201, str(left))
    refused = client.request("PUT", path_of(name, b"k"), b"v")
    assert (refused.status, refused.json["type"]) == (429, "urn:keylane:problem:rate-limited")
    assert (refused.json["code"], refused.headers["RateLimit-Limit"]) == ("THROTTLING_QUOTA_EXCEEDED", "1")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert "burst=6;" in refused.headers["RateLimit-Policy"]
    records = [{"topic": each, "data": "1"} for each in (name, other)]
    mixed = push(client, records)
    assert (mixed.status, [entry["error"] for entry in mixed.json["errors"]]) == (422, [True, False])
    assert mixed.headers["Retry-After"] is None
    assert len(records_of(stack.kafka_bootstrap, name, 0)) == 6
    assert len(records_of(stack.kafka_bootstrap, other, 0)) == 1


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_repeated_write_with_an_idempotency_key_gets_the_saved_response(client, stack, topic, method):
    name = topic("")
    headers = {"Idempotency_Key": name}
    first = client.request(method, path_of(name, b"k"), b"v", **headers)
    again = client.request(method, path_of(name, b"k"), b"v", **headers)
    assert first.json["position"] == "0:0"
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["Keylane-Position"] == "0:0"
    assert (first.headers["Idempotency-Replayed"], again.headers["Idempotency-Replayed"]) == (None, "true")
    other = client.request(method, path_of(name, b"k"), b"w", **headers)
    assert (other.status, other.json["type"]) == (422, "urn:keylane:problem:idempotency-key-reused")
    assert len(records_of(stack.kafka_bootstrap, name, 0)) == 1


def test_a_value_that_violates_its_schema_is_rejected_with_the_path(client, topic):
    name = topic("checked-")
    refused = client.request("PUT", path_of(name, b"k"), b'{"n": [1]}')
    assert (refused.status, refused.json["type"]) == (422, "urn:keylane:problem:value-invalid")
    assert (refused.json["path"], refused.json["code"]) == ("/n", "INVALID_RECORD")
    answer = push(client, [{"topic": name, "data": data} for data in ('{"n": 1}', '{"n": "1"}')])
    assert (answer.status, answer.json["positions"]) == (422, ["0:0", None])
    assert answer.json["errors"][1]["path"] == "/n"
