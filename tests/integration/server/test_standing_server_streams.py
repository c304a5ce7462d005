"""Changes of keys and topics by Server-Sent Events, from `keylane serve` over real servers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import eventually
from tests.servers.standing import StandingServer, plain_variables, standing
from tests.support.events import EventReader, listening
from tests.support.server_process import with_tokens

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.logged_topic import LoggedTopic
    from tests.support.served import Served

LONG_POLLS = 8


@pytest.fixture(scope="module")
def variables(redis_cluster: str, kafka: str) -> dict[str, str]:
    return plain_variables(redis_cluster, kafka)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]) -> Iterator[StandingServer]:
    log = tmp_path_factory.mktemp("streams") / "log"
    with standing(log, variables, "--max-long-polls", str(LONG_POLLS)) as running:
        yield running


@pytest.fixture
def topic(serve: Callable[[], Served]) -> Served:
    return serve()


@pytest.fixture
def logged(logged_topic: Callable[..., LoggedTopic]) -> LoggedTopic:
    return logged_topic()


def key_path(topic: Served, key: str = "k") -> str:
    return f"/topics/{topic.topic}/keys/{key}/changes"


def problem_of(reader: EventReader) -> tuple[int, str]:
    body = json.loads(reader.answer.read())
    return reader.answer.status, body["type"].removeprefix("urn:keylane:problem:")


def metric(server: StandingServer, sample: str) -> float:
    page = server.ask("GET", "/metrics", Accept="application/openmetrics-text")[2].decode()
    [line] = [each for each in page.splitlines() if each.startswith(f"{sample} ")]
    return float(line.removeprefix(sample))


def test_a_key_s_stream_begins_with_its_record_and_has_each_change(server: StandingServer, topic: Served):
    first = topic.put(b"k", b'{"n":\n 1}')
    with listening(server.url, key_path(topic)) as stream:
        assert stream.answer.headers["Content-Type"] == "text/event-stream"
        event = stream.next()
        assert (event.name, event.id, event.json["position"]) == ("record", first, first)
        assert event.json["value"] == {"n": 1}
        assert {"watermark", "age_ms", "timestamp", "key_format"} <= event.json.keys()
        second = topic.put(b"k", b'{"n": 2}')
        assert (stream.next().id, stream.id) == (second, second)
        topic.put(b"k", None)
        gone = stream.next()
        assert (gone.name, gone.json["absent"], gone.json["key"]) == ("absent", True, "k")
        topic.put(b"k", b"3")
        assert stream.next().json["value"] == 3


def test_a_client_that_comes_back_gets_only_what_it_lacks(server: StandingServer, topic: Served):
    position = topic.put(b"k", b"1")
    with listening(server.url, key_path(topic), Last_Event_ID=position) as stream:
        later = topic.put(b"k", b"2")
        assert stream.next().id == later
    missed = topic.put(b"k", b"3")
    with listening(server.url, key_path(topic), Last_Event_ID=later) as stream:
        assert stream.next().id == missed


def test_many_listeners_share_a_poll_and_fields_are_picked(server: StandingServer, topic: Served):
    topic.put(b"k", b'{"a": 1, "b": 2}')
    with (
        listening(server.url, key_path(topic)) as one,
        listening(server.url, key_path(topic)) as two,
        listening(server.url, f"{key_path(topic)}?fields=b") as picked,
    ):
        assert [each.next().json["value"] for each in (one, two, picked)] == [
            {"a": 1, "b": 2},
            {"a": 1, "b": 2},
            {"b": 2},
        ]
        topic.put(b"k", b'{"a": 3, "b": 4}')
        assert one.next() == two.next()
        assert picked.next().json["value"] == {"b": 4}


def test_a_topic_s_stream_has_the_changes_of_the_keys_with_a_prefix(
    server: StandingServer, logged: LoggedTopic
):
    logged.put(b"a|old", b"0")
    path = f"/topics/{logged.name}/changes"
    with listening(server.url, f"{path}?prefix=a%7C") as stream, listening(server.url, path) as all_of_it:
        began_at = stream.next_any()
        assert (began_at.name, all_of_it.next_any().id) == ("", began_at.id)
        logged.put(b"b|1", b"1")
        at = logged.put(b"a|1", b'{"n": 2}')
        event = stream.next()
        assert (event.name, event.json["position"], event.json["value"]) == ("record", at, {"n": 2})
        assert [all_of_it.next().json["key"] for _ in range(2)] == ["b|1", "a|1"]
        logged.put(b"a|1", None)
        assert stream.next().name == "absent"
        assert stream.next_any().id > began_at.id


def test_a_topic_s_stream_is_resumed_without_a_gap(server: StandingServer, logged: LoggedTopic):
    path = f"/topics/{logged.name}/changes"
    with listening(server.url, path) as stream:
        last = stream.next_any().id
    keys = [b"missed-%d" % number for number in range(30)]
    for key in keys:
        logged.put(key, b"1")
    with listening(server.url, path, Last_Event_ID=last) as stream:
        assert {stream.next().json["key"].encode() for _ in keys} == set(keys)
        logged.put(b"live", b"1")
        assert stream.next().json["key"] == "live"


@pytest.fixture
def orders(logged_topic: Callable[..., LoggedTopic]) -> LoggedTopic:
    fields = (("amount", "number"), ("status", "text"))
    return logged_topic(index=1, fields=fields)


def test_a_stream_with_conditions_has_what_enters_changes_within_and_leaves(
    server: StandingServer, orders: LoggedTopic
):
    path = f"/topics/{orders.name}/changes?status=open&amount=10.."
    with listening(server.url, path) as stream:
        began_at = stream.next_any().id
        orders.put(b"small", b'{"status": "open", "amount": 9}')
        assert (stream.next().name, stream.id) == ("left", began_at), "it may have been in before"
        entered = orders.put(b"k", b'{"status": "open", "amount": 10}')
        event = stream.next()
        assert (event.name, event.json["position"], event.json["value"]["amount"]) == ("record", entered, 10)
        resumed_at = stream.next_any().id
        orders.put(b"small", b'{"status": "open", "amount": 8}')
        orders.put(b"k", b'{"status": "open", "amount": 11}')
        assert (stream.next().json["value"]["amount"], stream.next_any().name) == (11, "")
        orders.put(b"k", b'{"status": "paid", "amount": 11}')
        event = stream.next()
        assert (event.name, event.json["key"], event.json["value"]["status"]) == ("left", "k", "paid")
    with listening(server.url, path, Last_Event_ID=resumed_at) as stream:
        assert sorted(stream.next().json["key"] for _ in range(2)) == ["k", "small"]


def test_streams_keep_the_places_of_long_polls_until_their_clients_go(server: StandingServer, topic: Served):
    path = key_path(topic)

    def is_admitted() -> bool:
        reader = EventReader(server.url, path)
        reader.close()
        return reader.answer.status == 200

    streams = [EventReader(server.url, path) for _ in range(LONG_POLLS)]
    eventually(lambda: all(each.answer.status == 200 for each in streams))
    assert metric(server, 'keylane_streams_open{kind="key"}') == LONG_POLLS
    assert metric(server, 'keylane_streams_open{kind="topic"}') == 0
    refused = EventReader(server.url, path)
    assert problem_of(refused) == (503, "overloaded")
    assert server.ask("GET", f"/topics/{topic.topic}/keys/k")[0] == 404, "other reads go on"
    for each in (refused, *streams):
        each.close()
    eventually(is_admitted)
    eventually(lambda: metric(server, 'keylane_streams_open{kind="key"}') == 0)


def test_a_client_that_does_not_read_is_cut_off_and_the_others_are_not(server: StandingServer, topic: Served):
    cut_before = metric(server, "keylane_streams_cut_total")
    with listening(server.url, key_path(topic)) as other, contextlib.closing(socket.socket()) as slow:
        slow.settimeout(60)
        slow.connect((HOST, server.port))
        slow.sendall(f"GET {key_path(topic)} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")
        assert other.next().name == "absent"
        value = json.dumps("x" * 900_000).encode()
        for number in range(24):
            position = topic.put(b"k", value)
            assert other.next().id == position, number
        received = bytearray()
        while part := slow.recv(1 << 20):
            received += part
        assert b"event: problem\ndata: " in received[-2000:]
        assert b"urn:keylane:problem:slow-reader" in received[-2000:]
    assert metric(server, "keylane_streams_cut_total") == cut_before + 1


def test_sigterm_ends_streams_with_an_event_and_at_once(tmp_path, variables: dict[str, str], topic: Served):
    # Were streams waited for, the server would be there for longer than `stop` waits.
    with (
        standing(tmp_path / "log", variables, "--drain-s", "280") as server,
        listening(server.url, key_path(topic)) as stream,
    ):
        assert stream.next().name == "absent"
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert stream.next().name == "closing"
        assert stream.next() is None
        stopping.join()
        assert server.process.returncode == 0
        assert "Traceback" not in server.log


def test_streams_need_a_token_that_grants_the_topic(tmp_path, variables: dict[str, str], topic: Served):
    token = "a-token-of-the-streams"
    granted = with_tokens(variables, token, read=[topic.topic])
    with standing(tmp_path / "log", granted, "--authorization", "tokens") as server:
        refused = EventReader(server.url, key_path(topic))
        assert problem_of(refused) == (401, "unauthorized")
        refused.close()
        bearer = {"Authorization": f"Bearer {token}"}
        with listening(server.url, key_path(topic), **bearer) as stream:
            assert stream.next().name == "absent"
        for query in ("", "?status=open"):
            denied = EventReader(server.url, f"/topics/another/changes{query}", **bearer)
            assert problem_of(denied) == (403, "forbidden")
            denied.close()


def test_whoever_may_read_a_topic_may_find_in_it_and_others_are_answered_as_for_a_read(
    tmp_path, variables: dict[str, str], orders: LoggedTopic
):
    orders.put(b"k", b'{"status": "open"}')
    tokens = {name: f"a-token-of-the-{name}" for name in ("reader", "writer")}
    digests = {name: hashlib.sha256(token.encode()).hexdigest() for name, token in tokens.items()}
    grants = {"reader": {"read": [orders.name]}, "writer": {"write": [orders.name]}}
    access = json.dumps({digests[name]: {"name": name, **grant} for name, grant in grants.items()})
    options = ("--authorization", "tokens")
    with standing(tmp_path / "log", {**variables, "KEYLANE_ACCESS": access}, *options) as server:

        def ask(path: str, name: str | None) -> tuple[int, Any]:
            headers = {"Authorization": f"Bearer {tokens[name]}"} if name else {}
            status, _, body = server.ask("GET", f"/topics/{path}", **headers)
            document = json.loads(body)
            return status, {each: document.get(each) for each in ("type", "title", "detail")}

        assert ask(f"{orders.name}/find?status=open", "reader")[0] == 200
        for topic, name in ((orders.name, "writer"), (orders.name, None), ("another", "reader")):
            read, find = (
                ask(f"{topic}/{path}", name) for path in ("keys/k", "find?status=open&topic=orders")
            )
            assert (read, read[0]) == (find, 403 if name else 401)


def test_what_finds_looked_at_and_returned_is_counted_by_index(server: StandingServer, orders: LoggedTopic):
    for number in range(3):
        orders.put(b"k%d" % number, b'{"status": "open", "amount": %d}' % number)
    for query in ("status=open&limit=2", "status=open", "amount=1..&order=amount", "status=open&count=true"):
        assert server.ask("GET", f"/topics/{orders.name}/find?{query}")[0] == 200

    def counted(what: str, index: str) -> float:
        return metric(server, f'keylane_find_{what}_total{{index="{index}",topic="{orders.name}"}}')

    assert [counted("returned", index) for index in ("status", "amount")] == [5, 2]
    assert [counted("scanned", index) for index in ("status", "amount")] == [5, 2]
