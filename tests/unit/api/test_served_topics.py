"""KEYLANE_TOPICS, _BASE_PATH, _CORS_ORIGIN: what clients may read and write, under which path, from where.

Nothing else is set: a request that passes is answered 500 `misconfigured`, one that does not is answered 403.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import an_event, load_handler, load_produce
from tests.support.fakes import FakeKafka, FakeLog, FakeTime

from keylane.config.api import ApiSettings
from keylane.errors import SettingsError
from keylane.explore.topics import TopicsRequest, list_topics
from keylane.model.routes import PermissionKind
from keylane.model.served_topics import ALL_TOPICS, ServedTopics
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

READ, WRITE = PermissionKind.READ, PermissionKind.WRITE
TOPICS = {"read": ["orders*", "customers", "__consumer_offsets"], "write": ["orders*"]}
RECORDS = json.dumps({"records": [{"value": "v"}]}).encode()
AVRO = {"Content-Type": "application/vnd.kafka.avro.v2+json"}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any]]]:
    for name in ("KEYLANE_REDIS_NODES", "KEYLANE_KAFKA_BOOTSTRAP", "KEYLANE_SCHEMA_REGISTRY_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KEYLANE_TOPICS", json.dumps(TOPICS))
    functions = {name: load_handler(name) for name in ("query", "explore", "produce")}

    def request(function: str, method: str, path: str, **event: Any) -> tuple[int, dict[str, Any]]:
        answer = functions[function].lambda_handler(an_event(method, path, **event), None)
        return answer["statusCode"], json.loads(answer["body"])

    return request


@pytest.mark.parametrize(
    ("function", "method", "path", "query"),
    [
        ("query", "GET", "/topics/{}/keys/k", None),
        ("query", "GET", "/topics/{}/keys", None),
        ("query", "GET", "/topics/{}/count", None),
        ("query", "GET", "/topics/{}/keys/k/history", None),
        ("query", "POST", "/topics/{}/keys:read", None),
        ("explore", "GET", "/topics/{}", None),
        ("query", "GET", "/join/k", {"topics": "orders,{}"}),
        ("query", "GET", "/metadata/partitions", {"topic": "{}"}),
        ("explore", "GET", "/topics/{}/partitions", None),
        ("explore", "GET", "/topics/{}/partitions/0", None),
        ("explore", "GET", "/topics/{}/partitions/0/offsets", None),
        ("explore", "GET", "/topics/{}/schemas", None),
        ("explore", "GET", "/topics/{}/partitions/0/records", None),
        ("explore", "GET", "/v3/clusters/c/topics/{}", None),
        ("explore", "GET", "/v3/clusters/c/topics/{}/configs", None),
        ("explore", "GET", "/v3/clusters/c/topics/{}/configs/cleanup.policy", None),
        ("explore", "GET", "/v3/clusters/c/topics/{}/partitions/0/replicas", None),
        ("explore", "GET", "/v3/clusters/c/topics/{}/partitions/0/replicas/1", None),
        ("explore", "GET", "/v3/clusters/c/topics/{}/partitions", None),
        ("explore", "GET", "/v3/clusters/c/topics/{}/partitions/0", None),
        ("explore", "GET", "/v3/clusters/c/topics/{}/partitions/0/offset", None),
    ],
)
def test_every_read_of_a_topic_that_is_not_served_is_refused(
    ask: Callable[..., tuple[int, dict[str, Any]]],
    function: str,
    method: str,
    path: str,
    query: dict[str, str] | None,
):
    def status(topic: str) -> tuple[int, str]:
        filled = {name: value.format(topic) for name, value in query.items()} if query else None
        found, problem = ask(function, method, path.format(topic), query=filled)
        return found, problem["type"].removeprefix("urn:keylane:problem:")

    assert status("payments") == (403, "topic-not-served")
    assert status("_schemas") == (403, "topic-not-served")
    assert status("__transaction_state") == (403, "topic-not-served")
    for served in ("orders", "orders.eu", "customers", "__consumer_offsets"):
        assert status(served) == (500, "misconfigured")


@pytest.mark.parametrize("path", ["/metadata/partitions", "/join/k"])
def test_request_that_names_no_topic_is_left_to_its_handler(
    ask: Callable[..., tuple[int, dict[str, Any]]], path: str
):
    assert ask("query", "GET", path)[1]["type"] == "urn:keylane:problem:misconfigured"


def test_answer_names_the_topic_and_the_setting(ask: Callable[..., tuple[int, dict[str, Any]]]):
    _, problem = ask("query", "GET", "/topics/payments/keys/k")
    assert problem["detail"].startswith("topic 'payments' can't be read here")
    assert "KEYLANE_TOPICS" in problem["detail"]
    assert problem["code"] == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("topic", ["payments", "customers", "_schemas", "__consumer_offsets"])
def test_every_write_to_a_topic_that_is_not_served_is_refused(topic: str):
    log = FakeLog()
    post = load_produce(log, served=ServedTopics(("*",), ("orders*",)))
    for method, path in (("PUT", f"/topics/{topic}/keys/k"), ("DELETE", f"/topics/{topic}/keys/k")):
        answer = post(path, b"v", method)
        assert (answer["statusCode"], json.loads(answer["body"])["type"]) == (
            403,
            "urn:keylane:problem:topic-not-served",
        )
    pushed = post("/push", {"records": [{"topic": topic, "data": "v"}], "wait_for_send": True})
    assert pushed["statusCode"] == 403
    [error] = json.loads(pushed["body"])["errors"]
    assert (error["code"], error["field"], error["retriable"]) == (
        "TOPIC_AUTHORIZATION_FAILED",
        "topic",
        False,
    )
    assert log.sent == []


@pytest.mark.parametrize("path", ["/topics/payments", "/topics/payments/partitions/0"])
def test_rest_proxy_s_clients_get_its_code_before_a_schema_is_registered(
    ask: Callable[..., tuple[int, dict[str, Any]]], path: str
):
    status, problem = ask("produce", "POST", path, body=RECORDS, headers=AVRO)
    assert (status, problem["error_code"]) == (403, 40301)
    status, problem = ask("produce", "POST", path.replace("payments", "orders"), body=RECORDS, headers=AVRO)
    assert problem["type"] == "urn:keylane:problem:misconfigured"


def test_lists_of_topics_leave_out_what_is_not_served():
    kafka = FakeKafka()
    for name in ("orders", "payments", "_schemas", "__consumer_offsets"):
        kafka.create(name, 1)

    def names(served: ServedTopics) -> list[str]:
        deadline = Deadline.after_ms(100, FakeTime().clock)
        page = list_topics(kafka, served, TopicsRequest("", "", 10), deadline)
        return [name for name, _ in page.topics]

    assert names(ALL_TOPICS) == ["orders", "payments"]
    assert names(ServedTopics(("orders", "_schemas"))) == ["_schemas", "orders"]
    assert names(ServedTopics(("_*",))) == ["__consumer_offsets", "_schemas"]
    assert names(ServedTopics(())) == []


@pytest.mark.parametrize(
    ("patterns", "topic", "is_served"),
    [
        (("*",), "orders", True),
        (("*",), "_schemas", False),
        (("*", "_schemas"), "_schemas", True),
        (("_*",), "__consumer_offsets", True),
        (("_*",), "orders", False),
        (("orders.*",), "orders", False),
        (("orders.*",), "ordersXeu", False),
        ((), "orders", False),
    ],
)
def test_internal_topics_need_a_pattern_of_their_own(patterns: tuple[str, ...], topic: str, is_served: bool):
    assert ServedTopics(patterns, ()).is_served(topic) is is_served
    assert ServedTopics((), patterns).is_served(topic, WRITE) is is_served
    assert not ServedTopics((), patterns).is_served(topic, READ)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("[]", "is not a JSON object"),
        ('{"reed": []}', "has 'reed'"),
        ('{"read": "orders"}', "has a field read that is not an array of patterns"),
        ('{"write": [""]}', "has a field write that is not an array of patterns"),
        ('{"write": [1]}', "has a field write"),
    ],
)
def test_wrong_lists_are_named(given: str, fault: str):
    with pytest.raises(SettingsError, match="KEYLANE_TOPICS") as caught:
        ApiSettings.from_environment({"KEYLANE_TOPICS": given})
    assert fault in str(caught.value)


def test_wrong_setting_serves_nothing(ask: Callable[..., tuple[int, dict[str, Any]]], monkeypatch: Any):
    monkeypatch.setenv("KEYLANE_TOPICS", "orders")
    status, problem = ask("query", "GET", "/topics/orders/keys/k")
    assert (status, problem["type"]) == (500, "urn:keylane:problem:misconfigured")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/kafka/v1/topics/orders/keys/k", 500),
        ("/topics/orders/keys/k", 500),
        ("/kafka/v1/topics/payments/keys/k", 403),
        ("/kafka/v1x/topics/orders/keys/k", 404),
        ("/kafka/v1", 404),
        ("/v1/topics/orders/keys/k", 404),
    ],
)
def test_base_path_of_a_custom_domain_is_not_part_of_the_route(
    ask: Callable[..., tuple[int, dict[str, Any]]], monkeypatch: Any, path: str, status: int
):
    monkeypatch.setenv("KEYLANE_BASE_PATH", "/kafka/v1")
    assert ask("query", "GET", path)[0] == status


@pytest.mark.parametrize("given", ["kafka", "/kafka/", "/a//b", "/a b", "/%2F"])
def test_wrong_base_path_is_named(given: str):
    with pytest.raises(SettingsError, match="KEYLANE_BASE_PATH is not a path like"):
        ApiSettings.from_environment({"KEYLANE_BASE_PATH": given})


def headers_of(function: str, method: str, path: str) -> dict[str, list[str]]:
    answer = load_handler(function).lambda_handler(an_event(method, path), None)
    return dict(answer["multiValueHeaders"])


@pytest.mark.parametrize("path", ["/topics/hidden/keys/k", "/nowhere", "/health"])
def test_an_answer_names_the_origin_whose_pages_may_read_it_whatever_it_says(
    monkeypatch: pytest.MonkeyPatch, path: str
):
    monkeypatch.setenv("KEYLANE_TOPICS", json.dumps({"read": []}))
    assert "Access-Control-Allow-Origin" not in headers_of("query", "GET", path)
    monkeypatch.setenv("KEYLANE_CORS_ORIGIN", "https://app.example.org")
    found = headers_of("query", "GET", path)
    assert found["Access-Control-Allow-Origin"] == ["https://app.example.org"]
    assert found["Access-Control-Expose-Headers"] == ["*"]


@pytest.mark.parametrize(
    "given", ["app.example.org", "https://a.example/", "https://a.example,https://b.example"]
)
def test_wrong_origin_is_named(given: str):
    with pytest.raises(SettingsError, match="KEYLANE_CORS_ORIGIN is not"):
        ApiSettings.from_environment({"KEYLANE_CORS_ORIGIN": given})
