"""Requests for several records: whatever comes is parsed, or refused with the parameter at fault."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW_MS, a_layout, a_request, a_watermark

from keylane.api.http.common_parameters import ValueOptions
from keylane.api.reads import many as read_many
from keylane.api.reads import pages as read_pages
from keylane.api.reads import topics
from keylane.config.functions import QuerySettings
from keylane.errors import BadRequest
from keylane.query.key_count import KeyCount
from keylane.query.span import Span
from keylane.query.store import ReadTerms, Watermarks
from keylane.state import codec
from keylane.state.lanes import lanes_of_topic

if TYPE_CHECKING:
    from keylane.api.http.request import Request

NAMES = sorted(
    {
        each.name
        for group in (read_pages.RANGE, read_pages.HISTORY, read_many.MANY, read_many.JOIN)
        for each in group
    }
)
SOME = st.sampled_from(["true", "false", "0", "1", "base64", "text", "a,b", "2026-11-21", "YQ", "3:1", ""])
QUERIES = st.dictionaries(st.sampled_from(NAMES), SOME | st.text(max_size=20), max_size=5)


SETTINGS = QuerySettings.from_environment({})


def parse_many(request: Request) -> read_many.ReadManyRequest:
    return read_many.parse_read_many(request, "t", SETTINGS)


def a_request_of(query: dict[str, str], body: bytes = b"") -> Request:
    return a_request("GET", "/", query=query or None, body=body)


@given(QUERIES)
def test_any_query_is_parsed_or_refused_by_name(query: dict[str, str]):
    request = a_request_of(query)
    for parse in (
        lambda: read_pages.parse_range(request, "t", SETTINGS),
        lambda: read_pages.parse_history(request, "t", "a2tr", SETTINGS),
        lambda: read_many.parse_join(request, "a2tr", SETTINGS),
        lambda: topics.parse_metadata(request),
        lambda: topics.parse_count(request, "t", SETTINGS),
    ):
        refused_by_name(parse, {*query, "topics", "topic", "key"})


def test_a_count_has_terms_and_a_topic_whose_name_is_checked():
    request = a_request_of({"max_age_ms": "9", "partial": "true"})
    read = topics.parse_count(request, "t", SETTINGS)
    assert (read.topic, read.terms) == ("t", ReadTerms(SETTINGS.state_timeout_ms, 9, partial=True))
    with pytest.raises(BadRequest, match="topic"):
        topics.parse_count(request, "a%20b", SETTINGS)


def test_a_count_is_rendered_with_its_freshness():
    layout = a_layout(partition_count=2)
    watermarks = Watermarks(layout)
    for lane in lanes_of_topic(layout):
        watermarks.note(lane, codec.encode_watermark(a_watermark(5)))
    response = topics.render_count(KeyCount(7, watermarks), NOW_MS)
    age_ms = watermarks.age_ms(NOW_MS)
    assert json.loads(response.body) == {"count": 7, "watermarks": {"0": 5, "1": 5}, "age_ms": age_ms}
    assert response.headers["Keylane-Age-Ms"] == str(age_ms)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["keys", "key_format", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON.map(lambda found: json.dumps(found).encode()) | st.binary(max_size=40))
def test_any_body_is_parsed_or_refused_by_name(body: bytes):
    request = a_request("POST", "/", body=body)
    refused_by_name(lambda: parse_many(request), {"body", "keys", "key_format"})


def refused_by_name(parse: Any, names: set[str]) -> None:
    try:
        parse()
    except BadRequest as error:
        refused: str | None = error.parameter
    else:
        return
    assert refused in names


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9), min_size=1))
def test_keys_of_a_body_are_their_utf_8(keys: list[str]):
    request = parse_many(a_request("POST", "/", body=json.dumps({"keys": keys}).encode()))
    assert request.keys == tuple(key.encode() for key in keys)


@pytest.mark.parametrize(
    ("query", "span"),
    [
        ({}, Span(b"", None)),
        ({"prefix": ""}, Span(b"", None)),
        ({"prefix": "ab"}, Span(b"ab", b"ac")),
        ({"prefix": "/w==", "key_format": "base64"}, Span(b"\xff", None)),
        ({"from": "a"}, Span(b"a", None)),
        ({"to": "b"}, Span(b"", b"b")),
        ({"from": "YQ", "to": "Yg", "key_format": "base64"}, Span(b"a", b"b")),
    ],
)
def test_bounds_of_a_range(query: dict[str, str], span: Span):
    assert read_pages.parse_range(a_request_of(query), "t", SETTINGS).scan.span == span


def test_terms_are_the_same_for_all():
    query = {"partial": "true", "max_age_ms": "5", "fields": "a"}
    requests = (
        read_pages.parse_range(a_request_of(query), "t", SETTINGS),
        read_pages.parse_history(a_request_of(query), "t", "k", SETTINGS),
        read_many.parse_join(a_request_of(query | {"topics": "a,b"}), "k", SETTINGS),
        parse_many(a_request_of(query, b'{"keys": ["k"]}')),
    )
    assert {request.terms for request in requests} == {ReadTerms(SETTINGS.state_timeout_ms, 5, True)}
    assert {request.values for request in requests} == {ValueOptions((("a",),), False)}
