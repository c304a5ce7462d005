from __future__ import annotations

import asyncio
import base64
import threading
from email.utils import formatdate
from time import monotonic, time

import httpx
import pytest
from tests.unit.client.api_double import (
    FRESH,
    QUICK,
    ApiDouble,
    body_of,
    counted,
    found,
    page,
    problem,
    written,
)

from keylane_client import (
    AccessDenied,
    AsyncClient,
    ClientOptions,
    InvalidArgument,
    KeylaneError,
    NewRecord,
    NotKept,
    Position,
    PositionNotReached,
    PreconditionFailed,
    ProblemError,
    RateLimited,
    RequestRefused,
    RetryPolicy,
    ServiceFailed,
    Unavailable,
    UnknownTopic,
    Unreachable,
    WriteFailed,
    Written,
)
from keylane_client.context import Ledger


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ({"a": "ü"}, '{"a":"ü"}'.encode()),
        ("text", b"text"),
        (b"\xff", b"\xff"),
        (17, b"17"),
        ([None], b"[null]"),
    ],
)
def test_a_value_is_written_as_it_is_or_as_json(value, body):
    api = ApiDouble(written(7))
    assert api.topic().put("k", value) == Written("t", "k", Position(2, 7))
    assert (api.requests[0].method, api.requests[0].content) == ("PUT", body)


def test_a_queued_write_has_an_id_and_no_position():
    api = ApiDouble(httpx.Response(202, json={"status": "queued", "id": "x-0"}))
    assert api.topic().delete("k", respond_async=True) == Written("t", "k", None, "x-0")
    assert api.requests[0].headers["Prefer"] == "respond-async"


def test_pushed_records_have_results_of_their_own():
    offsets = [
        {"partition": 2, "offset": 1, "error_code": None, "error": None},
        {
            "partition": None,
            "offset": None,
            "error_code": 50003,
            "error": "late",
            "code": "X",
            "uncertain": True,
        },
        {"status": "queued", "id": "q-0", "partition": None, "offset": None},
    ]
    api = ApiDouble(httpx.Response(200, json={"offsets": offsets}))
    records = [
        NewRecord("a", {"n": 1}, partition=2),
        NewRecord(b"\xff", None, timestamp_ms=5),
        NewRecord(None, b"x"),
    ]
    ok, failed, queued = api.topic().push(records)
    assert ok == Written("t", "a", Position(2, 1))
    assert failed == WriteFailed("t", b"\xff", "late", "X", is_retriable=True, is_uncertain=True)
    assert queued == Written("t", None, None, "q-0")
    sent = body_of(api.requests[0])["records"]
    assert base64.b64decode(sent[0]["value"]) == b'{"n":1}'
    assert sent[1] == {"key": "/w==", "value": None, "timestamp": 5}


def test_reads_are_repeated_after_what_retry_after_says(monkeypatch):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    api = ApiDouble(
        problem(503, "state-unavailable", Retry_After="2"),
        problem(429, "throttled", Retry_After=formatdate(time() + 5, usegmt=True)),
        found(1),
    )
    assert api.topic()["k"].value == 1
    assert waits[0] == 2
    assert 3 < waits[1] <= 5


def test_reads_are_repeated_after_a_broken_connection_and_only_so_often():
    broken = httpx.ReadError("reset")
    assert ApiDouble(broken, httpx.ConnectError("refused"), found(1)).topic()["k"].value == 1
    api = ApiDouble(broken, broken, broken)
    with pytest.raises(Unreachable, match=r"the connection to api\.test broke"):
        api.topic().get("k")
    assert len(api.requests) == 3


def test_a_write_is_repeated_only_with_an_idempotency_key():
    refusal = problem(503, "log-unavailable", Retry_After="0")
    plain = ApiDouble(refusal)
    with pytest.raises(Unavailable):
        plain.topic().put("k", 1)
    keyed = ApiDouble(refusal, problem(409, "request-in-progress", Retry_After="0"), written(3))
    assert keyed.topic().put("k", 1, idempotency_key="once").position == Position(2, 3)
    assert {request.headers["Idempotency-Key"] for request in keyed.requests} == {"once"}


def test_a_write_that_may_have_been_done_is_not_repeated_though_it_has_an_idempotency_key():
    api = ApiDouble(problem(503, "log-unavailable", uncertain=True, Retry_After="0"))
    with pytest.raises(Unavailable) as caught:
        api.topic().put("k", 1, idempotency_key="once")
    assert caught.value.is_uncertain
    assert len(api.requests) == 1


def test_idempotent_writes_have_a_key_each_that_stays_through_repeats():
    api = ApiDouble(httpx.ReadTimeout("slow"), written(3), written(4))
    client = api.client(ClientOptions(retries=QUICK.retries, idempotent_writes=True))
    client.topic("t").put("k", 1)
    client.topic("t").put("k", 1)
    first, repeat, second = (request.headers["Idempotency-Key"] for request in api.requests)
    assert first == repeat != second


def test_a_wait_that_is_too_long_is_an_error_at_once_that_says_how_long():
    api = ApiDouble(problem(429, "rate-limited", Retry_After="60"))
    with pytest.raises(RateLimited) as caught:
        api.client(ClientOptions(retries=RetryPolicy(max_retry_after_s=10))).topic("t").get("k")
    assert caught.value.retry_after_s == 60


def test_the_asynchronous_client_repeats_too():
    api = ApiDouble(problem(503, "lane-building", Retry_After="0"), found(5))
    assert api.run(lambda client: client.topic("t")["k"]).value == 5


def test_the_asynchronous_client_does_not_block_while_it_waits_for_the_next_attempt():
    async def read(client: AsyncClient) -> list[str]:
        seen = []

        async def other() -> None:
            seen.append("other")

        task = asyncio.create_task(other())
        seen.append((await client.topic("t")["k"]).value)
        await task
        return seen

    began_s = monotonic()
    assert ApiDouble(problem(503, "lane-building", Retry_After="1"), found(5)).run(read) == ["other", 5]
    assert monotonic() - began_s >= 1


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, "bad-request", RequestRefused),
        (401, "unauthorized", AccessDenied),
        (403, "topic-not-served", AccessDenied),
        (412, "position-not-reached", PositionNotReached),
        (422, "value-invalid", RequestRefused),
        (500, "internal", ServiceFailed),
        (502, "produce-failed", ServiceFailed),
        (418, "of-a-later-version", RequestRefused),
        (404, "unknown-topic", UnknownTopic),
        (409, "no-index", NotKept),
        (409, "no-fields", NotKept),
        (412, "precondition-failed", PreconditionFailed),
    ],
)
def test_an_error_has_the_problem_in_it(status, kind, error):
    with pytest.raises(error) as caught:
        ApiDouble(problem(status, kind)).topic().put("k", 1)
    assert isinstance(caught.value, (ProblemError, KeylaneError))
    assert (caught.value.status, caught.value.type, caught.value.title) == (status, kind, "T")


def test_a_session_sends_the_position_of_its_own_write():
    api = ApiDouble(written(7), found(1), found(1))
    topic = api.session_topic()
    topic.put("k", 1)
    topic.get("k")
    topic.get("other")
    positions = [request.headers.get("Keylane-Min-Position") for request in api.requests]
    assert positions == [None, "2:7", None]


def test_a_session_does_not_wait_for_a_change_of_a_record_that_it_knows():
    """`Prefer: wait` with `If-None-Match` does: 20 s if nothing changes."""
    api = ApiDouble(written(7), found(1), httpx.Response(304, headers=FRESH), written(9), httpx.Response(200))
    api.answers.append(found(2, offset=9))
    topic = api.session_topic()
    topic.put("k", 1)
    known = topic["k"]
    assert topic.get("k", known=known) == known
    again = api.requests[2].headers
    assert (again["If-None-Match"], again["Keylane-Min-Position"]) == ('"2-7"', "2:7")
    assert "Prefer" not in again
    topic.put("k", 2)
    assert topic.get("k", known=known).value == 2
    wait, read = api.requests[4:]
    assert (wait.method, wait.headers["Keylane-Min-Position"], wait.headers["Prefer"]) == (
        "HEAD",
        "2:9",
        "wait=20",
    )
    assert "If-None-Match" not in wait.headers
    assert (read.headers["If-None-Match"], "Prefer" in read.headers) == ('"2-7"', False)


def test_a_session_waits_for_a_change_where_it_is_asked_to():
    api = ApiDouble(written(7), found(1), httpx.Response(304, headers=FRESH))
    topic = api.session_topic()
    topic.put("k", 1)
    topic.get("k", known=topic["k"], wait_s=3)
    assert api.requests[2].headers["Prefer"] == "wait=3"


def test_a_session_reads_a_range_again_until_it_has_its_own_writes():
    api = ApiDouble(
        written(8),
        written(9),
        page("a"),
        httpx.Response(200),
        page("a", "b", watermark=10, cursor="c"),
        page(watermark=10),
    )
    topic = api.session_topic()
    topic.put("a", 1)
    topic.put("b", 1)
    assert [record.key for record in topic.scan()] == ["a", "b"]
    assert [request.method for request in api.requests] == ["PUT", "PUT", "GET", "HEAD", "GET", "GET"]
    assert api.requests[3].headers["Keylane-Min-Position"] == "2:9"
    assert "If-None-Match" not in api.requests[3].headers  # with `Prefer: wait` it would wait for a change


def test_a_session_counts_again_until_the_count_has_its_own_writes():
    api = ApiDouble(written(9), counted(1), httpx.Response(200), counted(2, watermark=10))
    topic = api.session_topic()
    topic.put("b", 1)
    assert topic.count() == 2
    assert [request.method for request in api.requests] == ["PUT", "GET", "HEAD", "GET"]
    assert api.requests[2].headers["Keylane-Min-Position"] == "2:9"


def test_a_session_says_so_if_its_answers_go_on_lacking_its_write():
    """A replica that is behind answers ranges, though the position is in the state."""
    api = ApiDouble(written(9), page("a"), *[httpx.Response(200), page("a")] * 5)
    topic = api.session_topic()
    topic.put("b", 1)
    with pytest.raises(PositionNotReached, match="2:9 of topic 't' is not in 6 answers"):
        list(topic.scan())


def test_threads_may_write_in_a_session_while_others_scan():
    ledger = Ledger()

    def write() -> None:
        for number in range(20_000):
            ledger.note("t", f"k{number}", Position(0, number))

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        assert ledger.missing("t", lambda _: False, {}) == []
    writer.join()


def test_a_session_does_not_wait_for_keys_that_a_range_leaves_out():
    api = ApiDouble(written(99), page("b"))
    topic = api.session_topic()
    topic.put("a", 1)
    assert len(list(topic.scan(start="b"))) == 1


def test_a_session_waits_once_for_a_stray_whose_partition_is_in_no_watermark():
    api = ApiDouble(written(3, partition=5), page("k"), httpx.Response(200), page("k"))
    topic = api.session_topic()
    topic.put("k", 1)
    assert list(topic.get_many(["k"])) == ["k"]
    assert api.requests[2].headers["Keylane-Min-Position"] == "5:3"


def test_a_session_says_so_if_its_write_does_not_arrive():
    api = ApiDouble(written(99), page("k"), httpx.Response(412))
    topic = api.session_topic()
    topic.put("k", 1)
    with pytest.raises(PositionNotReached, match="2:99"):
        list(topic.scan())


def test_clients_do_not_see_each_others_sessions():
    api = ApiDouble(written(7), found(1), found(1))
    client = api.client()
    client.session().topic("t").put("k", 1)
    client.topic("t").get("k")
    client.session().topic("t").get("k")
    assert all("Keylane-Min-Position" not in request.headers for request in api.requests)


@pytest.mark.parametrize(
    ("schema", "query"), [(None, ""), ("latest", "schema=latest"), (7, "schema=7"), ("raw", "raw=true")]
)
def test_a_put_says_by_which_schema_its_value_is_written(schema: int | str | None, query: str):
    api = ApiDouble(written(3))
    api.topic().put("k", {"a": 1}, schema=schema)
    assert api.requests[0].url.query.decode() == query


def test_a_record_with_headers_takes_no_schema():
    with pytest.raises(InvalidArgument, match="takes no schema"):
        ApiDouble().topic().put("k", 1, headers={"a": "b"}, schema="latest")
