"""POST /mcp as a transport: versions, headers, ids, batches, bodies of any kind, pages of other sites."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from tests.support.agents import STATELESS_META, Agent, a_message, mcp_request, stateless
from tests.support.builders import an_application, query_parts_over
from tests.support.indexed_state import IndexedState

from keylane.api.mcp import versions
from keylane.api.mcp.messages import MOST_MESSAGES
from keylane.api.mcp.protocol import BODY_LIMIT_BYTES
from keylane.app import query
from keylane.config.api import ApiSettings

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022


def an_agent(**settings: Any) -> Agent:
    parts = query_parts_over(IndexedState())
    return Agent(an_application(query.OPERATIONS, parts, ApiSettings(**settings)))


def error_of(response: Any) -> tuple[int, int, Any]:
    """Return the status, the error's code, and the id."""
    document = json.loads(response.body)
    assert response.headers["Content-Type"] == "application/json"
    assert "result" not in document
    return response.status_code, document["error"]["code"], document["id"]


def result_of(response: Any) -> Any:
    assert response.status_code == 200, response.body
    return json.loads(response.body)["result"]


@pytest.mark.parametrize(
    ("asked", "negotiated"),
    [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2999-01-01", "2025-11-25"),
    ],
)
def test_initialize_negotiates_a_version(asked: str, negotiated: str):
    message = a_message("initialize", protocolVersion=asked, capabilities={}, clientInfo={"name": "a"})
    response = an_agent().post(message)
    result = result_of(response)
    assert result["protocolVersion"] == negotiated
    assert result["capabilities"] == {"tools": {}}
    assert result["serverInfo"]["name"] == "keylane"
    assert "resultType" not in result
    assert "Mcp-Session-Id" not in response.headers


@pytest.mark.parametrize("version", versions.NEGOTIATED)
def test_a_notification_is_accepted_without_an_answer(version: str):
    message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    response = an_agent().post(message, mcp_protocol_version=version)
    assert (response.status_code, response.body) == (202, "")


@pytest.mark.parametrize("message_id", [0, 1, -7, 2**63, "", "a", "\u00e9", "x" * 1_000])
def test_a_ping_is_answered_with_its_id(message_id: Any):
    response = an_agent().post(a_message("ping", message_id))
    assert json.loads(response.body) == {"jsonrpc": "2.0", "id": message_id, "result": {}}


@pytest.mark.parametrize("message_id", [None, 1.5, True, [1], {"a": 1}, "x" * 1_001, 2**65])
def test_an_id_of_another_type_is_refused(message_id: Any):
    assert error_of(an_agent().post(a_message("ping", message_id))) == (400, INVALID_REQUEST, None)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", PARSE_ERROR),
        (b"{", PARSE_ERROR),
        (b"\xff", PARSE_ERROR),
        (b"nul", PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "id": 2}', PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', PARSE_ERROR),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": ' + b"9" * 5_000 + b"}}",
            PARSE_ERROR,
        ),
        (b"[" * 100_000, PARSE_ERROR),
        (b'{"a":' * 2_000 + b"1" + b"}" * 2_000, PARSE_ERROR),
        (b"1", INVALID_REQUEST),
        (b'"ping"', INVALID_REQUEST),
        (b"null", INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": ""}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', INVALID_REQUEST),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m" * 101}).encode(), INVALID_REQUEST),
        (b"[]", INVALID_REQUEST),
    ],
)
def test_a_body_that_is_no_message_is_an_error_of_the_protocol(body: bytes, code: int):
    status, found, _ = error_of(an_agent().post(body))
    assert (status, found) == (400, code)


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("resources/list", {}, METHOD_NOT_FOUND),
        ("server/discover", {}, METHOD_NOT_FOUND),
        ("tools/call", {}, INVALID_PARAMS),
        ("tools/call", {"name": 7}, INVALID_PARAMS),
        ("tools/call", {"name": "drop_topic"}, INVALID_PARAMS),
        ("tools/call", {"name": "put", "arguments": {}}, INVALID_PARAMS),
        ("tools/list", {"cursor": "2"}, INVALID_PARAMS),
        ("initialize", {"protocolVersion": 7}, INVALID_PARAMS),
    ],
)
def test_a_request_that_can_not_be_answered_is_an_error_with_its_id(method: str, params: Any, code: int):
    assert error_of(an_agent().post(a_message(method, "seven", **params))) == (200, code, "seven")


def test_params_that_are_an_array_are_refused():
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}
    assert error_of(an_agent().post(message)) == (200, INVALID_PARAMS, 1)


def test_the_version_without_a_handshake_discovers_lists_and_calls():
    agent = an_agent()
    message, headers = stateless("server/discover")
    found = result_of(agent.post(message, **headers))
    assert found["supportedVersions"] == list(versions.SUPPORTED)
    message, headers = stateless("tools/list")
    listed = result_of(agent.post(message, **headers))
    message, headers = stateless("tools/call", name="list_topics", arguments={})
    called = result_of(agent.post(message, **headers))
    for result in (found, listed, called):
        assert result["resultType"] == "complete"
        assert result["_meta"][versions.META_SERVER]["name"] == "keylane"
    assert {"ttlMs", "cacheScope"} <= listed.keys() & found.keys()
    assert called["structuredContent"] == {"topics": []}


@pytest.mark.parametrize("method", ["ping", "initialize", "resources/list"])
def test_the_version_without_a_handshake_has_no_method_of_the_others(method: str):
    message, headers = stateless(method)
    assert error_of(an_agent().post(message, **headers)) == (404, METHOD_NOT_FOUND, 1)


def test_a_tool_name_in_a_header_may_be_base64():
    message, headers = stateless("tools/call", name="list_topics")
    headers["mcp_name"] = "=?base64?bGlzdF90b3BpY3M=?="
    assert result_of(an_agent().post(message, **headers))["isError"] is False


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"mcp_protocol_version": "2025-11-25"}, HEADER_MISMATCH),
        ({"mcp_protocol_version": ""}, HEADER_MISMATCH),
        ({"mcp_method": "tools/list"}, HEADER_MISMATCH),
        ({"mcp_name": "get"}, HEADER_MISMATCH),
        ({"mcp_name": "=?base64?bGlzdA?="}, HEADER_MISMATCH),
        ({"mcp_name": "=?base64?/w==?="}, HEADER_MISMATCH),
    ],
)
def test_headers_that_disagree_with_the_body_are_refused(changed: dict[str, str], code: int):
    message, headers = stateless("tools/call", name="list_topics")
    assert error_of(an_agent().post(message, **(headers | changed))) == (400, code, 1)


@pytest.mark.parametrize("missing", ["mcp_protocol_version", "mcp_method", "mcp_name"])
def test_a_header_that_is_missing_is_refused(missing: str):
    message, headers = stateless("tools/call", name="list_topics")
    del headers[missing]
    assert error_of(an_agent().post(message, **headers)) == (400, HEADER_MISMATCH, 1)


@pytest.mark.parametrize(
    "meta",
    [None, 7, {}, {versions.META_CAPABILITIES: {}}, {versions.META_VERSION: "2026-07-28"}],
    ids=["none", "a number", "empty", "no version", "no capabilities"],
)
def test_a_request_without_its_meta_is_refused(meta: Any):
    message, headers = stateless("tools/list")
    message["params"] = {"_meta": meta}
    assert error_of(an_agent().post(message, **headers)) == (400, INVALID_PARAMS, 1)


@pytest.mark.parametrize("version", ["2024-11-05", "1900-01-01", "draft", "2025-11-25, 2025-06-18"])
def test_a_version_that_is_not_spoken_is_refused_with_those_that_are(version: str):
    response = an_agent().post(a_message("tools/list"), mcp_protocol_version=version)
    assert error_of(response) == (400, UNSUPPORTED_VERSION, 1)
    data = json.loads(response.body)["error"]["data"]
    assert data == {"supported": list(versions.SUPPORTED), "requested": version}


def test_a_newer_version_in_body_and_header_is_refused_with_those_that_are_spoken():
    meta = STATELESS_META | {versions.META_VERSION: "2999-01-01"}
    message = a_message("tools/list", _meta=meta)
    response = an_agent().post(message, mcp_protocol_version="2999-01-01")
    assert error_of(response) == (400, UNSUPPORTED_VERSION, 1)


def test_the_oldest_version_has_batches():
    batch = [
        a_message("ping", "a"),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        a_message("nothing", "b"),
        7,
        a_message("initialize", "c", protocolVersion="2025-03-26"),
        a_message("tools/call", "d", name="wait_for_change", arguments={"topic": "a", "key": "b"}),
    ]
    response = an_agent().post(batch)
    assert response.status_code == 200
    found = json.loads(response.body)
    assert [each["id"] for each in found] == ["a", "b", None, "c", "d"]
    codes = [each.get("error", {}).get("code") for each in found]
    assert codes == [None, METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_REQUEST, None]
    assert "send it alone" in found[-1]["result"]["content"][0]["text"]


def test_a_batch_without_a_message_is_refused():
    assert error_of(an_agent().post([7, {}])) == (400, INVALID_REQUEST, None)


def test_a_batch_of_notifications_is_accepted():
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    assert an_agent().post([notification, notification]).status_code == 202


@pytest.mark.parametrize(
    ("count", "headers"),
    [
        (MOST_MESSAGES + 1, {}),
        (1, {"mcp_protocol_version": "2025-06-18"}),
        (1, {"mcp_protocol_version": "x"}),
    ],
)
def test_a_batch_that_is_too_long_or_of_another_version_is_refused(count: int, headers: dict[str, str]):
    assert error_of(an_agent().post([a_message("ping")] * count, **headers)) == (400, INVALID_REQUEST, None)


@pytest.mark.parametrize(
    ("given", "status", "kind"),
    [
        ({"content_type": "text/plain"}, 415, "unsupported-media-type"),
        ({"content_type": ""}, 415, "unsupported-media-type"),
        ({"content_encoding": "br"}, 415, "unsupported-encoding"),
        ({"accept": "image/png"}, 406, "not-acceptable"),
        ({"origin": "https://evil.example", "host": "keylane.example"}, 403, "foreign-origin"),
        ({"origin": "null", "host": "keylane.example"}, 403, "foreign-origin"),
        ({"origin": "https://[", "host": "keylane.example"}, 403, "foreign-origin"),
        ({"origin": ""}, 403, "foreign-origin"),
    ],
)
def test_what_http_says_is_wrong_is_a_problem(given: dict[str, str], status: int, kind: str):
    response = an_agent().post(a_message("ping"), **given)
    assert (response.status_code, response.problem) == (status, kind)


def test_a_body_over_the_limit_is_a_problem():
    response = an_agent().post(b" " * (BODY_LIMIT_BYTES + 1))
    assert (response.status_code, response.problem) == (413, "body-too-large")


@pytest.mark.parametrize(
    ("cors", "origin"),
    [
        ("", "https://keylane.example"),
        ("https://app.example", "https://app.example"),
        ("*", "https://a.example"),
    ],
)
def test_pages_of_the_host_and_of_the_setting_may_ask(cors: str, origin: str):
    agent = an_agent(cors_headers={"Access-Control-Allow-Origin": cors} if cors else {})
    assert agent.post(a_message("ping"), origin=origin, host="keylane.example").status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_other_methods_are_wrong(method: str):
    application = an_application(query.OPERATIONS, None, ApiSettings())
    response = application.respond(mcp_request({})._replace(method=method))
    assert (response.status_code, response.problem) == (405, "wrong-method")
    assert response.headers["Allow"] == "POST"


def test_bodies_that_are_changed_at_random_are_never_our_error():
    agent, random = an_agent(), Random(7)
    message, headers = stateless("tools/call", name="find", arguments={"topic": "t", "where": {"a": [1]}})
    begun = json.dumps(message).encode()
    for _ in range(2_000):
        data = bytearray(begun)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(data))
            data[at : at + random.randint(0, 3)] = random.randbytes(random.randint(0, 3))
        response = agent.post(bytes(data), **random.choice([{}, headers]))
        assert response.status_code in {200, 202, 400, 404}, bytes(data)
        assert "internal" not in str(response.body)
