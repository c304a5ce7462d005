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
from keylane.errors import BadRequest, NullKey
from keylane.model.records import NewRecord, Position
from keylane.ports import Deadline
from keylane.query.latest import NO_WAIT
from keylane.query.store import ReadTerms

SETTINGS = QuerySettings.from_environment({"KEYLANE_WAIT_MAX_MS": "9000"})


def parsed(topic: str = "flights", key: str = "k", **event: Any) -> read_key.ReadKeyRequest:
    return read_key.parse_read_key(
        a_request("GET", f"/topics/{topic}/keys/{key}", **event), topic, key, SETTINGS
    )


def refused(parameter: str, **request: Any) -> str:
    with pytest.raises(BadRequest) as caught:
        parsed(**request)
    assert caught.value.parameter == parameter
    return str(caught.value)


def test_plain_request_has_defaults():
    terms = ReadTerms(SETTINGS.state_timeout_ms)
    expected = read_key.ReadKeyRequest("flights", b"k", terms, NO_WAIT, request_id="request-1", accept="*/*")
    assert parsed() == expected


@pytest.mark.parametrize("topic", ["a", "A.b_c-9", "...", "_", "x" * 249])
def test_kafkas_names_are_topics(topic: str):
    assert parsed(topic).topic == topic


@pytest.mark.parametrize("topic", [".", "..", "a b", "a%20b", "a%2Fb", "%FF", "ä", "x" * 250, "%0A", ""])
def test_topic_name_that_kafka_does_not_accept_is_refused(topic: str):
    refused("topic", topic=topic)


def test_percent_encoded_topic_is_refused_for_rules_on_paths_would_not_see_it():
    with pytest.raises(BadRequest, match="needs no encoding"):
        parsed("a%2Eb")


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


@pytest.mark.parametrize("raw", ["%", "a%", "a%2", "a%zz", "%%41", "%u0041", "% 41"])
def test_broken_percent_encoding_is_refused(raw: str):
    assert "percent-encoding" in refused("key", key=raw)


def test_fault_in_percent_encoding_is_located():
    assert "character 3" in refused("key", key="ab%zz")


@pytest.mark.parametrize("raw", ["a", "a===", "YQ=", "YQ===", "YQ%0A", "!!!!", "-_+/", "%FF", "YR", "Y=Q="])
def test_what_only_looks_like_base64_is_refused(raw: str):
    assert "base64" in refused("key", key=raw, query={"key_format": "base64"})


@pytest.mark.parametrize("raw", ["YQ", "YQ==", "YQ%3D%3D"])
def test_padding_of_base64_is_optional(raw: str):
    assert parsed(key=raw, query={"key_format": "base64"}).key == b"a"


def test_key_that_is_empty_once_decoded_is_refused():
    with pytest.raises(NullKey):
        parsed(key="", query={"key_format": "base64"})


def test_unknown_values_are_refused():
    refused("key_format", query={"key_format": "hex"})
    refused("envelope", query={"envelope": "yes"})


def test_envelope_is_a_switch():
    assert parsed(query={"envelope": "true"}).envelope
    assert not parsed(query={"envelope": "false"}).envelope


def test_min_offset_is_an_offset_of_the_keys_own_partition():
    assert parsed(query={"min_offset": "12"}).wait.min_position == 12


@pytest.mark.parametrize("text", ["", "-1", "1.5", "a", " 1", "9" * 19, "\u0661"])
def test_invalid_offset_is_refused(text: str):
    refused("min_offset", query={"min_offset": text})


def test_min_position_comes_in_a_header_of_any_case():
    assert parsed(headers={"KEYLANE-min-Position": " 3:1042 "}).wait.min_position == Position(3, 1042)


def test_invalid_position_is_refused():
    refused("Keylane-Min-Position", headers={"Keylane-Min-Position": "3-1042"})


def test_two_positions_are_one_too_many():
    refused("min_offset", query={"min_offset": "1"}, headers={"Keylane-Min-Position": "3:1"})


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


@pytest.mark.parametrize("prefer", ["wait", "wait=", "wait=soon", "wait=-1", "wait=1e3", "wait=inf"])
def test_wait_that_is_not_a_number_is_refused(prefer: str):
    refused("Prefer", headers={"Prefer": prefer})


def test_headers_in_several_lines_are_one_list():
    event = an_event("GET", "/topics/t/keys/k")
    event["multiValueHeaders"] = {"If-None-Match": ['"1-2"', '"3-4"']}
    known = read_key.parse_read_key(request_of(event), "t", "k", SETTINGS).known
    assert known
    assert known.tags == {'"1-2"', '"3-4"'}


def test_events_without_multi_value_headers_and_query_are_accepted():
    event = {"httpMethod": "GET", "path": "/", "headers": {"Prefer": "wait=1", "Keylane-Min-Position": "3:1"}}
    read = read_key.parse_read_key(request_of(event), "t", "k", SETTINGS)
    assert (read.wait.position_ms, read.key) == (1_000, b"k")
    event = {"httpMethod": "GET", "path": "/", "queryStringParameters": {"key_format": "base64"}}
    assert read_key.parse_read_key(request_of(event), "t", "aw", SETTINGS).key == b"k"


@given(st.binary(max_size=100))
def test_bodies_are_their_bytes(body: bytes):
    assert a_request("PUT", "/", body=body).content() == body


def test_missing_body_is_an_empty_one():
    assert a_request("PUT", "/").content() == b""


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
