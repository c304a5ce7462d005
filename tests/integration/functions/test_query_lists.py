"""Reads of several records on a real cluster: API Gateway events in, documents out."""

from __future__ import annotations

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import fill
from tests.support import lanes as t
from tests.support.builders import (
    a_lane,
    a_layout,
    a_watermark,
    an_event,
    headers_of,
    lane_of,
    layout_entry,
    load_handler,
    value_entry,
    watermark_entry,
)
from tests.support.served import Served
from tests.support.stopwatch import Stopwatch

from keylane.adapters.redis.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from keylane.model.records import Layout

    Ask = Callable[..., dict[str, Any]]

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


def read_keys(ask: Ask, topic: str, document: Any, **event: Any) -> dict[str, Any]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return ask(f"/topics/{topic}/keys:read", method="POST", body=body, **event)


def problem(answer: dict[str, Any]) -> tuple[int, str, str | None]:
    document = json.loads(answer["body"])
    return (
        answer["statusCode"],
        document["type"].removeprefix("urn:keylane:problem:"),
        document.get("parameter"),
    )


def test_many_keys_are_one_document_in_the_order_asked_for(ask: Ask, layout: Layout):
    answer = read_keys(ask, layout.topic, {"keys": ["d", "a", "c", "d"]})
    document = json.loads(answer["body"])
    assert answer["statusCode"] == 200
    assert [record["key"] for record in document["records"]] == ["d", "a", "c", "d"]
    assert document["records"][2] == {"key": "c", "key_format": "text", "absent": True}
    first = document["records"][0]
    assert (first["value"], first["offset"], first["topic"]) == ({"n": 3, "m": {"x": 1.1}}, 3, layout.topic)
    asked = {str(lane_of(layout, key)[0]) for key in (b"a", b"c", b"d")}
    assert document["watermarks"] == dict.fromkeys(asked, 100)
    assert document["age_ms"] >= first["age_ms"] > 0
    assert headers_of(answer)["Keylane-Age-Ms"] == str(document["age_ms"])


def test_keys_that_are_no_text_are_asked_for_in_base64(ask: Ask, layout: Layout):
    coded = base64.b64encode(b"\xff").decode()
    answer = read_keys(ask, layout.topic, {"keys": [coded], "key_format": "base64"})
    (record,) = json.loads(answer["body"])["records"]
    assert (record["key"], record["key_format"], record["offset"]) == (coded, "base64", 4)


def test_a_thousand_keys_are_read_and_not_one_more(ask: Ask, redis_cluster: str):
    layout = a_layout(partition_count=3)
    keys = [b"%d" % number for number in range(1_001)]
    entries = layout_entry(layout)
    for key in keys[:60]:
        entries |= watermark_entry(layout, key) | value_entry(layout, key, key)
    fill(redis_cluster, entries)
    texts = [key.decode() for key in keys]
    records = json.loads(read_keys(ask, layout.topic, {"keys": texts[:1_000]})["body"])["records"]
    assert [record.get("value") for record in records] == [*range(60), *[None] * 940]
    assert problem(read_keys(ask, layout.topic, {"keys": texts})) == (400, "bad-request", "keys")


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[" * 100_000, "body"),
        (b"[]", "keys"),
        ({}, "keys"),
        ({"keys": []}, "keys"),
        ({"keys": "a"}, "keys"),
        ({"keys": [1]}, "keys"),
        ({"keys": ["a", ""]}, "keys"),
        ({"keys": ["\ud800"]}, "keys"),
        ({"keys": ["a"], "key_format": "base64"}, "keys"),
        ({"keys": ["a"], "key_format": "hex"}, "key_format"),
        ({"keys": ["a"], "key_format": 1}, "key_format"),
    ],
)
def test_bodies_that_ask_for_no_keys_name_what_is_wrong(ask: Ask, layout: Layout, body: Any, parameter: str):
    assert problem(read_keys(ask, layout.topic, body)) == (400, "bad-request", parameter)


def test_atomic_reads_of_several_lanes_name_two_keys(ask: Ask, layout: Layout):
    assert read_keys(ask, layout.topic, {"keys": ["a", "a"]}, query={"atomic": "true"})["statusCode"] == 200
    answer = read_keys(ask, layout.topic, {"keys": ["a", "b", "c", "d"]}, query={"atomic": "true"})
    assert problem(answer) == (400, "bad-request", "atomic")
    assert "'a'" in json.loads(answer["body"])["detail"]


def test_other_methods_are_405_with_those_allowed(ask: Ask, layout: Layout):
    answer = ask(f"/topics/{layout.topic}/keys:read")
    assert problem(answer)[:2] == (405, "wrong-method")
    assert headers_of(answer)["Allow"] == "POST"


def test_join_is_one_document_by_topic(ask: Ask, redis_cluster: str):
    one, two, three = a_layout(), a_layout(), a_layout()
    fill(redis_cluster, a_lane(one, b"k", b"1") | a_lane(two, b"k", b"[2]"))
    fill(redis_cluster, layout_entry(three) | watermark_entry(three, b"k", a_watermark(7)))
    topics = f"{two.topic},{three.topic},{one.topic}"
    answer = ask("/join/k", query={"topics": topics})
    document = json.loads(answer["body"])
    assert (answer["statusCode"], document["key"]) == (200, "k")
    assert document["records"][two.topic]["value"] == [2]
    assert document["records"][one.topic]["value"] == 1
    assert document["records"][three.topic]["absent"]
    assert document["watermarks"][three.topic] == {str(lane_of(three, b"k")[0]): 7}
    assert document["age_ms"] > 0


def test_join_of_unlike_topics_says_what_differs(ask: Ask, redis_cluster: str):
    one, two = a_layout(), a_layout(partition_count=4)
    fill(redis_cluster, a_lane(one, b"k", b"1") | a_lane(two, b"k", b"2"))
    answer = ask("/join/k", query={"topics": f"{one.topic},{two.topic}"})
    assert problem(answer) == (400, "bad-request", "topics")
    assert "partition_count" in json.loads(answer["body"])["detail"]


@pytest.mark.parametrize("topics", [None, "", "one", "one,one", "one,", "a b,c", "a,b,c,d,e,f,g,h,i,j,k"])
def test_join_takes_two_to_ten_topics(ask: Ask, topics: str | None):
    query = None if topics is None else {"topics": topics}
    assert problem(ask("/join/k", query=query)) == (400, "bad-request", "topics")


def test_older_state_than_asked_for_is_503_with_its_age(ask: Ask, layout: Layout):
    path = f"/topics/{layout.topic}/keys/a"
    assert ask(path, query={"max_age_ms": str(10**12)})["statusCode"] == 200
    answer = ask(path, query={"max_age_ms": "1000"})
    assert problem(answer)[:2] == (412, "state-too-old")
    assert headers_of(answer)["Retry-After"] == "1"
    assert json.loads(answer["body"])["age_ms"] > 1_000
    many = read_keys(ask, layout.topic, {"keys": ["a", "b"]}, query={"max_age_ms": "1000"})
    assert problem(many)[:2] == (412, "state-too-old")
    assert problem(ask(path, query={"max_age_ms": "-1"})) == (400, "bad-request", "max_age_ms")


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
        assert problem(ask(path, query={"as_of": gone}))[:2] == (410, "history-too-short")


def test_what_does_not_change_is_304_at_the_bound(ask: Ask, layout: Layout):
    path = f"/topics/{layout.topic}/keys/a"
    etag = headers_of(ask(path))["ETag"]
    began_s = time.monotonic()
    with Stopwatch() as watch:
        answer = ask(path, headers={"If-None-Match": etag, "Prefer": "wait=0.3"})
    assert time.monotonic() - began_s >= 0.3
    assert watch.seconds < 1
    assert answer["statusCode"] == 304
    assert ask(path, headers={"If-None-Match": "", "Prefer": "wait=5"})["statusCode"] == 200
    assert "Preference-Applied" not in headers_of(ask(path, headers={"Prefer": "wait=1"}))


def test_fields_of_objects_alone_are_shown(ask: Ask, layout: Layout, redis_cluster: str):
    path = f"/topics/{layout.topic}/keys/a"
    assert ask(path, query={"fields": "m.x"})["body"] == '{"m": {"x": 1.10}}'
    enveloped = json.loads(ask(path, query={"fields": "n", "envelope": "true"})["body"])
    assert (enveloped["value"], enveloped["offset"]) == ({"n": 0}, 0)
    fill(redis_cluster, value_entry(layout, b"b", b"[1]"))
    answer = ask(f"/topics/{layout.topic}/keys/b", query={"fields": "n"})
    assert problem(answer) == (409, "no-json-object", "fields")
    many = read_keys(ask, layout.topic, {"keys": ["a", "b"]}, query={"fields": "n"})
    one, other = json.loads(many["body"])["records"]
    assert (one["value"], one.get("no_fields")) == ({"n": 0}, None)
    assert (other["value"], other["no_fields"]) == ([1], True)
    assert problem(ask(path, query={"fields": "a,,b"})) == (400, "bad-request", "fields")


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
    assert problem(describe("nowhere"))[:2] == (404, "unknown-topic")
    explore.application.parts().store.state.close()
    assert problem(ask("/metadata/partitions")) == (400, "bad-request", "topic")
