"""Answers: bytes as they are, content types, headers, conditions, envelopes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW_MS, TERMS, a_layout, a_request, a_watermark, query_settings

from keylane.api.reads.key import KnownTags, ReadKeyRequest, parse_read_key, render_record
from keylane.api.writes import key as write_key
from keylane.model.records import Answer, Options, Position, Record
from keylane.ports import Clock, WaitBudget
from keylane.query.decoding import ValueDecoder
from keylane.query.latest import Wait

if TYPE_CHECKING:
    from keylane.api.http.response import Response

PLAIN = Options()
RECORD = Record(b"N14228", b'{"origin": "EWR"}', 3, 42, NOW_MS - 1_000)


def respond(
    record: Record | None = RECORD,
    *,
    if_none_match: str | None = None,
    envelope: bool = False,
    as_bytes: bool = False,
    as_of: int | None = None,
    now_ms: int = NOW_MS,
    options: Options = PLAIN,
    **watermark: Any,
) -> Response[Any]:
    answer = Answer(a_layout("flights", options=options), 5, record, a_watermark(**watermark))
    known = None if if_none_match is None else KnownTags.parse(if_none_match, as_bytes=as_bytes)
    request = ReadKeyRequest(
        "flights",
        b"N14228",
        TERMS,
        Wait(),
        as_of,
        known=known,
        envelope=envelope,
        as_bytes=as_bytes,
        request_id="request-1",
    )
    decoder = ValueDecoder(lambda: pytest.fail("no value here needs a schema"), WaitBudget(1_000, Clock()))
    return render_record(answer, request, decoder, now_ms)


def of_value(value: bytes, **record: Any) -> Record:
    return Record(b"k", value, 3, 42, **({"timestamp_ms": NOW_MS} | record))


def test_record_answers_with_all_its_headers():
    response = respond()
    assert response.status_code == 200
    assert response.body == '{"origin": "EWR"}'
    assert response.headers == {
        "Content-Type": "application/json",
        "ETag": '"3-42"',
        "Last-Modified": "Tue, 01 Jan 2013 09:59:59 GMT",
        "Keylane-Position": "3:42",
        "Keylane-Timestamp": "1357034399000",
        "Keylane-Watermark": "5:100",
        "Keylane-Age-Ms": "200",
        "Cache-Control": "no-cache",
        "Vary": "Accept",
        "X-Content-Type-Options": "nosniff",
    }


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b"[1, 2]",
        b'"text"',
        b"12",
        b"-1.5e3",
        b"null",
        b" true\n",
        b'"\\ud800"',
        b"1" * 10_000,
        b"1e99999",
    ],
)
def test_json_is_answered_as_json(value: bytes):
    response = respond(of_value(value))
    assert response.headers["Content-Type"] == "application/json"
    assert response.body == value.decode()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"text",
        b"{",
        b"{'a': 1}",
        b"NaN",
        b"[Infinity]",
        b"1 2",
        "\ufeff{}".encode(),
        b"\xc3\xa4\0",
        b"[" * 50_000,
    ],
)
def test_text_is_answered_as_text(value: bytes):
    response = respond(of_value(value))
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.body == value.decode()


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_values_come_as_they_were_written(value: bytes):
    body = respond(of_value(value)).body
    assert (body if isinstance(body, bytes) else body.encode()) == value


LEFT = Record(b"N14228", b"", 3, 42, NOW_MS, left_in_kafka_bytes=5_000_000)


def test_a_value_left_in_kafka_is_reported_with_its_position_and_size():
    response = respond(LEFT)
    assert response.status_code == 422
    assert json.loads(response.body)["type"] == "urn:keylane:problem:value-left-in-kafka"
    assert response.headers["Keylane-Position"] == "3:42"
    assert response.headers["Keylane-Value-Bytes"] == "5000000"
    assert response.headers["ETag"] == '"3-42"'
    assert response.headers["Keylane-Age-Ms"] == "200"
    assert respond(LEFT, if_none_match='"3-42"').status_code == 304


def test_the_envelope_of_a_value_left_in_kafka_has_its_size_in_place_of_it():
    response = respond(LEFT, envelope=True)
    document = json.loads(response.body)
    assert response.status_code == 200
    assert (document["value"], document["value_format"], document["value_bytes"]) == (
        None,
        "left-in-kafka",
        5_000_000,
    )
    assert document["position"] == "3:42"


def test_the_envelope_shows_headers_where_the_topic_keeps_them():
    headers = (("trace", b"\xc3\xa9"), ("trace", b"\xff"), ("none", None), ("json", b"{}"))
    record = Record(b"k", b"1", 3, 42, NOW_MS, headers)
    kept = json.loads(respond(record, envelope=True, options=Options(headers=True)).body)
    assert kept["headers"] == [
        {"name": "trace", "value": "\u00e9", "value_format": "text"},
        {"name": "trace", "value": "/w==", "value_format": "base64"},
        {"name": "none", "value": None, "value_format": "null"},
        {"name": "json", "value": "{}", "value_format": "text"},
    ]
    assert "headers" not in json.loads(respond(record, envelope=True).body)


@pytest.mark.parametrize(("record", "status"), [(RECORD, 200), (None, 404)])
def test_an_answer_of_a_lane_that_is_being_built_says_so_and_has_no_age(record, status):
    response = respond(record, complete_as_of_ms=0)
    assert response.status_code == status
    assert response.headers["Keylane-Building"] == "true"
    assert "Keylane-Age-Ms" not in response.headers


def test_absent_key_is_reported_with_its_freshness():
    response = respond(None)
    assert response.status_code == 404
    assert json.loads(response.body)["type"] == "urn:keylane:problem:key-absent"
    assert response.headers["Keylane-Watermark"] == "5:100"
    assert response.headers["Keylane-Age-Ms"] == "200"
    assert "ETag" not in response.headers


@pytest.mark.parametrize(
    ("as_of", "said"),
    [
        (None, "topic 'flights' holds no record under this key"),
        (5, "topic 'flights' held no record under this key at that time"),
    ],
)
def test_an_absent_key_of_the_past_says_that_it_was_absent_then(as_of, said):
    assert json.loads(respond(None, as_of=as_of).body)["detail"] == said


@pytest.mark.parametrize("tags", ['"3-42"', 'W/"3-42"', "*", " * ", '"1-1", W/"3-42"', '"1-1","3-42"'])
def test_known_record_is_not_sent_again(tags: str):
    response = respond(if_none_match=tags)
    assert (response.status_code, response.body) == (304, "")
    assert response.headers["ETag"] == '"3-42"'
    assert response.headers["Keylane-Age-Ms"] == "200"
    assert "Content-Type" not in response.headers


def test_a_tag_names_the_incarnation_of_the_topic_and_if_match_takes_a_position_alone():
    layout = a_layout("flights", options=PLAIN, incarnation=7)
    answer = Answer(layout, 5, RECORD, a_watermark())

    def status(**headers: str) -> int:
        request = a_request("GET", "/topics/flights/keys/k", headers=headers)
        read = parse_read_key(request, "flights", "k", query_settings())
        decoder = ValueDecoder(
            lambda: pytest.fail("no value here needs a schema"), WaitBudget(1_000, Clock())
        )
        response = render_record(answer, read, decoder, NOW_MS)
        if response.status_code == 200:
            assert response.headers["ETag"] == '"3-42@7"'
        return response.status_code

    assert [status(**{"If-None-Match": tag}) for tag in ('"3-42@7"', '"3-42@6"', '"3-42"')] == [304, 200, 200]
    assert [status(**{"If-Match": tag}) for tag in ('"3-42@7"', '"3-42@6"', '"3-42"')] == [200, 412, 200]


def test_incomplete_lane_never_claims_to_be_complete():
    assert respond(incomplete=True).headers["Keylane-Incomplete"] == "true"
    assert respond(None, incomplete=True).headers["Keylane-Incomplete"] == "true"
    assert json.loads(respond(envelope=True, incomplete=True).body)["incomplete"] is True
    assert "incomplete" not in json.loads(respond(envelope=True).body)


def test_a_record_without_a_timestamp_has_no_header_of_it():
    response = respond(of_value(b"v", timestamp_ms=0))
    assert not {"Last-Modified", "Keylane-Timestamp"} & response.headers.keys()
    assert json.loads(respond(of_value(b"v", timestamp_ms=0), envelope=True).body)["timestamp"] is None


@pytest.mark.parametrize("timestamp_ms", [10**15, 2**64 - 1])
def test_timestamp_outside_http_dates_has_no_last_modified(timestamp_ms: int):
    response = respond(of_value(b"v", timestamp_ms=timestamp_ms))
    assert "Last-Modified" not in response.headers
    assert response.headers["Keylane-Timestamp"] == str(timestamp_ms)


def test_last_modified_is_never_in_the_future():
    response = respond(of_value(b"v", timestamp_ms=NOW_MS + 60_000))
    assert response.headers["Last-Modified"] == "Tue, 01 Jan 2013 10:00:00 GMT"


def test_envelope_holds_json_and_its_metadata():
    response = respond(envelope=True)
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["ETag"] == 'W/"3-42"'
    assert json.loads(response.body) == {
        "topic": "flights",
        "partition": 3,
        "offset": 42,
        "position": "3:42",
        "timestamp": NOW_MS - 1_000,
        "key": "N14228",
        "key_format": "text",
        "value": {"origin": "EWR"},
        "value_format": "json",
        "watermark": "5:100",
        "age_ms": 200,
    }


def test_envelope_keeps_numbers_digit_by_digit():
    body = respond(of_value(b'{"n": 12345678901234567890.10}'), envelope=True).body
    assert '"value": {"n": 12345678901234567890.10}' in body


def test_envelope_of_text_and_of_bytes():
    text = json.loads(respond(of_value(b'say "x"'), envelope=True).body)
    assert (text["value"], text["value_format"]) == ('say "x"', "text")
    data = json.loads(respond(Record(b"\xff", b"\xfe", 0, 0, 0), envelope=True).body)
    assert (data["value"], data["value_format"]) == ("/g==", "base64")
    assert (data["key"], data["key_format"]) == ("/w==", "base64")


def test_written_position_is_in_body_and_header():
    response = write_key.render_position(Position(3, 7), 201)
    assert response.status_code == 201
    assert json.loads(str(response.body)) == {"partition": 3, "offset": 7, "position": "3:7"}
    assert response.headers["Keylane-Position"] == "3:7"


@pytest.mark.parametrize(("as_bytes", "tag"), [(False, '"3-42"'), (True, '"3-42-bytes"')])
def test_bytes_and_decoded_value_have_tags_of_their_own(as_bytes: bool, tag: str):
    assert respond(as_bytes=as_bytes).headers["ETag"] == tag
    for known, status in ((tag, 304), ('"3-42"' if as_bytes else '"3-42-bytes"', 200)):
        assert respond(as_bytes=as_bytes, if_none_match=known).status_code == status
