"""Hooks around requests, headers of records, `key in topic`, and how errors and objects look."""

from __future__ import annotations

import base64
from contextlib import contextmanager

import httpx
import pytest
from tests.unit.client.api_double import FRESH, QUICK, URL, ApiDouble, body_of, found, problem, written

import keylane_client
from keylane_client import (
    ApiKey,
    AsyncClient,
    Client,
    ClientOptions,
    InvalidArgument,
    KeylaneError,
    NewRecord,
    Position,
    RequestRefused,
    Unavailable,
    UnknownTopic,
    Unreachable,
    Written,
)


class Noted:
    """A hook that notes what it saw, and adds a header."""

    def __init__(self, name="a"):
        self.name, self.seen = name, []

    @contextmanager
    def __call__(self, exchange):
        exchange.headers["traceparent"] = exchange.headers.get("traceparent", "") + self.name
        try:
            yield
        finally:
            self.seen.append((exchange.method, exchange.path, exchange.status, type(exchange.error).__name__))
            assert exchange.took_s >= 0


def options(*hooks):
    return ClientOptions(retries=QUICK.retries, hooks=hooks)


def test_a_hook_sees_each_attempt_and_its_headers_are_sent():
    outer, inner = Noted("o"), Noted("i")
    api = ApiDouble(problem(503, "redis-unavailable"), httpx.ConnectError("no"), found(1))
    with api.client(options(outer, inner)) as client:
        client.topic("t").get("k/1")
    path = "/topics/t/keys/k%2F1"
    assert (
        outer.seen
        == inner.seen
        == [
            ("GET", path, 503, "Unavailable"),
            ("GET", path, None, "Unreachable"),
            ("GET", path, 200, "NoneType"),
        ]
    )
    assert {request.headers["traceparent"] for request in api.requests} == {"oi"}


def test_the_asynchronous_client_has_hooks_in_the_task_that_asks():
    noted, api = Noted(), ApiDouble(found(1), problem(404, "unknown-topic"))

    async def read(client: AsyncClient):
        await client.topic("t").get("k")
        with pytest.raises(UnknownTopic):
            await client.topic("t").get("k")

    api.run(read, options(noted))
    assert [each[2:] for each in noted.seen] == [(200, "NoneType"), (404, "UnknownTopic")]


def test_a_stream_of_events_is_one_exchange_until_it_begins():
    event = b'id: 2:10\nevent: absent\ndata: {"absent": true, "watermark": "2:11", "age_ms": 1}\n\n'
    stream = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=event)
    noted, api = Noted(), ApiDouble(found(1), stream)
    changes = api.client(options(noted)).topic("t").watch("k")
    assert next(changes).value == 1
    next(changes)
    changes.close()
    assert [each[1:3] for each in noted.seen] == [
        ("/topics/t/keys/k", 200),
        ("/topics/t/keys/k/changes", 200),
    ]


def pushed(**entry):
    return httpx.Response(200, json={"offsets": [{"partition": 2, "offset": 7, "error_code": None, **entry}]})


@pytest.mark.parametrize("headers", [{"trace": "ü", "raw": b"\xff", "none": None}, [("a", "1"), ("a", "2")]])
def test_a_record_is_written_with_its_headers(headers):
    api = ApiDouble(pushed())
    assert api.topic().put("k", {"a": 1}, headers=headers) == Written("t", "k", Position(2, 7))
    [record] = body_of(api.requests[0])["records"]
    assert base64.b64decode(record["value"]) == b'{"a":1}'
    sent = [
        (each["name"], None if each["value"] is None else base64.b64decode(each["value"]))
        for each in record["headers"]
    ]
    given = headers.items() if isinstance(headers, dict) else headers
    assert sent == [(name, value.encode() if isinstance(value, str) else value) for name, value in given]


def test_a_tombstone_and_pushed_records_have_headers_too_and_a_session_waits_for_them():
    api = ApiDouble(pushed(), pushed(offset=8), found(1))
    topic = api.client().session().topic("t")
    topic.delete("k", headers={"why": "gone"}, idempotency_key="i")
    topic.push([NewRecord("k", 1, headers={"n": b"1"})])
    topic.get("k")
    first, second, third = api.requests
    assert body_of(first)["records"][0]["value"] is None
    assert first.headers["Idempotency-Key"] == "i"
    assert body_of(second)["records"][0]["headers"] == [{"name": "n", "value": "MQ=="}]
    assert third.headers["Keylane-Min-Position"] == "2:8"


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"error_code": 50002, "error": "too large", "code": "MESSAGE_TOO_LARGE"}, RequestRefused),
        ({"error_code": 50003, "error": "late", "retriable": True}, Unavailable),
        ({"error_code": 50002, "error": "late", "uncertain": True}, Unavailable),
    ],
)
def test_a_record_with_headers_that_is_not_written_is_an_error_as_of_a_put(entry, error):
    with pytest.raises(error) as caught:
        ApiDouble(pushed(**entry)).topic().put("k", 1, headers={"a": "b"})
    assert caught.value.detail == entry["error"]
    assert caught.value.is_uncertain == entry.get("uncertain", False)


def answer(status, **headers):
    return httpx.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(("status", "is_there"), [(200, True), (404, False), (422, True), (413, True)])
def test_a_key_is_in_a_topic_or_not_and_its_value_is_not_sent(status, is_there):
    api = ApiDouble(httpx.Response(status, headers=FRESH))
    assert ("k" in api.topic().reading(fields=["a"])) is is_there
    assert (api.requests[0].method, api.paths[0]) == ("HEAD", "/topics/t/keys/k")


def test_a_key_of_an_unknown_topic_is_neither_there_nor_not():
    api = ApiDouble(httpx.Response(404), problem(404, "unknown-topic"))
    with pytest.raises(UnknownTopic):
        "k" in api.topic()  # noqa: B015
    assert [request.method for request in api.requests] == ["HEAD", "GET"]


def test_a_session_finds_a_key_that_it_has_written():
    api = ApiDouble(written(7), httpx.Response(200, headers=FRESH))
    topic = api.client().session().topic("t")
    topic.put("k", 1)
    assert "k" in topic
    assert api.requests[1].headers["Keylane-Min-Position"] == "2:7"


def test_the_asynchronous_client_can_be_asked_for_a_key():
    api = ApiDouble(httpx.Response(404, headers=FRESH))
    assert api.run(lambda client: client.topic("t").contains("k")) is False


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda topic: topic.get(""), None),
        (lambda topic: topic.get(b""), None),
        (lambda topic: topic.get(7.5), None),
        (lambda topic: "" in topic, None),
        (lambda topic: topic.put("k", float("nan")), "JSON"),
        (lambda topic: topic.put("k", None), "None"),
        (lambda topic: topic.put("k", {"a": object()}), "object has no form in JSON"),
        (lambda topic: topic.put("", 1, headers={"a": "b"}), None),
        (lambda topic: topic.put("k", 1, headers={"n": 1}), "the header 'n' is a int"),
        (lambda topic: topic.at(5).count(), "a count has no `at`"),
        (lambda topic: topic.at(1).put("k", 1), "has no `at`"),
        (lambda topic: topic.at(1).get_many(["k"]), "has no `at`"),
        (lambda topic: topic.at(1).history("k"), "has no `at`"),
        (lambda topic: topic.reading(headers=True).get("k", if_match=Position(0, 1)), None),
        (lambda _: Position.parse("2-7"), None),
        (lambda _: Client("localhost"), None),
        *(
            (lambda _, model=model: ApiDouble().client().topic("t", model=model), "is not a model")
            for model in (int, dict, "Order", NewRecord("a", 1))
        ),
    ],
)
def test_what_cannot_be_sent_is_an_error_of_the_client_and_a_value_error(call, said):
    api = ApiDouble()
    with pytest.raises(InvalidArgument, match=said) as caught:
        call(api.topic())
    assert isinstance(caught.value, KeylaneError)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError)
    assert api.requests == []


def test_what_is_shown_names_the_address_and_no_secret():
    client = Client("https://user:pw@api.test:8443/v1/", ApiKey("top-secret"))
    shown = "https://api.test:8443/v1"
    assert repr(client) == f"Client({shown!r})"
    assert repr(client.session()) == f"Session({shown!r})"
    assert repr(client.topic("orders")) == f"Topic('orders', {shown!r})"
    assert repr(client.view("v")) == f"View('v', {shown!r})"
    assert repr(ApiDouble().async_client()) == f"AsyncClient({URL!r})"
    assert "secret" not in repr(ApiKey("top-secret"))


def test_the_version_is_there_and_every_public_name_can_be_imported():
    assert keylane_client.__version__.count(".") == 2
    assert all(getattr(keylane_client, name) for name in keylane_client.__all__)
    assert issubclass(Unreachable, KeylaneError)
