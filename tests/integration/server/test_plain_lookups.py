"""The short way of plain look-ups, in a process of the server: it answers as the way of all requests."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.servers.own import fill
from tests.support.builders import (
    NOW_MS,
    a_lane,
    a_layout,
    a_watermark,
    layout_entry,
    value_entry,
    value_key,
    watermark_entry,
)

from keylane.api.http.parameters import HEADER
from keylane.api.reads.key import READ
from keylane.model.records import Options
from keylane.state.codec import LeftInKafka, encode_record
from keylane_local.process.ports import HOST
from keylane_server.lookups import NOT_PLAIN, PlainLookups
from keylane_server.options import TOKENS, ServerOptions
from keylane_server.worker import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from keylane_server.app import ServerApp

TOKEN = "a-token-of-these-tests"
OTHER_WAY = {"x-api-key": "0"}
"""A header that changes no answer here, and is not plain."""
UNLIKE = {"x-amzn-requestid", "keylane-age-ms"}
"""Headers that differ from one answer to the next."""


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    is_short: bool

    @property
    def lasting(self) -> tuple[int, list[tuple[str, str]], Any]:
        """What two answers to one question have in common."""
        headers = [pair for pair in self.headers if pair[0].lower() not in UNLIKE]
        body: Any = self.body
        if self.status >= 400:
            body = {name: value for name, value in json.loads(self.body).items() if name != "instance"}
        return self.status, headers, body


class Process:
    """A process of the server, in a loop of its own, which is asked without a socket."""

    def __init__(self, variables: dict[str, str], **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._process = ServerProcess(ServerOptions(HOST, 0, **options), variables)
        self._loop.add_signal_handler = lambda *_: None  # type: ignore[assignment,method-assign]  # a thread has none
        self.run(self._process._open())
        self.short = 0
        answer = PlainLookups.answer

        async def counted(lookups: PlainLookups, lookup: Any) -> Any:
            found = await answer(lookups, lookup)
            self.short += found is not None
            return found

        self._count = counted

    @property
    def app(self) -> ServerApp:
        assert self._process._app is not None
        return self._process._app

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answer:
        path, _, query = path.partition("?")
        pairs = {"host": "localhost", **(headers or {})}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "client": ("127.0.0.1", 1),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in pairs.items()],
        }
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        before = self.short
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PlainLookups, "answer", self._count)
            self.run(self.app.answer(scope, receive, send))
        start, *bodies = sent
        headers_of = [(name.decode(), value.decode()) for name, value in start["headers"]]
        body = b"".join(each["body"] for each in bodies)
        return Answer(start["status"], headers_of, body, self.short > before)

    def close(self) -> None:
        self.run(self._process._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture(scope="module")
def variables(redis_cluster: str) -> dict[str, str]:
    return {"KEYLANE_REDIS_NODES": redis_cluster, "KEYLANE_REDIS_TLS": "false"}


@pytest.fixture(scope="module")
def process(variables: dict[str, str]) -> Iterator[Process]:
    running = Process(variables)
    yield running
    running.close()


VALUES: dict[str, dict[str, Any]] = {
    "json": {"value": b'{"n": 1}'},
    "text": {"value": "ü, and no JSON".encode()},
    "bytes": {"value": b"\xff\x00"},
    "empty": {"value": b""},
    "tombstone": {"value": None},
    "stray": {"value": b"1", "source_partition": 7},
    "headers": {"value": b"1", "headers": (("trace", b"x"),)},
    "left": {"value": LeftInKafka(7_000_000)},
    "early": {"value": b"1", "timestamp_ms": 0},
    "large": {"value": b"x" * 600_000},
}


@pytest.fixture(scope="module", params=["auto", "text", "json", "bytes"])
def topic(request: pytest.FixtureRequest, redis_cluster: str) -> str:
    """A topic with a key for each kind of value."""
    layout = a_layout(options=Options(value_format=request.param))
    for key, record in VALUES.items():
        envelope = encode_record(**({"offset": 3, "timestamp_ms": NOW_MS} | record))
        fill(redis_cluster, a_lane(layout, key.encode(), b"") | {value_key(layout, key.encode()): envelope})
    fill(redis_cluster, watermark_entry(layout, b"absent"))
    return layout.topic


def warm(process: Process, topic: str) -> None:
    """Have the process read the topic's layout, and connect to each node."""
    for key in VALUES:
        process.get(f"/topics/{topic}/keys/{key}", OTHER_WAY)
    process.get(f"/topics/{topic}/keys/absent", OTHER_WAY)


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/html, */*;q=0.1", "text/plain"])
@pytest.mark.parametrize("key", [*VALUES, "absent"])
def test_a_plain_lookup_is_answered_as_on_the_way_of_all_requests(
    process: Process, topic: str, key: str, accept: str | None
):
    warm(process, topic)
    headers = {} if accept is None else {"accept": accept}
    path = f"/topics/{topic}/keys/{key}"
    plain, other = process.get(path, headers), process.get(path, headers | OTHER_WAY)
    assert (plain.is_short, other.is_short) == (True, False)
    assert plain.lasting == other.lasting
    assert {name for name, _ in plain.headers} == {name for name, _ in other.headers}


def test_every_header_that_a_read_of_a_key_looks_at_is_not_plain():
    assert {each.name.lower().encode() for each in READ if each.place == HEADER} <= NOT_PLAIN


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        pytest.param("{path}?envelope=true", {}, id="a query"),
        pytest.param("{path}%41", {}, id="an encoded key"),
        pytest.param("{path}", {"accept": "application/octet-stream"}, id="bytes"),
        pytest.param("{path}", {"if-none-match": '"0-0"'}, id="a tag"),
        pytest.param("{path}", {"host": ""}, id="no host"),
        pytest.param("{path}", {"content-length": "0"}, id="a body"),
        pytest.param("{path}/", {}, id="a slash"),
        pytest.param("/topics/unknown-topic/keys/k", {}, id="an unknown topic"),
    ],
)
def test_what_is_not_plain_takes_the_way_of_all(
    process: Process, topic: str, change: str, headers: dict[str, str]
):
    warm(process, topic)
    found = process.get(change.format(path=f"/topics/{topic}/keys/json"), headers)
    assert not found.is_short


def test_a_head_is_not_plain_and_has_no_body(process: Process, topic: str):
    warm(process, topic)
    found = process.get(f"/topics/{topic}/keys/json", method="HEAD")
    assert (found.is_short, found.status, found.body) == (False, 200, b"")


def test_a_lane_that_was_superseded_is_read_by_the_newer_layout(process: Process, redis_cluster: str):
    old = a_layout()
    new = replace(old, generation=old.generation + 1)
    fill(redis_cluster, a_lane(old, b"k", b"1"))
    path = f"/topics/{old.topic}/keys/k"
    assert process.get(path).body == b"1"
    assert process.get(path).is_short
    fill(redis_cluster, watermark_entry(new, b"k") | value_entry(new, b"k", b"2") | layout_entry(new))
    fill(redis_cluster, watermark_entry(old, b"k", a_watermark(superseded=True)))
    first, second = process.get(path), process.get(path)
    assert (first.body, first.is_short) == (b"2", False)
    assert (second.body, second.is_short) == (b"2", True)


def test_the_answers_are_counted_with_those_of_all(process: Process, topic: str):
    def count(metric: str) -> float:
        process._process._flush_meters()
        lines = process._process._pages.metrics.render_page("")[0].decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))

    warm(process, topic)
    requests, ages = 'http_requests_duration_count{code="200",method="get_key"}', f'topic="{topic}"'
    before = count(requests)
    for _ in range(3):
        assert process.get(f"/topics/{topic}/keys/json").is_short
    assert count(requests) == before + 3
    assert ages in process._process._pages.metrics.render_page("")[0].decode()


def with_tokens(variables: dict[str, str], **grant: list[str]) -> dict[str, str]:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    return variables | {"KEYLANE_ACCESS": json.dumps({digest: {"name": "reader", **grant}})}


@pytest.fixture
def guarded(variables: dict[str, str]) -> Iterator[Callable[..., Process]]:
    """Makes a process that requires tokens; TOKEN has the grant."""
    begun: list[Process] = []

    def make(**grant: list[str]) -> Process:
        begun.append(Process(with_tokens(variables, **grant), authorization=TOKENS))
        return begun[-1]

    yield make
    for each in begun:
        each.close()


def test_a_token_opens_the_short_way_to_what_it_may_read_alone(
    guarded: Callable[..., Process], redis_cluster: str
):
    layout, other = a_layout(), a_layout()
    for each in (layout, other):
        fill(redis_cluster, a_lane(each, b"k", b"1"))
    process = guarded(read=[layout.topic])
    path, bearer = f"/topics/{layout.topic}/keys/k", {"authorization": f"Bearer {TOKEN}"}
    assert process.get(path, bearer).status == 200
    assert process.get(path, bearer).is_short
    for headers in ({}, {"authorization": f"Bearer {TOKEN}x"}, {"authorization": TOKEN}):
        found = process.get(path, headers)
        assert (found.status, found.is_short) == (401, False)
    found = process.get(f"/topics/{other.topic}/keys/k", bearer)
    assert (found.status, found.is_short) == (403, False)


def test_a_token_that_is_revoked_ends_the_short_way(guarded: Callable[..., Process], redis_cluster: str):
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, b"k", b"1"))
    process = guarded(read=["*"])
    path, bearer = f"/topics/{layout.topic}/keys/k", {"authorization": f"Bearer {TOKEN}"}
    process.get(path, bearer)
    assert process.get(path, bearer).is_short
    authorizer = process.app._authorizer
    assert authorizer is not None
    authorizer._replace({})
    found = process.get(path, bearer)
    assert (found.status, found.is_short) == (401, False)


def test_a_topic_that_is_not_served_has_no_short_way(variables: dict[str, str], redis_cluster: str):
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, b"k", b"1"))
    process = Process(variables | {"KEYLANE_TOPICS": '{"read": ["orders.*"]}'})
    try:
        for _ in range(2):
            found = process.get(f"/topics/{layout.topic}/keys/k")
            assert (found.status, found.is_short) == (403, False)
    finally:
        process.close()
