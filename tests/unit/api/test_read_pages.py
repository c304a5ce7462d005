"""Several records: whatever is asked is parsed, or refused with the parameter at fault; and the documents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import (
    NOW_MS,
    a_lane,
    a_layout,
    a_request,
    a_watermark,
    headers_of,
    lane_of,
    layout_entry,
    load_query,
    value_entry,
    watermark_entry,
)
from tests.support.fakes import FakeTime

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


def test_many_keys_are_one_document_in_the_order_asked_for():
    layout = a_layout("t")
    marks = [watermark_entry(layout, key) for key in (b"a", b"c", b"d")]
    ask = load_query(
        layout_entry(layout), *marks, value_entry(layout, b"d", b"4"), value_entry(layout, b"a", b"1")
    )
    answer = ask("POST", "/topics/t/keys:read", body=b'{"keys": ["d", "a", "c", "d"]}')
    document = json.loads(answer["body"])
    assert [(each["key"], each.get("value")) for each in document["records"]] == [
        *(("d", 4), ("a", 1), ("c", None), ("d", 4)),
    ]
    assert document["records"][2] == {"key": "c", "key_format": "text", "absent": True}
    assert document["watermarks"] == {str(lane_of(layout, key)[0]): 100 for key in (b"a", b"c", b"d")}
    assert (document["age_ms"], headers_of(answer)["Keylane-Age-Ms"]) == (200, "200")


@pytest.mark.parametrize("fields", [{}, {"fields": "n"}])
@pytest.mark.parametrize(("size", "ways"), [(1_000, 0), (40_000, 1), (70_000, 3)])
def test_a_page_of_large_values_gives_way_to_others(size: int, ways: int, fields: dict[str, str]):
    layout, time = a_layout("t"), FakeTime(NOW_MS)
    value = b'{"n":1,"filler":"%b"}' % (b"x" * size)
    lanes = [a_lane(layout, key, value) for key in (b"a", b"b", b"c")]
    ask = load_query(layout_entry(layout), *lanes, time=time)
    answer = ask("POST", "/topics/t/keys:read", body=b'{"keys": ["a", "b", "c"]}', query=fields)
    assert len(json.loads(answer["body"])["records"]) == 3
    assert time.ways == ways


def test_a_join_is_one_document_by_topic():
    one, two = a_layout("one"), a_layout("two")
    absent = layout_entry(two) | watermark_entry(two, b"k", a_watermark(7))
    answer = load_query(a_lane(one, b"k", b"[1]"), absent)("GET", "/join/k", query={"topics": "two,one"})
    document = json.loads(answer["body"])
    records, partition = document["records"], str(lane_of(one, b"k")[0])
    assert (document["key"], list(records), records["one"]["value"]) == ("k", ["two", "one"], [1])
    assert records["two"] == {"key": "k", "key_format": "text", "absent": True}
    assert document["watermarks"] == {"two": {partition: 7}, "one": {partition: 100}}
    assert document["age_ms"] == 200
