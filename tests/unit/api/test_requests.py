"""Requests: what is taken of API Gateway's events, what is refused, and which parameter is named."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import a_request, an_event
from tests.support.fakes import FakeTime

from keylane.api.http.gateway import MARGIN_MS, deadline_of, request_of
from keylane.api.reads import key as read_key
from keylane.api.writes import key as write_key
from keylane.config.functions import QuerySettings
from keylane.errors import BadRequest
from keylane.model.records import NewRecord, Position
from keylane.ports import Deadline
from keylane.query.latest import NO_WAIT
from keylane.query.store import ReadTerms

SETTINGS = QuerySettings.from_environment({"KEYLANE_WAIT_MAX_MS": "9000"})


def parsed(topic: str = "flights", key: str = "k", **event: Any) -> read_key.ReadKeyRequest:
    return read_key.parse_read_key(
        a_request("GET", f"/topics/{topic}/keys/{key}", **event), topic, key, SETTINGS
    )


def test_plain_request_has_defaults():
    terms = ReadTerms(SETTINGS.state_timeout_ms)
    expected = read_key.ReadKeyRequest("flights", b"k", terms, NO_WAIT, request_id="request-1", accept="*/*")
    assert parsed() == expected


@pytest.mark.parametrize("topic", ["a", "A.b_c-9", "...", "_", "x" * 249])
def test_kafkas_names_are_topics(topic: str):
    assert parsed(topic).topic == topic


TOPICS = (".", "..", "a b", "a%20b", "a%2Fb", "%FF", "ä", "x" * 250, "%0A", "")
BROKEN = ("%", "a%", "a%2", "a%zz", "%%41", "%u0041", "% 41")
NO_BASE64 = ("a", "a===", "YQ=", "YQ===", "YQ%0A", "!!!!", "-_+/", "%FF", "YR", "Y=Q=")
OFFSETS = ("", "-1", "1.5", "a", " 1", "9" * 19, "\u0661")
WAITS = ("wait", "wait=", "wait=soon", "wait=-1", "wait=1e3", "wait=inf")


@pytest.mark.parametrize(
    ("parameter", "said", "asked"),
    [
        *(("topic", "", {"topic": each}) for each in TOPICS),
        # Rules on paths would not see it.
        ("topic", "needs no encoding", {"topic": "a%2Eb"}),
        *(("key", "percent-encoding", {"key": each}) for each in BROKEN),
        ("key", "character 3", {"key": "ab%zz"}),
        *(("key", "base64", {"key": each, "query": {"key_format": "base64"}}) for each in NO_BASE64),
        ("key_format", "", {"query": {"key_format": "hex"}}),
        ("envelope", "", {"query": {"envelope": "yes"}}),
        *(("min_offset", "", {"query": {"min_offset": each}}) for each in OFFSETS),
        ("min_offset", "", {"query": {"min_offset": "1"}, "headers": {"Keylane-Min-Position": "3:1"}}),
        ("Keylane-Min-Position", "", {"headers": {"Keylane-Min-Position": "3-1042"}}),
        *(("Prefer", "", {"headers": {"Prefer": each}}) for each in WAITS),
    ],
)
def test_what_is_wrong_is_refused_with_its_parameter(parameter: str, said: str, asked: dict[str, Any]):
    with pytest.raises(BadRequest) as caught:
        parsed(**asked)
    assert caught.value.parameter == parameter
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ("N14228", b"N14228"),
        ("a+b", b"a+b"),
        ("a%20b", b"a b"),
        ("a%2Fb%3fc", b"a/b?c"),
        ("100%25", b"100%"),
        ("%00%FF%fe", b"\x00\xff\xfe"),
        ("%C3%A4", "ä".encode()),
        ("ä", "ä".encode()),
    ],
)
def test_keys_are_percent_decoded_to_bytes(raw: str, key: bytes):
    assert parsed(key=raw).key == key


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_can_be_a_key(key: bytes):
    assert parsed(key=quote(key, safe="")).key == key
    standard = quote(base64.b64encode(key), safe="")
    assert parsed(key=standard, query={"key_format": "base64"}).key == key
    url_safe = base64.urlsafe_b64encode(key).decode().rstrip("=")
    assert parsed(key=url_safe, query={"key_format": "base64"}).key == key


@pytest.mark.parametrize("raw", ["YQ", "YQ==", "YQ%3D%3D"])
def test_padding_of_base64_is_optional(raw: str):
    assert parsed(key=raw, query={"key_format": "base64"}).key == b"a"


def test_min_position_comes_in_a_header_of_any_case():
    assert parsed(headers={"KEYLANE-min-Position": " 3:1042 "}).wait.min_position == Position(3, 1042)


@pytest.mark.parametrize(
    ("prefer", "wait_ms"),
    [
        ("wait=3", 3_000),
        ("wait=0", 0),
        ("wait=0.25", 250),
        ('Wait="2"', 2_000),
        ("respond-async, wait=2;foo=bar", 2_000),
        ("wait=3600", 9_000),
        ("handling=lenient", 5_000),
        ("", 5_000),
    ],
)
def test_prefer_bounds_the_waiting(prefer: str, wait_ms: float):
    wait = parsed(headers={"Prefer": prefer, "Keylane-Min-Position": "3:1"}).wait
    assert wait.position_ms == wait_ms


def test_a_read_that_names_nothing_to_wait_for_does_not_wait():
    found = parsed(headers={"Prefer": "wait=3"})
    assert (found.wait, found.preference_applied) == (NO_WAIT, None)


def test_headers_in_several_lines_are_one_list():
    event = an_event("GET", "/topics/t/keys/k")
    event["multiValueHeaders"] = {"If-None-Match": ['"1-2"', '"3-4"']}
    known = read_key.parse_read_key(request_of(event), "t", "k", SETTINGS).known
    assert known
    assert known.tags == {'"1-2"', '"3-4"'}


@given(st.binary(max_size=100))
def test_bodies_are_their_bytes(body: bytes):
    assert a_request("PUT", "/", body=body).content() == body


def test_body_that_is_not_the_base64_it_claims_to_be_is_refused():
    with pytest.raises(BadRequest) as caught:
        request_of({"httpMethod": "PUT", "path": "/", "body": "no base64!", "isBase64Encoded": True})
    assert caught.value.parameter == "body"


def test_request_is_known_by_its_id():
    assert a_request("GET", "/").id == "request-1"
    assert request_of({"httpMethod": "GET", "path": "/"}).id == "unknown"


@pytest.mark.parametrize("condition", ["If-None-Match", "If-Match"])
def test_condition_on_a_write_is_refused_rather_than_ignored(condition: str):
    request = a_request("PUT", "/topics/t/keys/k", headers={condition: "*"}, body=b"v")
    with pytest.raises(BadRequest, match="insert_once") as caught:
        write_key.parse_delete(request, "t", "k")
    assert caught.value.parameter == condition


def test_a_wait_ends_before_the_function_does():
    time = FakeTime()
    request = a_request("GET", "/topics/t/keys/k", headers={"Prefer": "wait=8", "If-None-Match": '"1-2"'})
    request = request._replace(deadline=Deadline.after_ms(3_000, time.clock))
    read = read_key.parse_read_key(request, "t", "k", SETTINGS)
    assert (read.wait.change_ms, read.preference_applied) == (3_000, "wait=3")


@pytest.mark.parametrize("parse", [write_key.parse_put, write_key.parse_delete])
@pytest.mark.parametrize(
    ("topic", "key", "key_format", "parameter"),
    [("t", "%zz", "text", "key"), ("t", "a", "base64", "key"), ("a%20b", "k", "text", "topic")],
)
def test_a_write_of_what_is_no_key_names_its_parameter(
    parse: Any, topic: str, key: str, key_format: str, parameter: str
):
    request = a_request("PUT", f"/topics/{topic}/keys/{key}", query={"key_format": key_format})
    with pytest.raises(BadRequest) as caught:
        parse(request, topic, key)
    assert caught.value.parameter == parameter


def test_a_written_key_may_be_base64_and_a_value_may_be_missing():
    request = a_request("PUT", "/topics/t/keys/_w", query={"key_format": "base64"})
    assert write_key.parse_put(request, "t", "_w").record == NewRecord("t", b"\xff", b"")


EVENT = {
    "httpMethod": "GET",
    "path": "/topics/flights/keys/a",
    "headers": {"Accept": "b/b", "X-One": "1"},
    "multiValueHeaders": {"Accept": ["a/a", "b/b"], "X-One": ["1"]},
}


def test_a_repeated_header_is_a_list_and_names_are_in_lower_case():
    assert request_of(EVENT).headers == {"accept": "a/a, b/b", "x-one": "1"}


@pytest.mark.parametrize("several", [None, {}])
def test_headers_without_their_lists_count(several):
    assert request_of(EVENT | {"multiValueHeaders": several}).headers == {"accept": "b/b", "x-one": "1"}


def test_an_event_without_headers_query_and_body_has_none():
    request = request_of({"httpMethod": "GET", "path": "/", "headers": None, "multiValueHeaders": None})
    assert (request.headers, request.query, request.body) == ({}, {}, b"")


def test_a_repeated_parameter_has_all_its_values_in_their_order():
    event = an_event("GET", "/", query={"a": "2"}) | {"multiValueQueryStringParameters": {"a": ["1", "2"]}}
    assert request_of(event).query == {"a": ["1", "2"]}


def test_work_ends_before_lambda_ends_the_function():
    time = FakeTime()
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: 29_000)
    deadline = deadline_of(context, time.clock)
    assert deadline is not None
    assert deadline.remaining_s * 1000 == 29_000 - MARGIN_MS
    assert deadline_of(None, time.clock) is None
