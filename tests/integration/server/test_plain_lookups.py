"""The fast path of plain look-ups, in a process of the server: it answers as the way of all requests."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
from tests.support.server_process import OTHER_WAY, Process, with_tokens

from keylane.access.policy import Policy
from keylane.api.http.parameters import HEADER
from keylane.api.reads.key import READ
from keylane.model.records import Options
from keylane.state.codec import LeftInKafka, encode_record
from keylane_server.lookups import NOT_PLAIN
from keylane_server.options import TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKEN = "a-token-of-these-tests"


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
    "event": {"value": b'{"before": null, "after": {"n": 1}, "op": "u"}'},
}
OPTIONS = [
    *(Options(value_format=each) for each in ("auto", "text", "json", "bytes")),
    Options(envelope="debezium"),
]


@pytest.fixture(scope="module", params=OPTIONS, ids=lambda each: f"{each.value_format}-{each.envelope}")
def topic(request: pytest.FixtureRequest, redis_cluster: str) -> str:
    """A topic with a key for each kind of value."""
    layout = a_layout(options=request.param)
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


@pytest.mark.parametrize("key", [*VALUES, "absent"])
def test_a_plain_lookup_is_answered_as_on_the_way_of_all_requests(process: Process, topic: str, key: str):
    warm(process, topic)
    path = f"/topics/{topic}/keys/{key}"
    for accept in (None, "*/*", "application/json", "text/html, */*;q=0.1", "text/plain"):
        headers = {} if accept is None else {"accept": accept}
        plain, other = process.get(path, headers), process.get(path, headers | OTHER_WAY)
        assert (plain.is_fast, other.is_fast) == (True, False), accept
        assert plain.lasting == other.lasting, accept
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
    assert not found.is_fast


def test_the_fast_path_answers_the_row_of_a_change_event(process: Process, redis_cluster: str):
    layout = a_layout(options=Options(envelope="debezium"))
    fill(redis_cluster, a_lane(layout, b"k", b'{"before": null, "after": {"n": 1.0}, "op": "u"}'))
    path = f"/topics/{layout.topic}/keys/k"
    process.get(path, OTHER_WAY)
    found = process.get(path)
    assert (found.is_fast, found.status, found.body) == (True, 200, b'{"n": 1.0}')
    assert not process.get(f"{path}?event=true").is_fast


def test_the_fast_path_finds_a_key_by_the_value_of_its_field(process: Process, redis_cluster: str):
    layout = a_layout(options=Options(key_fields=(("id", "integer"),)))
    fill(redis_cluster, a_lane(layout, b'{"id":7}', b"1"))
    path = f"/topics/{layout.topic}/keys/7"
    process.get(path, OTHER_WAY)
    found = process.get(path)
    assert (found.is_fast, found.status, found.body) == (True, 200, b"1")
    refused = process.get(f"/topics/{layout.topic}/keys/seven")
    assert (refused.is_fast, refused.status) == (False, 400)


def test_a_head_is_not_plain_and_has_no_body(process: Process, topic: str):
    warm(process, topic)
    found = process.get(f"/topics/{topic}/keys/event", method="HEAD")
    assert (found.is_fast, found.status, found.body) == (False, 200, b"")


def test_a_lane_that_was_superseded_is_read_by_the_newer_layout(process: Process, redis_cluster: str):
    old = a_layout()
    new = replace(old, generation=old.generation + 1)
    fill(redis_cluster, a_lane(old, b"k", b"1"))
    path = f"/topics/{old.topic}/keys/k"
    assert process.get(path).body == b"1"
    assert process.get(path).is_fast
    fill(redis_cluster, watermark_entry(new, b"k") | value_entry(new, b"k", b"2") | layout_entry(new))
    fill(redis_cluster, watermark_entry(old, b"k", a_watermark(superseded=True)))
    first, second = process.get(path), process.get(path)
    assert (first.body, first.is_fast) == (b"2", False)
    assert (second.body, second.is_fast) == (b"2", True)


def test_the_answers_are_counted_with_those_of_all(process: Process, topic: str):
    def count(metric: str) -> float:
        lines = process.metrics.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))

    warm(process, topic)
    requests, ages = 'http_requests_duration_ms_count{code="200",method="get_key"}', f'topic="{topic}"'
    before = count(requests)
    for _ in range(3):
        assert process.get(f"/topics/{topic}/keys/event").is_fast
    assert count(requests) == before + 3
    assert ages in process.metrics


@pytest.fixture
def guarded(variables: dict[str, str]) -> Iterator[Callable[..., Process]]:
    """Makes a process that requires tokens; TOKEN has the grant."""
    begun: list[Process] = []

    def make(**grant: list[str]) -> Process:
        begun.append(Process(with_tokens(variables, TOKEN, **grant), authorization=TOKENS))
        return begun[-1]

    yield make
    for each in begun:
        each.close()


def test_a_token_opens_the_fast_path_to_what_it_may_read_alone(
    guarded: Callable[..., Process], redis_cluster: str
):
    layout, other = a_layout(), a_layout()
    for each in (layout, other):
        fill(redis_cluster, a_lane(each, b"k", b"1"))
    process = guarded(read=[layout.topic])
    path, bearer = f"/topics/{layout.topic}/keys/k", {"authorization": f"Bearer {TOKEN}"}
    assert process.get(path, bearer).status == 200
    assert process.get(path, bearer).is_fast
    for headers in ({}, {"authorization": f"Bearer {TOKEN}x"}, {"authorization": TOKEN}):
        found = process.get(path, headers)
        assert (found.status, found.is_fast) == (401, False)
    found = process.get(f"/topics/{other.topic}/keys/k", bearer)
    assert (found.status, found.is_fast) == (403, False)


def test_a_token_that_is_revoked_ends_the_fast_path(guarded: Callable[..., Process], redis_cluster: str):
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, b"k", b"1"))
    process = guarded(read=["*"])
    path, bearer = f"/topics/{layout.topic}/keys/k", {"authorization": f"Bearer {TOKEN}"}
    process.get(path, bearer)
    assert process.get(path, bearer).is_fast
    authorizer = process.app._authorizer
    assert authorizer is not None
    authorizer._replace(Policy())
    found = process.get(path, bearer)
    assert (found.status, found.is_fast) == (401, False)


def test_a_topic_that_is_not_served_has_no_fast_path(variables: dict[str, str], redis_cluster: str):
    layout = a_layout()
    fill(redis_cluster, a_lane(layout, b"k", b"1"))
    with closing(Process(variables | {"KEYLANE_TOPICS": '{"read": ["orders.*"]}'})) as process:
        for _ in range(2):
            found = process.get(f"/topics/{layout.topic}/keys/k")
            assert (found.status, found.is_fast) == (403, False)
