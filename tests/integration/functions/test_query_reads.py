"""The query function on a real cluster: reads of one record and of several."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.servers.own import fill
from tests.support import lanes as t
from tests.support.builders import (
    a_lane,
    a_layout,
    a_watermark,
    an_event,
    body_of,
    headers_of,
    lane_of,
    layout_entry,
    load_handler,
    problem_of,
    value_entry,
    watermark_entry,
)
from tests.support.served import Served
from tests.support.stopwatch import takes_about

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.model.records import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from keylane.model.records import Layout

    Ask = Callable[..., dict[str, Any]]

KEY = b"N14228"
VALUE = b'{"origin": "EWR", "dest": "IAH"}'
KEYS = [b"a", b"b", b"c", b"d", b"\xff"]


@pytest.fixture
def ask(query_function: ModuleType) -> Ask:
    """One warm function: `ask(path, method=..., **event)`."""

    def request(path: str, *, method: str = "GET", **event: Any) -> dict[str, Any]:
        answer: dict[str, Any] = query_function.lambda_handler(an_event(method, path, **event), None)
        json.dumps(answer)  # as the runtime does
        return answer

    return request


@pytest.fixture
def layout(redis_cluster: str) -> Layout:
    """A topic with a record under each of KEYS but c."""
    layout = a_layout()
    entries = layout_entry(layout)
    for number, key in enumerate(KEYS):
        entries |= watermark_entry(layout, key)
        if key != b"c":
            value = b'{"n": %d, "m": {"x": 1.10}}' % number
            entries |= value_entry(layout, key, value, offset=number)
    fill(redis_cluster, entries)
    return layout


@pytest.fixture
def written(redis_cluster: str) -> Layout:
    """A topic with a record under KEY, at offset 42 of a lane that is complete to 100."""
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, KEY, VALUE))
    return layout


@pytest.fixture
def query(ask: Ask) -> Ask:
    """`query(topic, key, **event)`."""

    def read(topic: str, key: bytes | str = KEY, **event: Any) -> dict[str, Any]:
        raw = key if isinstance(key, str) else quote(key, safe="")
        return ask(f"/topics/{topic}/keys/{raw}", **event)

    return read


def read_keys(ask: Ask, topic: str, document: Any, **event: Any) -> dict[str, Any]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return ask(f"/topics/{topic}/keys:read", method="POST", body=body, **event)


@pytest.mark.parametrize("name", ["min_offset", "Keylane-Min-Position"])
def test_client_reads_its_own_write(query: Ask, written: Layout, redis_cluster: str, name: str):
    position = f"{routing.partition_for(KEY, 9)}:100"
    ask = {"query": {name: "100"}} if name == "min_offset" else {"headers": {name: position}}
    with ThreadPoolExecutor(1) as client:
        waiting = client.submit(query, written.topic, **ask)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        fill(redis_cluster, value_entry(written, KEY, b'"new"', offset=100))
        fill(redis_cluster, watermark_entry(written, KEY, a_watermark(101)))
        answer = waiting.result(20)
    assert (answer["statusCode"], body_of(answer)) == (200, b'"new"')
    assert headers_of(answer)["Keylane-Position"] == position


def test_position_that_does_not_come_is_412_within_the_clients_bound(query: Ask, written: Layout):
    began_s = time.monotonic()
    with takes_about(0.4):
        answer = query(written.topic, query={"min_offset": "100"}, headers={"Prefer": "wait=0.2"})
    assert time.monotonic() - began_s >= 0.2
    assert problem_of(answer)[:2] == (412, "position-not-reached")


def test_age_is_counted_to_the_present(query: Ask, redis_cluster: str):
    layout, now_ms = a_layout(), time.time_ns() // 1_000_000
    fill(redis_cluster, a_lane(layout, KEY, VALUE))
    fill(redis_cluster, watermark_entry(layout, KEY, Watermark(100, 1, now_ms, now_ms - 700)))
    age_ms = int(headers_of(query(layout.topic))["Keylane-Age-Ms"])
    assert 700 <= age_ms <= 700 + time.time_ns() // 1_000_000 - now_ms


def test_a_thousand_keys_are_read_at_once(ask: Ask, redis_cluster: str):
    layout = a_layout(partition_count=3)
    keys = [b"%d" % number for number in range(1_000)]
    entries = layout_entry(layout)
    for key in keys[:60]:
        entries |= watermark_entry(layout, key) | value_entry(layout, key, key)
    fill(redis_cluster, entries)
    texts = [key.decode() for key in keys]
    records = json.loads(read_keys(ask, layout.topic, {"keys": texts})["body"])["records"]
    assert [record.get("value") for record in records] == [*range(60), *[None] * 940]


def test_a_read_that_waits_for_a_change_returns_it(ask: Ask, layout: Layout, redis_cluster: str):
    path = f"/topics/{layout.topic}/keys/a"
    etag = headers_of(ask(path))["ETag"]
    waiting = {"If-None-Match": etag, "Prefer": "wait=5"}
    with ThreadPoolExecutor(1) as client:
        change = client.submit(ask, path, headers=waiting)
        with pytest.raises(TimeoutError):
            change.result(0.2)
        fill(redis_cluster, value_entry(layout, b"a", b"new", offset=50))
        answer = change.result(20)
    assert (answer["statusCode"], answer["body"]) == (200, "new")
    assert headers_of(answer)["Preference-Applied"] == "wait=5"


def test_as_of_agrees_with_the_latest_record_where_time_went_back_and_is_410_where_one_was_dropped(
    ask: Ask, redis_cluster: str
):
    with closing(Cluster(t.settings(redis_cluster))) as cluster:
        topic = Served(redis_cluster, cluster, history_count=2)
        first, dropped, last, back = (
            topic.put(b"k", b"%d" % number, topic.now_ms - before_ms)
            for number, before_ms in enumerate((9_000, 9_500, 1_000, 2_000))
        )
    path = f"/topics/{topic.topic}/keys/k"
    assert ask(path)["body"] == "3"
    now_ms, then_ms = topic.now_ms, topic.now_ms - 5_000
    assert ask(path, query={"as_of": str(now_ms)})["body"] == "3"
    assert [ask(path, query={"as_of": at})["body"] for at in (last, back)] == ["2", "3"]
    for gone in (first, dropped, str(then_ms)):
        assert problem_of(ask(path, query={"as_of": gone}))[:2] == (410, "history-too-short")


def test_a_topic_lists_its_lanes_and_their_shards_without_kafka(
    ask: Ask, layout: Layout, redis_cluster: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEYLANE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    explore = load_handler("explore")

    def describe(topic: str) -> dict[str, Any]:
        answer: dict[str, Any] = explore.lambda_handler(an_event("GET", f"/topics/{topic}"), None)
        return answer

    document = json.loads(describe(layout.topic)["body"])
    begun = {lane_of(layout, key)[0] for key in KEYS}
    assert (document["partitions"], document["generation"]) == (9, 1)
    assert {lane["partition"] for lane in document["lanes"] if not lane["building"]} == begun
    hosts = json.loads(ask("/metadata/partitions", query={"topic": layout.topic})["body"])
    assert len(hosts) == 3
    assert sorted(sum(hosts.values(), [])) == list(range(9))  # noqa: RUF017 (three short lists)
    assert set(hosts) <= set(redis_cluster.split(","))
    assert {lane["shard"] for lane in document["lanes"]} == set(hosts)
    for lane in document["lanes"]:
        assert lane["partition"] in hosts[lane["shard"]]
    assert problem_of(describe("nowhere"))[:2] == (404, "unknown-topic")
    explore.application.parts().store.state.close()
