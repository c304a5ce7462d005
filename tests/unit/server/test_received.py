"""Requests as the server makes them, beside those that are made of API Gateway's events."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from tests.support.proxy_events import HttpRequest, build_proxy_event

from keylane.access.scopes import Scope
from keylane.api.http.gateway import request_of
from keylane.errors import BadRequest
from keylane_server.received import Access, ReceivedRequest, new_request_id

if TYPE_CHECKING:
    from keylane.api.http.request import Request


def received(method: str, target: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> ReceivedRequest:
    path, _, query = target.partition(b"?")
    return ReceivedRequest(
        {
            "method": method,
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            "client": ("10.0.0.7", 40_000),
        },
        "request-1",
    )


def of_gateway(method: str, target: bytes, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> Request:
    pairs = tuple((name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in headers)
    given = HttpRequest(method, target.decode("utf-8", "surrogateescape"), pairs, body, "10.0.0.7")
    return request_of(build_proxy_event(given, "id-1"))


@pytest.mark.parametrize(
    ("method", "target", "headers", "body"),
    [
        ("GET", b"/topics/t/keys/a", (), b""),
        ("GET", b"/topics/t/keys/%2Fx%41%FF%25//", ((b"accept", b"*/*"), (b"prefer", b"wait=1")), b""),
        ("GET", b"/topics/t/keys/\xc3\xa9 \xff", (), b""),
        ("GET", b"/topics/t/keys/a?envelope=true&fields=a,b&empty=&=&a+b=%20", (), b""),
        ("GET", b"/topics/t/keys/a?limit=1&limit=2&t=%C3%A9&t=\xc3\xa9", (), b""),
        ("GET", b"/", ((b"x-a", b"\xc3\xa9"), (b"x-b", b"\xe9"), (b"x-c", b"")), b""),
        ("GET", b"/a", ((b"accept", b"a/b"), (b"x", b"1"), (b"accept", b"c/d"), (b"accept", b"a/b")), b""),
        ("PUT", b"/topics/t/keys/a", ((b"content-type", b"application/json"),), b'{"a": 1}'),
        ("POST", b"/push?x=1", ((b"content-type", b"application/octet-stream"),), b"\xff\x00"),
    ],
)
def test_the_servers_request_is_that_of_api_gateways_event(method, target, headers, body):
    own = received(method, target, headers).with_body(body)
    other = of_gateway(method, target, headers, body)
    assert own._replace(id="id-1", root_path="/local", caller=other.caller) == other
    assert own.caller.name() == other.caller.name() == "source-ip:10.0.0.7"


@pytest.mark.parametrize("query", [b"t=%FF", b"t=\xff", b"t=a%C3", b"%ED%A0%80=1"])
def test_a_query_that_is_not_utf_8_is_refused_and_asks_for_nothing_else(query: bytes):
    with pytest.raises(BadRequest, match="not UTF-8"):
        received("GET", b"/topics/t/keys?" + query).with_body(b"")


def test_a_secret_that_somebody_puts_into_a_query_is_in_no_log():
    query = b"a=1&access_token=s3&%54oken=s3&client_secret=s3&api-key=s3&x=%s3&token"
    shown = received("GET", b"/topics/t/keys?" + query).shown_target
    masked = "a=1&access_token=***&%54oken=***&client_secret=***&api-key=***&x=%s3&token"
    assert shown == f"/topics/t/keys?{masked}"


def test_a_token_names_the_caller():
    request = received("GET", b"/")
    assert request.with_body(b"").scope is None
    request.access = Access("billing", Scope("billing"))
    assert request.with_body(b"").caller.name() == "authorizer:billing"
    assert request.with_body(b"").scope == Scope("billing")


def test_of_a_repeated_header_the_server_itself_goes_by_the_last():
    request = received("GET", b"/", ((b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")))
    assert request.last["authorization"] == "Bearer b"
    assert request.headers["authorization"] == "Bearer a, Bearer b"


def test_a_request_has_an_id_of_its_own_which_is_a_uuid():
    assert received("GET", b"/").with_body(b"").id == "request-1"
    ids = [new_request_id() for _ in range(100)]
    assert len(set(ids)) == len(ids)
    for found in ids:
        parsed = uuid.UUID(found)
        assert str(parsed) == found
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)
