from __future__ import annotations

import base64
import json

import pytest
from tests.support.proxy_events import (
    HttpRequest,
    MalformedResponse,
    build_proxy_event,
    parse_function_response,
)


def _request(**given):
    fields = {
        "method": "GET",
        "target": "/topics/flights/keys/N1",
        "headers": (),
        "body": b"",
        "source_ip": "10.0.0.7",
    }
    return HttpRequest(**{**fields, **given})


def _event(**given):
    return build_proxy_event(_request(**given), "id-1", 1700000000.25)


def _response(**answer):
    return parse_function_response(json.dumps(answer).encode())


def test_the_golden_event_of_a_request_with_everything():
    event = build_proxy_event(
        HttpRequest(
            method="PUT",
            target="/topics/a%2Fb/keys/%C3%A9?tag=1&tag=2&empty=&text=a%20b+c",
            headers=(
                ("Host", "localhost:8080"),
                ("Content-Type", "application/json"),
                ("X-Twice", "one"),
                ("X-Twice", "two"),
                ("User-Agent", "test/1"),
            ),
            body=b'{"a": 1}',
            source_ip="127.0.0.1",
        ),
        "id-1",
        1700000000.25,
    )
    assert event == {
        "resource": "/{proxy+}",
        "path": "/topics/a%2Fb/keys/%C3%A9",
        "httpMethod": "PUT",
        "headers": {
            "Host": "localhost:8080",
            "Content-Type": "application/json",
            "X-Twice": "two",
            "User-Agent": "test/1",
        },
        "multiValueHeaders": {
            "Host": ["localhost:8080"],
            "Content-Type": ["application/json"],
            "X-Twice": ["one", "two"],
            "User-Agent": ["test/1"],
        },
        "queryStringParameters": {"tag": "2", "empty": "", "text": "a b c"},
        "multiValueQueryStringParameters": {"tag": ["1", "2"], "empty": [""], "text": ["a b c"]},
        "pathParameters": {"proxy": "topics/a/b/keys/é"},
        "stageVariables": None,
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "keylane",
            "httpMethod": "PUT",
            "identity": {"sourceIp": "127.0.0.1", "userAgent": "test/1"},
            "path": "/local/topics/a%2Fb/keys/%C3%A9",
            "protocol": "HTTP/1.1",
            "requestId": "id-1",
            "requestTime": "14/Nov/2023:22:13:20 +0000",
            "requestTimeEpoch": 1700000000250,
            "resourceId": "proxy",
            "resourcePath": "/{proxy+}",
            "stage": "local",
        },
        "body": '{"a": 1}',
        "isBase64Encoded": False,
    }


def test_absent_parts_of_a_request_are_null():
    event = _event(target="/")
    for field in (
        "headers",
        "multiValueHeaders",
        "queryStringParameters",
        "multiValueQueryStringParameters",
        "pathParameters",
        "body",
    ):
        assert event[field] is None


@pytest.mark.parametrize(
    "path", ["/topics/t/keys/%2F%2f", "/topics/t/keys/%zz", "/a//b/../c", "/topics/t/keys/a+b:@!$&'()*,;=~"]
)
def test_the_path_stays_as_the_client_wrote_it(path):
    assert _event(target=f"{path}?x=%2F")["path"] == path


def test_bytes_that_a_path_cannot_hold_are_percent_encoded():
    raw = b"/topics/\xff\xc3\xa9".decode("utf-8", "surrogateescape")
    assert _event(target=raw)["path"] == "/topics/%FF%C3%A9"


def test_a_header_that_is_not_utf8_is_decoded_as_latin1():
    raw = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert _event(headers=(("X-Name", raw),))["headers"] == {"X-Name": "café"}


@pytest.mark.parametrize(
    ("headers", "body", "as_text"),
    [
        ((("Content-Type", "application/json; charset=utf-8"),), "é".encode(), True),
        ((("content-type", "TEXT/PLAIN"),), b"a", True),
        ((("Content-Type", "application/problem+json"),), b"{}", True),
        ((("Content-Type", "application/json"),), b"\xff", False),
        ((("Content-Type", "application/json"), ("Content-Encoding", "gzip")), b"a", False),
        ((("Content-Type", "application/octet-stream"),), b"a", False),
        ((), b"a", False),
    ],
)
def test_a_body_is_text_only_if_it_is_declared_and_valid(headers, body, as_text):
    event = _event(headers=headers, body=body)
    assert event["isBase64Encoded"] is not as_text
    received = event["body"].encode() if as_text else base64.b64decode(event["body"])
    assert received == body


def test_an_answer_becomes_a_response():
    response = _response(statusCode=201, headers={"ETag": '"1-2"', "X-Number": 7, "X-True": True}, body="é")
    assert response.status == 201
    assert response.body == "é".encode()
    assert response.headers == (
        ("ETag", '"1-2"'),
        ("X-Number", "7"),
        ("X-True", "true"),
        ("Content-Type", "application/json"),
    )


def test_headers_and_multi_value_headers_are_merged_without_duplicates():
    response = _response(
        statusCode=200,
        headers={"content-type": "text/plain", "Link": "<a>", "Vary": "Accept"},
        multiValueHeaders={"Link": ["<b>", "<a>"], "Set-Cookie": ["a=1", "b=2"]},
    )
    assert response.headers == (
        ("Link", "<b>"),
        ("Link", "<a>"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("content-type", "text/plain"),
        ("Vary", "Accept"),
    )


def test_a_base64_body_is_decoded():
    body = bytes(range(256))
    answer = {"statusCode": 200, "body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    assert _response(**answer).body == body


def test_hop_by_hop_headers_are_left_to_the_server():
    response = _response(statusCode=200, headers={"Content-Length": "99", "Connection": "close", "A": "b"})
    assert response.headers == (("A", "b"), ("Content-Type", "application/json"))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b'"text"',
        b"{}",
        b'{"statusCode": null}',
        b'{"statusCode": 99}',
        b'{"statusCode": 200, "body": {}}',
        b'{"statusCode": 200, "body": "?", "isBase64Encoded": true}',
        b'{"statusCode": 200, "headers": []}',
        b'{"statusCode": 200, "headers": {"a": null}}',
        b'{"statusCode": 200, "headers": {"a": "b\\r\\nc: d"}}',
        b'{"statusCode": 200, "multiValueHeaders": {"a": "b"}}',
    ],
)
def test_a_response_that_api_gateway_would_reject_is_malformed(payload):
    with pytest.raises(MalformedResponse):
        parse_function_response(payload)
