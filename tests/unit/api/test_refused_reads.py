"""Reads that are refused, through the function over a fake state: by which parameter, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.builders import (
    NOW_MS,
    a_layout,
    a_request,
    a_watermark,
    headers_of,
    load_query,
    problem_of,
    query_settings,
    value_entry,
    value_key,
    watermark_entry,
)
from tests.support.stored import StoredTopic

from keylane.api.http import cursors
from keylane.api.reads.find import parse_find
from keylane.model.records import Options

FIELDS = (
    ("amount", "number"),
    ("limit", "boolean"),
    ("placed", "time"),
    ("status", "text"),
    ("tags", "texts"),
)
KEPT = StoredTopic(a_layout("kept", options=Options(index=True, history_count=1, fields=FIELDS)))
KEPT.add(b"a", b"b", b"c", value=b'{"n": 0, "m": {"x": 1.10}}')
PLAIN = StoredTopic(a_layout("plain"), b"a", state=KEPT.state)
ask = load_query(KEPT.state.entries, sorted_sets=KEPT.state.sorted_sets)


@pytest.mark.parametrize(
    ("path", "query", "parameter"),
    [
        ("/topics/kept/keys/a", {"max_age_ms": "-1"}, "max_age_ms"),
        ("/topics/kept/keys/a", {"fields": "a,,b"}, "fields"),
        ("/topics/kept/keys/a", {"as_of": "yesterday"}, "as_of"),
        ("/topics/kept/keys/a", {"as_of": "1", "min_offset": "1"}, "as_of"),
        ("/topics/kept/keys/a/history", {"to": "now"}, "to"),
        ("/topics/kept/keys/a/history", {"from": "2", "to": "1"}, "to"),
        ("/topics/kept/keys", {"limit": "0"}, "limit"),
        ("/topics/kept/keys", {"limit": "1001"}, "limit"),
        ("/topics/kept/keys", {"prefix": "a", "from": "b"}, "prefix"),
        ("/topics/kept/keys", {"from": "b", "to": "a"}, "to"),
        ("/topics/kept/keys", {"from": "\ud800"}, "from"),
        ("/topics/kept/keys", {"to": "!", "key_format": "base64"}, "to"),
        ("/topics/kept/keys", {"keys_only": "1"}, "keys_only"),
        ("/topics/kept/keys", {"cursor": "abc"}, "cursor"),
        ("/topics/kept/keys", {"cursor": ""}, "cursor"),
        ("/topics/kept/keys", {"as_of": "3:1"}, "as_of"),
        ("/topics/kept/keys", {"prefix": "a" * 65_537}, "prefix"),
        ("/topics/kept/count", {"fields": "a"}, "fields"),
        ("/metadata/partitions", {}, "topic"),
        ("/views/puts/keys", {"limit": "0"}, "limit"),
        ("/views/puts/keys/k", {"from": "2", "to": "1"}, "to"),
        ("/views/puts/keys", {"key_from": "b", "key_to": "a"}, "key_to"),
        ("/views/puts/keys", {"cursor": "abc"}, "cursor"),
        ("/views/a%20b", {}, "view"),
        ("/topics/kept/keys/a", {"partial": "maybe"}, "partial"),
        *(
            ("/join/a", {"topics": topics}, "topics")
            for topics in ("", "kept", "kept,kept", "kept,", "a b,c", "a,b,c,d,e,f,g,h,i,j,k")
        ),
        ("/join/a", {}, "topics"),
    ],
)
def test_a_parameter_that_is_wrong_is_named(path: str, query: dict[str, str], parameter: str):
    assert problem_of(ask("GET", path, query=query)) == (400, "bad-request", parameter)


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[" * 100_000, "body"),
        (b"[]", "keys"),
        ({}, "keys"),
        ({"keys": []}, "keys"),
        ({"keys": "a"}, "keys"),
        ({"keys": [1]}, "keys"),
        ({"keys": ["a", ""]}, "keys"),
        ({"keys": ["\ud800"]}, "keys"),
        ({"keys": ["a"] * 1_001}, "keys"),
        ({"keys": ["a"], "key_format": "base64"}, "keys"),
        ({"keys": ["a"], "key_format": "hex"}, "key_format"),
        ({"keys": ["a"], "key_format": 1}, "key_format"),
    ],
)
def test_a_body_that_asks_for_no_keys_says_what_is_wrong(body: Any, parameter: str):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = ask("POST", "/topics/kept/keys:read", body=data)
    assert problem_of(answer) == (400, "bad-request", parameter)


@pytest.mark.parametrize(
    ("query", "parameter", "detail"),
    [
        ({}, None, "status (text)"),
        ({"prefix": "a"}, None, "status (text)"),
        ({"state": "open"}, "state", "did you mean status?"),
        ({"order": "state"}, "order", "amount (number)"),
        ({"order": "tags"}, "order", "several values"),
        ({"order": "-"}, "order", "names no field"),
        ({"amount": "ten"}, "amount", "is not a number"),
        ({"amount": "1*"}, "amount", "is a prefix"),
        ({"amount": "5..1"}, "amount", "ends before it begins"),
        ({"amount": "1..<"}, "amount", "nothing behind it"),
        ({"amount": "1e99999"}, "amount", "too large"),
        ({"placed": "today"}, "placed", "ISO 8601"),
        ({".limit": "yes"}, "limit", "neither true nor false"),
        ({"limit": "0"}, "limit", "1 to 1000"),
        ({"status": "a" * 65 + "..b"}, "status", "64 bytes"),
        ({"status": '"open'}, "status", "JSON string"),
        ({"status": "a" * 5000}, "status", "4096"),
        ({"status": "open", "as_of": "2026-01-01"}, "as_of", "latest records"),
        ({"status": "open", "cursor": "abc"}, "cursor", "cursor"),
    ],
)
def test_a_find_that_is_wrong_says_what_is(query: dict[str, str], parameter: str | None, detail: str):
    answer = ask("GET", "/topics/kept/find", query=query)
    assert problem_of(answer) == (400, "bad-request", parameter)
    assert detail in json.loads(answer["body"])["detail"]


@pytest.mark.parametrize(
    ("path", "query", "kind", "said"),
    [
        ("/topics/plain/keys", {}, "no-index", "index = true"),
        ("/topics/plain/count", {}, "no-index", "index = true"),
        ("/topics/plain/keys/a/history", {}, "no-history", "history_count"),
        ("/topics/plain/keys/a", {"as_of": "1"}, "no-history", "history_count"),
        ("/topics/plain/find", {"status": "open"}, "no-fields", ".fields]"),
    ],
)
def test_what_a_topic_does_not_keep_is_409_with_its_option(
    path: str, query: dict[str, str], kind: str, said: str
):
    answer = ask("GET", path, query=query)
    assert problem_of(answer)[:2] == (409, kind)
    assert said in json.loads(answer["body"])["detail"]


def test_a_state_that_is_older_than_asked_for_is_412_with_its_age():
    ask = load_query(KEPT.state.entries, sorted_sets=KEPT.state.sorted_sets)  # whose clock nobody has moved
    query = {"max_age_ms": "199"}
    for path in ("/topics/kept/keys/a", "/topics/kept/keys", "/topics/kept/count"):
        answer = ask("GET", path, query=query)
        assert problem_of(answer)[:2] == (412, "state-too-old")
        assert (headers_of(answer)["Retry-After"], json.loads(answer["body"])["age_ms"]) == ("1", 200)
    many = ask("POST", "/topics/kept/keys:read", query=query, body=b'{"keys": ["a"]}')
    assert problem_of(many)[:2] == (412, "state-too-old")
    assert ask("GET", "/topics/kept/keys/a", query={"max_age_ms": "200"})["statusCode"] == 200


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/topics/nowhere/keys/a", "unknown-topic"),
        ("/topics/nowhere/keys", "unknown-topic"),
        ("/topics/kept/keys/absent", "key-absent"),
        ("/views/never", "unknown-view"),
    ],
)
def test_what_there_is_not_is_404(path: str, kind: str):
    assert problem_of(ask("GET", path))[:2] == (404, kind)


def test_a_lane_that_is_being_built_and_bytes_that_are_no_record_are_errors_of_their_own():
    key = value_key(PLAIN.layout, b"a")
    broken = load_query(PLAIN.state.entries, {key: b"something else"})
    answer = broken("GET", "/topics/plain/keys/a")
    assert problem_of(answer)[:2] == (500, "corrupt-state")
    assert key.decode() in json.loads(answer["body"])["detail"]
    lane = watermark_entry(PLAIN.layout, b"a", a_watermark(complete_as_of_ms=0))
    answer = load_query(PLAIN.state.entries, lane)("GET", "/topics/plain/keys/a")
    assert (problem_of(answer)[:2], headers_of(answer)["Retry-After"]) == ((503, "lane-building"), "2")


def test_a_cursor_is_of_its_topic_and_its_bounds():
    cursor = json.loads(ask("GET", "/topics/kept/keys", query={"limit": "1", "from": "a"})["body"])["next"]
    rest = ask("GET", "/topics/kept/keys", query={"from": "a", "cursor": cursor})
    assert [row["key"] for row in json.loads(rest["body"])["records"]] == ["b", "c"]
    changed = ("A" if cursor[20] != "A" else "B").join((cursor[:20], cursor[21:]))
    for path, query in (
        ("/topics/kept/keys", {"from": "a", "cursor": changed}),
        ("/topics/kept/keys", {"from": "b", "cursor": cursor}),
        ("/topics/plain/keys", {"from": "a", "cursor": cursor}),
        ("/topics/kept/keys/a/history", {"cursor": cursor}),
        ("/topics/kept/find", {"status": "open", "cursor": cursor}),
    ):
        assert problem_of(ask("GET", path, query=query)) == (400, "bad-request", "cursor")


def test_a_find_s_cursor_is_of_its_prefix_alone():
    query = {"prefix": "a", "status": "open"}
    bounds = parse_find(a_request("GET", "/", query=query), "kept", query_settings()).bounds
    cursor = cursors.encode("kept", bounds, b"a place")
    answer = ask("GET", "/topics/kept/find", query=query | {"prefix": "a1", "cursor": cursor})
    assert problem_of(answer) == (400, "bad-request", "cursor")
    assert "other bounds" in json.loads(answer["body"])["detail"]


def test_fields_are_shown_of_objects_alone():
    found = load_query(KEPT.state.entries, value_entry(KEPT.layout, b"b", b"[1]", timestamp_ms=NOW_MS))
    assert found("GET", "/topics/kept/keys/a", query={"fields": "m.x"})["body"] == '{"m": {"x": 1.10}}'
    enveloped = found("GET", "/topics/kept/keys/a", query={"fields": "n", "envelope": "true"})
    assert json.loads(enveloped["body"])["value"] == {"n": 0}
    answer = found("GET", "/topics/kept/keys/b", query={"fields": "n"})
    assert problem_of(answer) == (409, "no-json-object", "fields")
    many = found("POST", "/topics/kept/keys:read", query={"fields": "n"}, body=b'{"keys": ["a", "b"]}')
    one, other = json.loads(many["body"])["records"]
    assert (one["value"], one.get("no_fields")) == ({"n": 0}, None)
    assert (other["value"], other["no_fields"]) == ([1], True)


@pytest.mark.parametrize(("topic", "parameter"), [("a%20b", "topic"), ("..", None)], ids=["space", "dots"])
@pytest.mark.parametrize("route", ["keys", "count", "find", "keys/k/history"])
def test_a_name_that_no_topic_has_is_refused_by_each_route(topic: str, parameter: str | None, route: str):
    answer = ask("GET", f"/topics/{topic}/{route}", query={"status": "a"} if route == "find" else None)
    assert problem_of(answer) == (400, "bad-request", parameter)


@pytest.mark.parametrize(
    ("query", "prefer", "problem", "applied"),
    [
        ({"min_offset": "5000"}, "wait=0.01", "position-not-reached", "wait=0.01"),
        ({"max_age_ms": "1"}, "wait=0.01", "state-too-old", "wait=0.01"),
        ({"max_age_ms": "1"}, "handling=strict", "state-too-old", None),
    ],
)
def test_a_read_that_waited_in_vain_says_how_long_it_was_let(query, prefer, problem, applied):
    answer = ask("GET", "/topics/kept/keys/a", query=query, headers={"Prefer": prefer})
    assert problem_of(answer)[:2] == (412, problem)
    assert headers_of(answer).get("Preference-Applied") == applied
