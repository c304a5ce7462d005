from __future__ import annotations

import base64
import inspect
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import httpx
import pytest
from tests.support.http_doubles import Exchange, HttpDouble
from tests.unit.client.api_double import (
    FRESH,
    ApiDouble,
    body_of,
    counted,
    found,
    found_bytes,
    page,
    problem,
    row,
)

from keylane_client import (
    Absent,
    AsyncClient,
    AsyncTopic,
    Client,
    ClientOptions,
    HistoryTooShort,
    InvalidAnswer,
    InvalidArgument,
    KeyAbsent,
    Position,
    Topic,
    Unavailable,
    Unreachable,
    parse_exactly,
)


def test_a_record_has_value_position_age_and_watermark():
    record = ApiDouble(found({"dest": "SFO"})).topic()["k"]
    assert record.value == {"dest": "SFO"}
    assert record.position == Position(2, 7)
    assert record.watermark == Position(2, 8)
    assert record.age == timedelta(milliseconds=250)
    assert record.timestamp == datetime(2013, 1, 1, 10, tzinfo=UTC)
    assert record.raw == b'{"dest":"SFO"}'


def test_a_record_may_have_no_timestamp():
    answer = found({"dest": "LAX"})
    del answer.headers["Keylane-Timestamp"]
    record = ApiDouble(answer).topic()["k"]
    assert (record.timestamp_ms, record.timestamp) == (None, None)


def test_an_absent_key_is_a_key_error_in_brackets_and_none_from_get():
    api = ApiDouble(*[problem(404, "key-absent")] * 2)
    topic = api.topic()
    with pytest.raises(KeyError) as caught:
        topic["k"]
    assert isinstance(caught.value, KeyAbsent)
    assert str(caught.value) == "404 key-absent: D"
    assert topic.get("k") is None


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("a/b c?", "/topics/t/keys/a%2Fb%20c%3F"),
        ("100%", "/topics/t/keys/100%25"),
        (b"\x00\xff", "/topics/t/keys/%00%FF"),
        ("ü", "/topics/t/keys/%C3%BC"),
        ("..", "/topics/t/keys/Li4?key_format=base64"),
        (".", "/topics/t/keys/Lg?key_format=base64"),
    ],
)
def test_a_key_reaches_the_service_byte_for_byte(key, path):
    api = ApiDouble(found(1))
    api.topic().get(key)
    assert api.paths == [path]


@pytest.mark.parametrize(
    ("content_type", "body", "value"),
    [
        ("text/plain; charset=utf-8", "ü".encode(), "ü"),
        ("application/octet-stream", b"\xff", b"\xff"),
        ("application/json", b"null", None),
    ],
)
def test_a_value_is_read_by_its_content_type(content_type, body, value):
    assert ApiDouble(found_bytes(body, content_type)).topic()["k"].value == value


def test_numbers_keep_their_digits_with_a_parser_of_ones_own():
    options = ClientOptions(loads=parse_exactly)
    api = ApiDouble(found_bytes(b'{"fare": 12.50, "far": 1e99999999999999999999}'))
    found = api.topic(options)["k"].value
    assert (str(found["fare"]), found["far"].digits) == ("12.50", "1e99999999999999999999")


def test_an_integer_of_any_length_is_a_number():
    api = ApiDouble(found_bytes(b'{"n": %b, "m": -7}' % (b"9" * 5_000)))
    assert api.topic()["k"].value == {"n": Decimal("9" * 5_000), "m": -7}


@pytest.mark.parametrize(
    "call",
    [
        lambda topic: topic.get("\ud800"),
        lambda topic: topic.get_many(["a", "\ud800"]),
        lambda topic: topic.get("x" * 70_000),
        lambda topic: list(topic.scan(prefix="\ud800")),
        lambda topic: list(topic.find({"name": "\ud800"})),
        lambda topic: topic.reading(fields=["\ud800"]).get("k"),
        lambda topic: topic.put("k", "a\ud800"),
        lambda topic: topic.put("k", {"a": "\ud800"}),
        lambda topic: topic.put("k", "v", idempotency_key="a\r\nb"),
        lambda topic: topic.put("k", "v", idempotency_key="\ud800"),
    ],
)
def test_what_no_request_can_have_is_an_argument_that_is_wrong(call):
    api = ApiDouble(found(1))
    with pytest.raises(InvalidArgument):
        call(api.topic())
    assert not api.requests


def test_conditions_and_positions_are_sent_as_headers():
    api = ApiDouble(found(1), found(1, offset=8))
    topic = api.topic()
    known = topic.get("k", min_position=Position(2, 7), wait_s=1.5)
    topic.get("k", known=known, if_match=known)
    first, second = (request.headers for request in api.requests)
    assert (first["Keylane-Min-Position"], first["Prefer"]) == ("2:7", "wait=1.5")
    assert second["If-Match"] == second["If-None-Match"] == '"2-7"'


def test_a_known_record_that_is_unchanged_is_as_fresh_as_the_answer():
    api = ApiDouble(found({"n": 1}), httpx.Response(304, headers=FRESH | {"Keylane-Age-Ms": "9"}))
    topic = api.topic()
    known = topic["k"]
    again = topic.get("k", known=known)
    assert (again.value, again.age) == ({"n": 1}, timedelta(milliseconds=9))


def test_terms_and_moments_become_parameters_of_reads():
    api = ApiDouble(found(1), httpx.Response(200, json=row("k") | {"headers": []}))
    topic = api.topic()
    topic.at(datetime(2026, 1, 2, tzinfo=UTC)).get("k")
    terms = {"fields": ["a", "b.c"], "max_age": timedelta(seconds=2), "partial": True, "headers": True}
    assert topic.reading(**terms)["k"].headers == ()
    assert dict(api.requests[0].url.params) == {"as_of": "2026-01-02T00:00:00.000Z"}
    wanted = {"envelope": "true", "fields": "a,b.c", "max_age_ms": "2000", "partial": "true"}
    assert dict(api.requests[1].url.params) == wanted


def test_many_keys_are_read_in_requests_of_a_thousand():
    keys = [f"k{number}" for number in range(1500)]
    absent = {"key": "x", "key_format": "text", "absent": True}

    def answer(count):
        return httpx.Response(200, json={"records": [absent] * (count - 1) + [row("last")], "watermarks": {}})

    api = ApiDouble(answer(1000), answer(500))
    records = api.topic().get_many([*keys, keys[0]])
    assert list(records) == keys
    assert [key for key, record in records.items() if record] == ["k999", "k1499"]
    body = body_of(api.requests[1])
    assert body == {"keys": keys[1000:]}


def test_many_keys_are_in_base64_if_one_is_not_text():
    api = ApiDouble(httpx.Response(200, json={"records": [row("a"), row("b")], "watermarks": {}}))
    assert list(api.topic().get_many(["a", b"\xff"])) == ["a", b"\xff"]
    body = body_of(api.requests[0])
    assert body == {
        "keys": [base64.b64encode(key).decode() for key in (b"a", b"\xff")],
        "key_format": "base64",
    }


def test_a_typed_key_is_asked_for_by_its_number_or_its_fields():
    typed = {**row("x"), "key": {"id": 7}, "key_format": "json"}
    many = httpx.Response(200, json={"records": [typed, typed], "watermarks": {}})
    api = ApiDouble(found(1), found(1), many, httpx.Response(200, json={"records": [typed]}))
    topic = api.topic()
    assert topic[7].key == "7"
    assert topic.get({"region": "e\u00fc", "number": 7}).key == '{"region":"e\u00fc","number":7}'
    assert list(topic.get_many([7, {"id": 8}])) == ["7", '{"id":8}']
    assert [record.key for record in topic.scan()] == [{"id": 7}]
    assert api.paths[:2] == [
        "/topics/t/keys/7",
        "/topics/t/keys/%7B%22region%22%3A%22e%C3%BC%22%2C%22number%22%3A7%7D",
    ]
    assert body_of(api.requests[2]) == {"keys": ["7", '{"id":8}']}
    for wrong in (True, {"id": object()}):
        with pytest.raises(ValueError, match=r"key is a string|not JSON"):
            topic.get(wrong)


def test_change_events_are_read_instead_of_rows():
    api = ApiDouble(found({"op": "c"}), page("a"), page())
    topic = api.topic().reading(event=True)
    assert topic["k"].value == {"op": "c"}
    assert [list(topic.scan()), list(topic.history("k"))][1] == []
    assert all("event=true" in path for path in api.paths)


def test_a_scan_follows_cursors_to_the_end_and_through_empty_pages():
    api = ApiDouble(page("a", cursor="c1"), page(cursor="c2"), page("b"))
    records = list(api.topic().scan(prefix="p|", page_size=1))
    assert [record.key for record in records] == ["a", "b"]
    assert api.paths == [
        "/topics/t/keys?prefix=p%7C&limit=1",
        "/topics/t/keys?prefix=p%7C&limit=1&cursor=c1",
        "/topics/t/keys?prefix=p%7C&limit=1&cursor=c2",
    ]


def test_a_scan_asks_for_no_page_before_it_is_needed():
    api = ApiDouble(page("a", "b", cursor="c1"))
    assert next(api.topic().scan()).key == "a"
    assert len(api.requests) == 1


def test_bounds_that_are_not_text_are_base64_together():
    api = ApiDouble(page())
    assert list(api.topic().keys(start=b"\xff", stop=b"\xff\xff")) == []
    assert dict(api.requests[0].url.params) == {
        "from": "_w==",
        "to": "__8=",
        "key_format": "base64",
        "keys_only": "true",
    }


def test_a_count_sends_the_terms_that_a_count_has():
    api = ApiDouble(counted(7), counted(0))
    topic = api.client().topic("a b")
    assert topic.count() == 7
    assert topic.reading(fields=["a"], max_age=timedelta(seconds=2), partial=True).count() == 0
    assert api.paths == ["/topics/a%20b/count", "/topics/a%20b/count?max_age_ms=2000&partial=true"]


@pytest.mark.parametrize("answer", [counted(None), counted("many"), httpx.Response(200, json={})])
def test_an_answer_without_a_count_is_no_answer_of_keylane(answer):
    with pytest.raises(InvalidAnswer):
        ApiDouble(answer).topic().count()


def test_a_key_whose_history_is_too_short_stops_a_scan():
    short = {"key": "k", "key_format": "text", "history_too_short": True, "since_ms": 5}
    api = ApiDouble(httpx.Response(200, json={"records": [short]}))
    with pytest.raises(HistoryTooShort) as caught:
        list(api.topic().at(1).scan())
    assert caught.value.problem["since_ms"] == 5


def test_a_history_has_deletions_and_its_pages_freshness():
    entries = [
        {"partition": 2, "offset": 4, "timestamp": 2, "deleted": True},
        {"partition": 2, "offset": 3, "timestamp": 1, "value_format": "text", "value": "x"},
    ]
    document = {"records": entries, "watermarks": {"2": 5}, "age_ms": 78}
    api = ApiDouble(httpx.Response(200, json=document))
    deleted, earlier = api.topic().history("k", start=1)
    assert (deleted.is_deleted, deleted.value, deleted.watermark) == (True, None, Position(2, 5))
    assert (earlier.is_deleted, earlier.value, earlier.age) == (False, "x", timedelta(milliseconds=78))
    assert api.paths == ["/topics/t/keys/k/history?from=1"]


def test_a_watch_gives_a_key_then_each_change_of_it_by_polls_where_nothing_is_streamed():
    api = ApiDouble(
        problem(404, "key-absent", **FRESH),
        problem(501, "not-streamed"),
        problem(412, "position-not-reached"),
        found(1, offset=8),
        httpx.Response(304, headers=FRESH),
        found(2, offset=9),
        problem(404, "key-absent", **FRESH),
    )
    watch = api.topic().watch("k", wait_s=3)
    seen = [next(watch) for _ in range(4)]
    assert [each.value if not isinstance(each, Absent) else None for each in seen] == [None, 1, 2, None]
    waits = [(r.headers.get("If-None-Match"), r.headers.get("Keylane-Min-Position")) for r in api.requests]
    assert waits == [
        (None, None),
        (None, None),
        (None, "2:8"),
        (None, "2:8"),
        ('"2-8"', None),
        ('"2-8"', None),
        ('"2-9"', None),
    ]


def events(*lines: str) -> httpx.Response:
    content = "".join(f"{line}\n\n" for line in lines).encode()
    return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=content)


def record_event(value: object, offset: int) -> str:
    document = row("k") | {"offset": offset, "position": f"2:{offset}", "value": value}
    return f"id: 2:{offset}\nevent: record\ndata: {json.dumps(document, ensure_ascii=False)}"


def test_a_watch_goes_on_by_the_stream_and_resumes_it_where_it_broke():
    absent = json.dumps({"key": "k", "key_format": "text", "absent": True, "watermark": "2:11", "age_ms": 5})
    api = ApiDouble(
        found(1, offset=8),
        events(
            "retry: 1000",
            record_event(1, 8),
            ":",
            record_event({"a": "\u2028"}, 9),
            "event: closing\ndata: {}",
        ),
        problem(503, "overloaded"),
        httpx.ReadError("gone"),
        events("event: problem\ndata: {}", f"id: 2:10\nevent: absent\ndata: {absent}", record_event(3, 12)),
    )
    watch = api.topic().reading(fields=["a"]).watch("k")
    seen = [next(watch) for _ in range(4)]
    assert [each.value if not isinstance(each, Absent) else each.watermark for each in seen] == [
        1,
        {"a": "\u2028"},
        Position(2, 11),
        3,
    ]
    assert set(api.paths[1:]) == {"/topics/t/keys/k/changes?fields=a"}
    assert [each.headers.get("Last-Event-ID") for each in api.requests] == [None, "2:8", "2:9", "2:9", "2:9"]


def test_records_of_a_topic_that_was_created_again_are_other_ones_at_the_same_positions():
    tagged = found(1, offset=8)
    tagged.headers["ETag"] = '"2-8@5"'
    again = record_event(2, 8).replace("id: 2:8", "id: 2:8@7")
    api = ApiDouble(tagged, events(record_event(1, 8).replace("id: 2:8", "id: 2:8@5"), again), events(again))
    topic = api.topic()
    watch = topic.watch("k")
    seen = [next(watch), next(watch)]
    assert [each.value for each in seen] == [1, 2]
    assert [each.etag for each in seen] == ['"2-8@5"', '"2-8@7"']
    assert api.requests[1].headers["Last-Event-ID"] == "2:8@5"


def test_a_stream_that_fails_again_and_again_raises_its_error():
    api = ApiDouble(found(1), *(problem(503, "overloaded") for _ in range(3)))
    watch = api.topic().watch("k")
    assert next(watch).value == 1
    with pytest.raises(Unavailable):
        next(watch)


def test_a_stream_that_lasts_and_is_cut_is_no_failure_however_often_though_the_key_does_not_change():
    def cut() -> Iterator[bytes]:
        yield b"retry: 1000\n\n"
        yield b":\n\n"
        raise httpx.ReadError("a proxy ends what takes long")

    streams = [
        httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=cut()) for _ in range(5)
    ]
    api = ApiDouble(found(1, offset=8), *streams, events(record_event(2, 9)))
    watch = api.topic().watch("k")
    assert [next(watch).value for _ in range(2)] == [1, 2]


def test_a_poll_that_is_answered_at_once_with_what_is_known_is_not_sent_again_at_once(monkeypatch):
    paused: list[float] = []
    monkeypatch.setattr("time.sleep", paused.append)
    cached = [found(1, offset=8) for _ in range(3)]
    api = ApiDouble(cached[0], problem(501, "not-streamed"), *cached[1:], found(2, offset=9))
    watch = api.topic().watch("k")
    assert [next(watch).value for _ in range(2)] == [1, 2]
    assert paused == [0.25, 0.25]


def test_an_answer_that_is_no_stream_is_polled():
    api = ApiDouble(found(1, offset=8), found(1, offset=8), found(2, offset=9))
    watch = api.topic().watch("k")
    assert [next(watch).value for _ in range(2)] == [1, 2]


def test_an_asynchronous_watch_uses_the_stream_too():
    async def two(client: AsyncClient) -> list[object]:
        watch = client.topic("t").watch("k")
        return [(await anext(watch)).value for _ in range(2)]

    assert ApiDouble(found(1, offset=8), events(record_event(2, 9))).run(two) == [1, 2]


def log_page(partition: int, *times: int, next_offset: int) -> httpx.Response:
    records = [
        {
            "partition": partition,
            "offset": next_offset - len(times) + number,
            "timestamp": time,
            "key": None,
            "key_format": "null",
            "value": f"{partition}.{time}",
            "value_format": "text",
            "headers": [],
        }
        for number, time in enumerate(times)
    ]
    marks = {"low": 0, "high": next_offset}
    return httpx.Response(200, json={"records": records, "next_offset": next_offset, "watermarks": marks})


def partitions(count: int) -> httpx.Response:
    return httpx.Response(200, json={"partitions": [{"partition": number} for number in range(count)]})


def offset(number: int | None) -> httpx.Response:
    return httpx.Response(200, json={"offset": number})


def test_a_tail_reads_each_partition_from_its_end_and_new_ones_from_their_start():
    gone = {"type": "urn:keylane:problem:offset-out-of-range", "detail": "D", "low": 40}
    api = ApiDouble(
        *(partitions(2), offset(5), offset(7)),
        *(partitions(2), log_page(0, next_offset=5), log_page(1, next_offset=7)),
        *(partitions(2), log_page(0, 30, 10, next_offset=7), log_page(1, 20, next_offset=8)),
        *(
            partitions(3),
            httpx.Response(404, json=gone),
            log_page(1, next_offset=8),
            log_page(2, 5, next_offset=1),
        ),
        *(partitions(3), log_page(0, 50, next_offset=41)),
        *(log_page(1, next_offset=8), log_page(2, next_offset=1)),
    )
    tail = api.topic().tail(pause_s=0)
    assert [next(tail).value for _ in range(5)] == ["1.20", "0.30", "0.10", "2.5", "0.50"]
    reads = [path for path in api.paths if "/records" in path]
    first = [path.rpartition("offset=")[2].partition("&")[0] for path in reads]
    assert first == ["5", "7", "5", "7", "7", "8", "earliest", "40", "8", "1"]


def test_a_tail_from_a_time_begins_at_its_first_record_or_at_the_end():
    api = ApiDouble(
        *(partitions(2), offset(5), offset(3), offset(7), offset(None)),
        *(partitions(2), log_page(0, 9, next_offset=4), log_page(1, next_offset=7)),
    )
    assert next(api.topic().tail("2026-01-01")).value == "0.9"
    asked = [path.rpartition("/")[2] for path in api.paths]
    assert asked[1:5] == ["offsets?at=latest", "offsets?at=2026-01-01"] * 2
    assert [path.partition("&")[0] for path in asked[6:]] == ["records?offset=3", "records?offset=7"]


def test_an_answer_of_another_server_is_an_error_that_says_so():
    pages = [
        httpx.Response(200, text="<html>It works!"),
        httpx.Response(404, text="<html>nginx"),
        httpx.Response(200, json=[]),
    ]
    for each in pages:
        with pytest.raises(InvalidAnswer, match="is the URL that of Keylane"):
            ApiDouble(each).topic().get_many(["k"])


PAGES_OF_PROXIES = [
    *(httpx.Response(status, text="<html>") for status in (502, 503, 504, 522)),
    httpx.Response(502),
    httpx.Response(429, text="<html>", headers={"Retry-After": "0"}),
]


@pytest.mark.parametrize("page", PAGES_OF_PROXIES, ids=lambda page: f"{page.status_code}-{len(page.content)}")
def test_a_page_of_a_proxy_that_does_not_reach_the_service_is_asked_for_again(page):
    api = ApiDouble(page, found(1))
    assert api.topic()["k"].value == 1
    assert len(api.requests) == 2


def test_a_proxy_without_the_service_behind_it_is_named_and_a_write_is_not_repeated():
    api = ApiDouble(httpx.Response(504, text="<html>Gateway Time-out"))
    with pytest.raises(Unreachable, match=r"a proxy answers with status 504: .*Gateway Time-out"):
        api.topic().put("k", 1)
    assert len(api.requests) == 1


def test_a_redirect_is_not_followed_and_says_where_to():
    moved = httpx.Response(308, headers={"Location": "https://example.org/api"})
    with pytest.raises(InvalidAnswer, match=r"redirected to 'https://example\.org/api'"):
        ApiDouble(moved).topic().get("k")


@pytest.mark.parametrize("changed", ['W/"2-7@17"', '"2-7@17-gzip"', '"2-7@17;br"'])
def test_a_tag_that_a_proxy_has_changed_is_the_services_again(changed):
    first = found(1)
    first.headers["ETag"] = changed
    api = ApiDouble(first, found(1))
    topic = api.topic()
    topic.get("k", if_match=topic["k"])
    assert api.requests[1].headers["If-Match"] == '"2-7@17"'


def test_the_asynchronous_client_gives_the_same():
    async def read(client: AsyncClient):
        topic = client.topic("t")
        return (await topic["k"]).value, [record.key async for record in topic.scan()]

    assert ApiDouble(found(1), page("a", cursor="c"), page("b")).run(read) == (1, ["a", "b"])


def test_methods_are_described_as_what_they_are():
    described = {
        Topic.get: "Record | None",
        Topic.scan: "Iterator[Record]",
        AsyncTopic.get: "Awaitable[Record | None]",
        AsyncTopic.watch: "AsyncIterator[Record | Absent]",
    }
    for method, result in described.items():
        assert inspect.signature(method).return_annotation == result
    assert "min_position" in inspect.signature(Topic.get).parameters


def test_a_process_that_was_forked_does_not_ask_over_the_connections_of_its_parent():
    """It would take an answer that is its parent's, and its parent one that is not its own."""
    ports: dict[str, int] = {}  # from which it was asked for a key: those of connections

    def give_the_key(asked: Exchange) -> None:
        key = asked.path.rpartition("/")[2]
        ports[key] = asked.client_address[1]
        headers = {**FRESH, "Keylane-Position": "2:7", "Keylane-Timestamp": "1"}
        headers["Content-Type"] = "application/json"
        asked.answer(200, json.dumps(key).encode(), headers.items())

    with (
        HttpDouble(give_the_key, protocol="HTTP/1.1") as server,
        Client(server.url, options=ClientOptions(timeout_s=10)) as client,
    ):
        topic = client.topic("t")
        assert topic["before"].value == "before"
        child = os.fork()
        if not child:
            with suppress(BaseException):
                os._exit(topic["child"].value != "child")
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert topic["after"].value == "after"
    assert ports["after"] == ports["before"] != ports["child"]
