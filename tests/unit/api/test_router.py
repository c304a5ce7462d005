"""Routes: each kind of unknown path or method gets its own problem document."""

from __future__ import annotations

import json
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from localstack_process_executor.runtime_api import MAX_ANSWER_BYTES
from tests.support.builders import an_application, an_event, headers_of, load_handler

from keylane.api.http.gateway import answer
from keylane.api.http.response import Response
from keylane.api.http.router import Operations
from keylane.api.reads.clusters import CLUSTERS_SCHEMA
from keylane.config.api import ApiSettings
from keylane.errors import StateUnavailable
from keylane.model.routes import find

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(params=["query", "produce"])
def handler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.delenv("KEYLANE_REDIS_NODES", raising=False)
    monkeypatch.delenv("KEYLANE_KAFKA_BOOTSTRAP", raising=False)
    return load_handler(request.param)


def own_method(handler: ModuleType) -> str:
    return "GET" if handler.__name__ == "keylane_query_handler" else "PUT"


def problem(answer: dict[str, Any]) -> tuple[int, str]:
    assert headers_of(answer)["Content-Type"] == "application/problem+json"
    document = json.loads(answer["body"])
    assert document["instance"] == "request-1"
    return answer["statusCode"], document["type"].removeprefix("urn:keylane:problem:")


@pytest.mark.parametrize(
    "path", ["/", "", "/topics", "/topics/t/", "/topics/t/key/k", "/topics/t/keys/a/b", "/other", "//"]
)
def test_unknown_route_is_told(handler: ModuleType, path: str):
    answer = handler.lambda_handler(an_event(own_method(handler), path), None)
    assert problem(answer) == (404, "unknown-route")


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS", "TRACE", "QUERY"])
def test_wrong_method_is_told_with_those_that_are_right(handler: ModuleType, method: str):
    answer = handler.lambda_handler(an_event(method, "/topics/t/keys/k"), None)
    assert problem(answer) == (405, "wrong-method")
    assert headers_of(answer)["Allow"] == "GET, HEAD, PUT, DELETE"


@pytest.mark.parametrize("path", ["/topics/t/keys/", "/topics/t/keys//"])
def test_empty_key_has_its_own_answer(handler: ModuleType, path: str):
    answer = handler.lambda_handler(an_event(own_method(handler), path), None)
    assert problem(answer) == (400, "empty-key")


def test_empty_topic_is_named(handler: ModuleType):
    answer = handler.lambda_handler(an_event(own_method(handler), "/topics//keys/k"), None)
    assert problem(answer) == (400, "bad-request")
    assert json.loads(answer["body"])["parameter"] == "topic"


def test_missing_settings_are_an_answer_and_a_log_line(handler: ModuleType, caplog: pytest.LogCaptureFixture):
    answer = handler.lambda_handler(an_event(own_method(handler), "/topics/t/keys/k", body=b"v"), None)
    assert problem(answer) == (500, "misconfigured")
    assert "KEYLANE_" in caplog.text
    assert "KEYLANE_" not in answer["body"]


@pytest.mark.parametrize("event", [{}, {"httpMethod": "GET"}, {"Records": []}, [], None])
def test_event_of_another_kind_is_no_crash(handler: ModuleType, event: Any, caplog: pytest.LogCaptureFixture):
    answer = handler.lambda_handler(event, None)
    assert answer["statusCode"] == 500
    assert json.loads(answer["body"])["type"] == "urn:keylane:problem:internal"
    # Not by the text: a logger of PySpark in an earlier test changes its format.
    assert any(record.exc_info for record in caplog.records)


def answer_with(body: str | bytes) -> dict[str, Any]:
    operations = Operations("explore")

    @operations.operation(CLUSTERS_SCHEMA)
    def get_clusters(*_: Any) -> Response:
        return Response(200, "text/plain", body)

    return answer(an_application(operations, None, ApiSettings()), an_event("GET", "/clusters"), None)


class Read:
    """What a request has read: megabytes, perhaps."""


@pytest.mark.usefixtures("no_collector")
def test_an_answered_error_keeps_nothing_of_its_request():
    operations, freed = Operations("explore"), []

    @operations.operation(CLUSTERS_SCHEMA)
    def get_clusters(*_: Any) -> Response:
        read = Read()
        freed.append(weakref.ref(read))
        first = StateUnavailable("away")
        try:
            raise first
        except StateUnavailable as error:
            last = StateUnavailable("still away")
            raise last from error

    assert (
        answer(an_application(operations, None, ApiSettings()), an_event("GET", "/clusters"), None)[
            "statusCode"
        ]
        == 503
    )
    assert freed[0]() is None


@pytest.mark.parametrize(
    "body",
    ["x" * 5_990_000, '"' * 2_990_000, "д" * 990_000, "\U0001f600" * 490_000, b"\xff" * 4_490_000],
    ids=["letters", "quotes", "cyrillic", "astral", "bytes"],
)
def test_what_an_answer_can_hold_goes_through_as_lambda_counts_it(body: str | bytes):
    answer = answer_with(body)
    assert answer["statusCode"] == 200
    assert 5_000_000 < len(json.dumps(answer)) < MAX_ANSWER_BYTES


@pytest.mark.parametrize(
    "body",
    ["x" * 6_300_000, '"' * 3_150_000, "д" * 1_050_000, "\U0001f600" * 525_000, b"\xff" * 4_725_000],
    ids=["letters", "quotes", "cyrillic", "astral", "bytes"],
)
def test_what_lambda_would_refuse_is_told_with_its_size(body: str | bytes):
    answer = answer_with(body)
    assert problem(answer) == (413, "answer-too-large")
    assert "the limit is 6000000" in json.loads(answer["body"])["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status", "word"),
    [
        ("POST", "/consumers/group", 404, "raw records"),
        ("DELETE", "/consumers/group/instances/me", 404, "raw records"),
        ("GET", "/v3/clusters/c/acls", 404, "REST Proxy v3"),
        ("POST", "/v3/clusters/c/topics", 405, "GET, HEAD"),
    ],
)
def test_what_rest_proxy_has_and_keylane_has_not_is_refused_with_rest_proxys_members(
    method: str, path: str, status: int, word: str
):
    function = load_handler(find(method, path).function)
    answer = function.lambda_handler(an_event(method, path, body=b"{}"), None)
    document = json.loads(answer["body"])
    assert (answer["statusCode"], document["error_code"]) == (status, status)
    assert document["message"] == document["detail"]
    assert word in document["detail"]
