"""Events of the server's requests, beside API Gateway's of the same requests."""

from __future__ import annotations

import uuid

import pytest

from keylane.access.callers import caller_of
from keylane.api.event import body_of, headers_of, query_of, request_id_of
from keylane_serve.proxy_events import HttpRequest, build_proxy_event
from keylane_serve.received import ReceivedRequest, new_request_id


def received(method: str, target: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> ReceivedRequest:
    path, _, query = target.partition(b"?")
    return ReceivedRequest(
        {
            "method": method,
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            "client": ("10.0.0.7", 40_000),
        }
    )


def gateway_event(method: str, target: bytes, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> dict:
    pairs = tuple((name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in headers)
    given = HttpRequest(method, target.decode("utf-8", "surrogateescape"), pairs, body, "10.0.0.7")
    return build_proxy_event(given, "id-1")


@pytest.mark.parametrize(
    ("method", "target", "headers", "body"),
    [
        ("GET", b"/topics/t/keys/a", (), b""),
        ("GET", b"/topics/t/keys/%2Fx%41%FF%25//", ((b"accept", b"*/*"), (b"prefer", b"wait=1")), b""),
        ("GET", b"/topics/t/keys/\xc3\xa9 \xff", (), b""),
        ("GET", b"/topics/t/keys/a?envelope=true&fields=a,b&empty=&=&a+b=%20", (), b""),
        ("GET", b"/topics/t/keys/a?limit=1&limit=2&t=%FF&t=\xff", (), b""),
        ("GET", b"/", ((b"x-a", b"\xc3\xa9"), (b"x-b", b"\xe9"), (b"x-c", b"")), b""),
        ("GET", b"/a", ((b"accept", b"a/b"), (b"x", b"1"), (b"accept", b"c/d"), (b"accept", b"a/b")), b""),
        ("PUT", b"/topics/t/keys/a", ((b"content-type", b"application/json"),), b'{"a": 1}'),
        ("POST", b"/push?x=1", ((b"content-type", b"application/octet-stream"),), b"\xff\x00"),
    ],
)
def test_handlers_read_the_same_of_the_servers_event_and_of_api_gateways(method, target, headers, body):
    own, gateway = received(method, target, headers).event(body), gateway_event(method, target, headers, body)
    assert (own["httpMethod"], own["path"]) == (gateway["httpMethod"], gateway["path"])
    assert query_of(own) == query_of(gateway)
    name = "multiValueQueryStringParameters"
    assert own[name] == gateway[name]
    assert headers_of(own) == headers_of(gateway)
    assert body_of(own) == body_of(gateway) == body
    assert caller_of(own) == caller_of(gateway) == "source-ip:10.0.0.7"
    assert own["requestContext"]["stage"] == gateway["requestContext"]["stage"]


def test_a_request_has_an_id_of_its_own_which_is_a_uuid():
    first, second = received("GET", b"/"), received("GET", b"/")
    assert first.id != second.id
    assert request_id_of(first.event(b"")) == first.id
    for found in (new_request_id() for _ in range(100)):
        parsed = uuid.UUID(found)
        assert str(parsed) == found
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)
