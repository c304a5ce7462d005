"""The query function on a real cluster: API Gateway events in, answers out."""

from __future__ import annotations

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.servers.own import fill
from tests.support.builders import (
    a_lane,
    a_layout,
    a_watermark,
    an_event,
    body_of,
    headers_of,
    load_handler,
    value_entry,
    watermark_entry,
)
from tests.support.stopwatch import takes_about

from keylane import routing
from keylane.model.records import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane.model.records import Layout

    Query = Callable[..., dict[str, Any]]

KEY = b"N14228"
VALUE = b'{"origin": "EWR", "dest": "IAH"}'


@pytest.fixture
def query(redis_cluster: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Query]:
    """One warm function: `query(topic, key, method=..., **event)`."""
    monkeypatch.setenv("KEYLANE_REDIS_NODES", redis_cluster)
    monkeypatch.setenv("KEYLANE_WAIT_DEFAULT_MS", "3000")
    function = load_handler("query")

    def ask(topic: str, key: bytes | str = KEY, *, method: str = "GET", **event: Any) -> dict[str, Any]:
        raw = key if isinstance(key, str) else quote(key, safe="")
        answer: dict[str, Any] = function.lambda_handler(
            an_event(method, f"/topics/{topic}/keys/{raw}", **event), None
        )
        json.dumps(answer)  # as the runtime does
        return answer

    yield ask
    function.application.parts().store.state.close()


@pytest.fixture
def layout(redis_cluster: str) -> Layout:
    """A topic with a record under KEY, at offset 42 of a lane that is complete to 100."""
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, KEY, VALUE))
    return layout


def problem(answer: dict[str, Any]) -> tuple[int, str]:
    assert headers_of(answer)["Content-Type"] == "application/problem+json"
    return answer["statusCode"], json.loads(answer["body"])["type"].removeprefix("urn:keylane:problem:")


def test_value_comes_as_it_was_written_with_its_freshness(query: Query, layout: Layout):
    answer = query(layout.topic)
    partition = routing.partition_for(KEY, 9)
    headers = headers_of(answer)
    assert (answer["statusCode"], body_of(answer)) == (200, VALUE)
    assert headers["Content-Type"] == "application/json"
    assert headers["ETag"] == f'"{partition}-42"'
    assert headers["Last-Modified"] == "Tue, 01 Jan 2013 09:59:59 GMT"
    assert headers["Keylane-Position"] == f"{partition}:42"
    assert headers["Keylane-Watermark"] == f"{partition}:100"
    assert int(headers["Keylane-Age-Ms"]) > 0


@pytest.mark.parametrize(
    "key", [b"a/b", b"100%", b"a b+c", "flüge".encode(), b"\x00\xff\n", b"k" * 5_000, b'"\\`']
)
def test_any_key_is_found_percent_encoded_and_as_base64(query: Query, redis_cluster: str, key: bytes):
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, key, b"found"))
    assert body_of(query(layout.topic, key)) == b"found"
    as_base64 = base64.urlsafe_b64encode(key).decode().rstrip("=")
    assert body_of(query(layout.topic, as_base64, query={"key_format": "base64"})) == b"found"


def test_bytes_that_are_not_text_come_complete(query: Query, redis_cluster: str):
    layout, value = a_layout(), bytes(range(256)) * 100
    fill(redis_cluster, a_lane(layout, KEY, value))
    answer = query(layout.topic)
    assert answer["isBase64Encoded"]
    assert headers_of(answer)["Content-Type"] == "application/octet-stream"
    assert body_of(answer) == value


@pytest.mark.parametrize("name", ["min_offset", "Keylane-Min-Position"])
def test_client_reads_its_own_write(query: Query, layout: Layout, redis_cluster: str, name: str):
    position = f"{routing.partition_for(KEY, 9)}:100"
    ask = {"query": {name: "100"}} if name == "min_offset" else {"headers": {name: position}}
    with ThreadPoolExecutor(1) as client:
        waiting = client.submit(query, layout.topic, **ask)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        fill(redis_cluster, value_entry(layout, KEY, b'"new"', offset=100))
        fill(redis_cluster, watermark_entry(layout, KEY, a_watermark(101)))
        answer = waiting.result(20)
    assert (answer["statusCode"], body_of(answer)) == (200, b'"new"')
    assert headers_of(answer)["Keylane-Position"] == position


def test_position_that_does_not_come_is_412_within_the_clients_bound(query: Query, layout: Layout):
    began_s = time.monotonic()
    with takes_about(0.4):
        answer = query(layout.topic, query={"min_offset": "100"}, headers={"Prefer": "wait=0.2"})
    assert time.monotonic() - began_s >= 0.2
    assert problem(answer) == (412, "position-not-reached")


def test_age_is_counted_to_the_present(query: Query, redis_cluster: str):
    layout, now_ms = a_layout(), time.time_ns() // 1_000_000
    fill(redis_cluster, a_lane(layout, KEY, VALUE))
    fill(redis_cluster, watermark_entry(layout, KEY, Watermark(100, 1, now_ms, now_ms - 700)))
    assert 700 <= int(headers_of(query(layout.topic))["Keylane-Age-Ms"]) < 5_000
