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
    a_topic,
    a_watermark,
    an_event,
    body_of,
    headers_of,
    layout_entry,
    load_handler,
    value_entry,
    value_key,
    watermark_entry,
)
from tests.support.stopwatch import Stopwatch

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


def test_known_record_is_304(query: Query, layout: Layout):
    etag = headers_of(query(layout.topic))["ETag"]
    answer = query(layout.topic, headers={"If-None-Match": etag})
    assert (answer["statusCode"], answer["body"]) == (304, "")


def test_head_is_a_get_without_a_body(query: Query, layout: Layout):
    get, head = query(layout.topic), query(layout.topic, method="HEAD")
    assert (head["statusCode"], head["body"]) == (200, "")
    assert headers_of(head)["ETag"] == headers_of(get)["ETag"]
    assert headers_of(head)["Content-Type"] == "application/json"


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


def test_envelope_holds_value_and_metadata(query: Query, layout: Layout):
    document = json.loads(query(layout.topic, query={"envelope": "true"})["body"])
    assert document["value"] == json.loads(VALUE)
    assert (document["topic"], document["key"], document["offset"]) == (layout.topic, "N14228", 42)


def test_absent_key_and_unknown_topic_differ(query: Query, redis_cluster: str):
    layout = a_layout()
    fill(redis_cluster, layout_entry(layout) | watermark_entry(layout, KEY))
    absent = query(layout.topic)
    assert problem(absent) == (404, "key-absent")
    assert headers_of(absent)["Keylane-Watermark"] == f"{routing.partition_for(KEY, 9)}:100"
    unknown = query(a_topic())
    assert problem(unknown) == (404, "unknown-topic")
    assert json.loads(unknown["body"])["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_topic_that_is_still_building_is_503(query: Query, redis_cluster: str):
    layout = a_layout()
    fill(redis_cluster, layout_entry(layout))
    answer = query(layout.topic)
    assert problem(answer) == (503, "lane-building")
    assert headers_of(answer)["Retry-After"] == "2"


def test_corrupt_bytes_are_an_error_that_names_their_key(query: Query, layout: Layout, redis_cluster: str):
    fill(redis_cluster, {value_key(layout, KEY): b"something else"})
    answer = query(layout.topic)
    assert problem(answer) == (500, "corrupt-state")
    assert value_key(layout, KEY).decode() in json.loads(answer["body"])["detail"]


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
    with Stopwatch() as watch:
        answer = query(layout.topic, query={"min_offset": "100"}, headers={"Prefer": "wait=0.2"})
    assert time.monotonic() - began_s >= 0.2
    assert watch.seconds < 0.6
    assert problem(answer) == (412, "position-not-reached")


def test_topic_that_grew_is_read_by_its_new_layout(query: Query, layout: Layout, redis_cluster: str):
    assert query(layout.topic)["statusCode"] == 200
    grown = a_layout(layout.topic, 18, generation=2)
    fill(redis_cluster, a_lane(grown, KEY, b"new"))
    fill(redis_cluster, watermark_entry(layout, KEY, a_watermark(superseded=True)))
    answer = query(layout.topic)
    assert body_of(answer) == b"new"
    assert headers_of(answer)["Keylane-Position"] == f"{routing.partition_for(KEY, 18)}:42"


@pytest.mark.parametrize(
    ("key", "event", "parameter"),
    [
        ("%zz", {}, "key"),
        ("a", {"query": {"key_format": "base64"}}, "key"),
        ("k", {"query": {"envelope": "1"}}, "envelope"),
        ("k", {"query": {"min_offset": "x"}}, "min_offset"),
        ("k", {"headers": {"Keylane-Min-Position": "99999:1"}}, "Keylane-Min-Position"),
    ],
)
def test_bad_requests_name_their_parameter(
    query: Query, layout: Layout, key: str, event: dict[str, Any], parameter: str
):
    answer = query(layout.topic, key, **event)
    assert problem(answer) == (400, "bad-request")
    assert json.loads(answer["body"])["parameter"] == parameter


def test_key_over_64_kib_is_too_large(query: Query, layout: Layout):
    assert problem(query(layout.topic, "k" * 65_537)) == (414, "key-too-large")


def test_age_is_counted_to_the_present(query: Query, redis_cluster: str):
    layout, now_ms = a_layout(), time.time_ns() // 1_000_000
    fill(redis_cluster, a_lane(layout, KEY, VALUE))
    fill(redis_cluster, watermark_entry(layout, KEY, Watermark(100, 1, now_ms, now_ms - 700)))
    assert 700 <= int(headers_of(query(layout.topic))["Keylane-Age-Ms"]) < 5_000
