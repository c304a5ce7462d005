"""What HTTP asks of every server (RFC 9110), through the functions' handlers over fakes."""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import (
    NOW_MS,
    a_lane,
    a_layout,
    body_of,
    headers_of,
    load_produce,
    load_query,
    problem_of,
)

from keylane.api.http import content_coding
from keylane.api.http.content_coding import INFLATED_LIMIT_BYTES
from keylane.api.http.http_date import http_date, parse_http_date
from keylane.formats.json_text import MAX_NESTING
from keylane.model.records import NewRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fakes import FakeLog

    Ask = Callable[..., dict[str, Any]]

LAYOUT = a_layout("flights", 1)
PATH = "/topics/flights/keys/k"
TIMESTAMP_MS = NOW_MS - 1_500
AT, BEFORE, LATER = (http_date(each) for each in (TIMESTAMP_MS, TIMESTAMP_MS - 1_000, TIMESTAMP_MS + 1_000))
GZIP = gzip.compress(b"1" * 99, mtime=0)
TAG = '"0-42"'


def reading(value: bytes | None = b'{"dest": "SFO"}', **record: Any) -> Ask:
    return load_query(a_lane(LAYOUT, b"k", value, **({"timestamp_ms": TIMESTAMP_MS} | record)))


@pytest.fixture
def post(log: FakeLog) -> Ask:
    return load_produce(log)


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip", "identity, gzip"])
def test_a_compressed_value_is_written_as_it_was_before(post: Ask, log: FakeLog, coding: str):
    members = gzip.compress(b'{"a": ') + gzip.compress(b"1}")
    answer = post("/topics/t/keys/k", members, method="PUT", headers={"Content-Encoding": coding})
    assert answer["statusCode"] == 201
    assert log.sent == [NewRecord("t", b"k", b'{"a": 1}')]


def test_compressed_bodies_are_read_by_every_route_with_a_body(post: Ask, log: FakeLog):
    headers = {"Content-Encoding": "gzip"}
    pushed = gzip.compress(json.dumps({"records": [{"topic": "t", "data": "1"}]}).encode())
    assert post("/push", pushed, headers=headers)["statusCode"] == 200
    rest = headers | {"Content-Type": "application/vnd.kafka.json.v2+json"}
    assert post("/topics/t", gzip.compress(b'{"records": [{"value": 2}]}'), headers=rest)["statusCode"] == 200
    assert [record.value for record in log.sent] == [b"1", b"2"]
    keys = gzip.compress(b'{"keys": ["k"]}')
    answer = reading()("POST", "/topics/flights/keys:read", body=keys, headers=headers)
    assert json.loads(answer["body"])["records"][0]["value"] == {"dest": "SFO"}


@pytest.fixture(params=["/push", "/topics/t", "/v3/clusters/fake/topics/t/records", "keys:read"])
def send_json(request: pytest.FixtureRequest, post: Ask) -> Callable[[bytes, str], str]:
    """Send a mark, then a document with some JSON in it, to one of the routes; return the answer's body."""
    bodies = {
        "/push": '{"records": [{"topic": "t", "data": "1", "x": ANY}], "wait_for_send": true}',
        "/topics/t": '{"records": [{"value": ANY}]}',
        "/v3/clusters/fake/topics/t/records": '{"value": {"type": "JSON", "data": ANY}}',
        "keys:read": '{"keys": ["k"], "x": ANY}',
    }
    media_type = "application/json"
    if request.param == "/topics/t":
        media_type = "application/vnd.kafka.json.v2+json"

    def send(mark: bytes, text: str) -> str:
        body = mark + bodies[request.param].replace("ANY", text).encode()
        headers = {"Content-Type": media_type}
        if request.param == "keys:read":
            answer = reading()("POST", "/topics/flights/keys:read", body=body, headers=headers)
        else:
            answer = post(request.param, body, headers=headers)
        found: str = answer["body"]
        return found

    return send


def test_json_of_every_route_may_begin_with_a_byte_order_mark(send_json: Callable[[bytes, str], str]):
    with_mark, without = (re.sub(r"[\d.]+", "0", send_json(mark, "1")) for mark in (b"\xef\xbb\xbf", b""))
    assert "not valid JSON" not in with_mark
    assert with_mark == without


def test_json_of_every_route_may_have_500_levels_and_more_are_called_so(
    send_json: Callable[[bytes, str], str],
):
    assert "levels" not in send_json(b"", "[" * 400 + "]" * 400)
    for levels in (501, 1_001, 100_001):
        assert "is nested deeper than 500 levels" in send_json(b"", "[" * levels + "]" * levels)


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "compress", "gzip;q=1", "snappy"])
def test_a_coding_that_is_not_known_is_415_and_names_those_that_are(post: Ask, log: FakeLog, coding: str):
    answer = post("/topics/t/keys/k", b"x", method="PUT", headers={"Content-Encoding": coding})
    assert problem_of(answer) == (415, "unsupported-encoding", "Content-Encoding")
    assert headers_of(answer)["Accept-Encoding"] == "gzip"
    assert not log.sent


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b'{"a": 1}', GZIP[:-1], GZIP + b"x", zlib.compress(b"1")],
)
def test_a_body_that_is_not_what_its_coding_says_is_400(post: Ask, log: FakeLog, body: bytes):
    answer = post("/topics/t/keys/k", body, method="PUT", headers={"Content-Encoding": "gzip"})
    assert problem_of(answer) == (400, "bad-request", "Content-Encoding")
    assert not log.sent


@pytest.mark.parametrize("step_bytes", [1, 7, 4096])
def test_members_of_a_compressed_body_end_anywhere(monkeypatch: pytest.MonkeyPatch, step_bytes: int):
    monkeypatch.setattr(content_coding, "_STEP_BYTES", step_bytes)
    parts = [b"", random.Random(1).randbytes(9_000), b"a" * 9_000, b"", b"b"]
    assert content_coding.inflate(b"".join(map(gzip.compress, parts)), "gzip") == b"".join(parts)


def test_a_body_of_very_many_members_is_refused(post: Ask, log: FakeLog):
    member = gzip.compress(b"")
    headers = {"Content-Encoding": "gzip"}
    for number, status in ((content_coding.MOST_MEMBERS, 201), (content_coding.MOST_MEMBERS + 1, 400)):
        answer = post("/topics/t/keys/k", member * number, method="PUT", headers=headers)
        assert answer["statusCode"] == status
    assert problem_of(answer) == (400, "bad-request", "Content-Encoding")
    assert "more than 10,000 gzip members" in answer["body"]
    assert [record.value for record in log.sent] == [b""]


def test_a_small_body_that_becomes_a_large_one_is_413(post: Ask, log: FakeLog):
    bomb = gzip.compress(b"0" * (INFLATED_LIMIT_BYTES + 1))
    answer = post("/topics/t/keys/k", bomb, method="PUT", headers={"Content-Encoding": "gzip"})
    assert (answer["statusCode"], json.loads(answer["body"])["type"]) == (
        413,
        "urn:keylane:problem:body-too-large",
    )
    many = b"".join(gzip.compress(b"0" * 1024 * 1024) for _ in range(7))
    assert post("/push", many, headers={"Content-Encoding": "gzip"})["statusCode"] == 413
    assert not log.sent


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": TAG}, 200),
        ({"If-Match": f'"x", {TAG}'}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": '"0-41"'}, 412),
        ({"If-Match": f"W/{TAG}"}, 412),
        ({"If-Match": ""}, 412),
        ({"If-Match": '"0-41"', "If-None-Match": TAG}, 412),
        ({"If-Match": TAG, "If-None-Match": TAG}, 304),
        ({"If-Unmodified-Since": AT}, 200),
        ({"If-Unmodified-Since": BEFORE}, 412),
        ({"If-Unmodified-Since": BEFORE, "If-Match": TAG}, 200),
        ({"If-Unmodified-Since": "yesterday"}, 200),
        ({"If-Modified-Since": AT}, 304),
        ({"If-Modified-Since": LATER}, 304),
        ({"If-Modified-Since": BEFORE}, 200),
        ({"If-Modified-Since": AT, "If-None-Match": '"0-41"'}, 200),
        ({"If-Modified-Since": BEFORE, "If-None-Match": TAG}, 304),
        ({"If-Modified-Since": "1357034398"}, 200),
        ({"If-Modified-Since": f"{AT}, {AT}"}, 200),
        ({"If-None-Match": ", ".join(['"0-41"'] * 2_000)}, 200),
        ({"If-None-Match": ", ".join(['"0-41"'] * 2_000 + [TAG])}, 304),
        ({"If-None-Match": "x" * 10_000}, 200),
    ],
)
def test_conditions_hold_in_the_order_of_rfc_9110(headers: dict[str, str], status: int):
    answer = reading()("GET", PATH, headers=headers)
    assert answer["statusCode"] == status
    assert headers_of(answer)["ETag"] == TAG
    if status == 304:
        assert answer["body"] == ""
        assert "Content-Type" not in headers_of(answer)
    if status == 412:
        assert problem_of(answer)[1] == "precondition-failed"


@pytest.mark.parametrize(("since", "status"), [(AT, 200), (LATER, 304)])
def test_a_date_before_the_state_was_built_as_it_is_names_no_form_of_a_record(since: str, status: int):
    """Another `transform`, say, shows another value of the same record."""
    layout = replace(LAYOUT, incarnation=TIMESTAMP_MS + 1)
    ask = load_query(a_lane(layout, b"k", b"1", timestamp_ms=TIMESTAMP_MS))
    assert ask("GET", PATH, headers={"If-Modified-Since": since})["statusCode"] == status


def test_a_head_has_the_headers_of_a_get_and_no_body():
    get, head = (reading()(method, PATH) for method in ("GET", "HEAD"))
    assert (head["statusCode"], head["body"]) == (200, "")
    assert headers_of(head) == headers_of(get)


def test_a_condition_changes_no_answer_that_is_an_error_without_it():
    for headers in ({"If-Match": '"0-41"'}, {"If-Modified-Since": LATER}):
        assert reading(None)("GET", PATH, headers=headers)["statusCode"] == 404
        answer = reading(b"text")("GET", PATH, query={"fields": "a"}, headers=headers)
        assert answer["statusCode"] == 409


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": TAG}, 400),
        ({"If-None-Match": "*"}, 400),
        ({"If-Unmodified-Since": LATER}, 400),
        ({"If-Modified-Since": LATER}, None),
    ],
)
def test_a_write_with_a_condition_is_refused_and_one_that_is_of_reads_is_none(
    post: Ask, log: FakeLog, method: str, headers: dict[str, str], status: int | None
):
    answer = post("/topics/t/keys/k", b"1" if method == "PUT" else b"", method=method, headers=headers)
    assert answer["statusCode"] == status or (status is None and answer["statusCode"] in (200, 201))
    assert len(log.sent) == (status is None)


def test_an_envelope_s_weak_tag_matches_no_if_match():
    query = {"envelope": "true"}
    assert reading()("GET", PATH, query=query, headers={"If-Match": TAG})["statusCode"] == 412
    assert reading()("GET", PATH, query=query, headers={"If-Match": "*"})["statusCode"] == 200


def test_a_record_without_a_time_ignores_conditions_on_it():
    ask = reading(timestamp_ms=0)
    assert ask("GET", PATH, headers={"If-Modified-Since": LATER})["statusCode"] == 200
    assert ask("GET", PATH, headers={"If-Unmodified-Since": BEFORE})["statusCode"] == 200


@pytest.mark.parametrize(
    "text",
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"],
)
def test_dates_are_read_in_each_format_of_http(text: str):
    assert parse_http_date(text) == 784_111_777_000


@pytest.mark.parametrize(
    "text", ["", "784111777", "Sun, 06 Nov 1994 08:49:37", "Sun, 36 Nov 1994 08:49:37 GMT"]
)
def test_a_text_that_is_no_date_of_http_is_none(text: str):
    assert parse_http_date(text) is None


@pytest.mark.parametrize(
    ("accept", "value", "content_type"),
    [
        ("*/*", b"text", "text/plain; charset=utf-8"),
        ("*/*", bytes(range(256)), "application/octet-stream"),
        ("application/json", b"1", "application/json"),
        ("application/*;q=0.1", b"1", "application/json"),
        ("text/html, application/json;q=0.9", b"1", "application/json"),
        ("TEXT/PLAIN", b"text", "text/plain; charset=utf-8"),
        ("application/json;q=0, */*", b"text", "text/plain; charset=utf-8"),
        ("application/json, application/octet-stream;q=0.5", b"text", "application/octet-stream"),
        (",;q=x", b"text", "text/plain; charset=utf-8"),
        ("", b"text", "text/plain; charset=utf-8"),
        ("text/html", b"1", None),
        ("application/json", b"text", None),
        ("application/json;q=0, */*", b"1", "application/octet-stream"),
        ("image/*", b"\xff", None),
    ],
)
def test_a_record_s_answer_is_of_a_type_that_is_accepted(accept: str, value: bytes, content_type: str | None):
    answer = reading(value)("GET", PATH, headers={"Accept": accept})
    if content_type is None:
        assert problem_of(answer) == (406, "not-acceptable", "Accept")
        assert headers_of(answer)["Keylane-Position"] == "0:42"
    else:
        assert (answer["statusCode"], body_of(answer)) == (200, value)
        assert headers_of(answer)["Content-Type"] == content_type


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("*/*", 200),
        ("application/json", 200),
        ("application/octet-stream", 200),
        ("application/vnd.kafka.v2+json", 200),
        ("text/html", 406),
        ("application/json;q=0, text/html", 406),
    ],
)
def test_documents_are_json_or_406(accept: str, status: int):
    answer = reading()("GET", "/metadata/partitions", query={"topic": "flights"}, headers={"Accept": accept})
    assert answer["statusCode"] == status


def test_a_write_is_answered_in_json_whatever_is_accepted(post: Ask, log: FakeLog):
    answer = post("/topics/t/keys/k", b"v", method="PUT", headers={"Accept": "text/html"})
    assert answer["statusCode"] == 201
    assert len(log.sent) == 1


@pytest.mark.parametrize(
    ("path", "name", "meant"),
    [
        (PATH, "envelop", "envelope"),
        (PATH, "Envelope", "envelope"),
        (PATH, "offset", "min_offset"),
        ("/topics/flights/keys", "page_size", "limit"),
        ("/topics/flights/keys", "next", "cursor"),
        ("/views/flights", "limit", "no query parameters"),
        ("/metadata/partitions", "topics", "topic"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_one_that_was_meant(path: str, name: str, meant: str):
    answer = reading()("GET", path, query={name: "1"})
    assert problem_of(answer) == (400, "bad-request", name)
    assert meant in json.loads(answer["body"])["detail"].partition("It has")[0]


@pytest.mark.parametrize("depth", [*range(20, 1_000, 20), *range(700, 1_000, 3)])
def test_fields_of_a_deep_object_are_the_same_in_an_envelope(depth: int):
    deep = '{"a": ' * depth + "1.50" + "}" * depth
    ask = reading(deep.encode())
    plain = ask("GET", PATH, query={"fields": "a"})
    enveloped = ask("GET", PATH, query={"fields": "a", "envelope": "true"})
    assert plain["statusCode"] == enveloped["statusCode"]
    if plain["statusCode"] == 200:
        assert plain["body"] == deep
        assert enveloped["body"].endswith(f'"value": {deep}}}')
    assert (plain["statusCode"] == 200) == (depth <= MAX_NESTING)
