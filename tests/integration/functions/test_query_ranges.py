"""Ranges, counts and histories as the writer leaves them on a real cluster: events in, pages out."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.builders import an_event, problem_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.support.served import Served

    Ask = Callable[..., dict[str, Any]]

HOUR_MS = 3_600_000


@pytest.fixture
def ask(query_function: ModuleType) -> Ask:
    """One warm function: `ask(path, name=value, ...)` of the query's parameters."""

    def request(path: str, **query: str) -> dict[str, Any]:
        named = {name.rstrip("_"): value for name, value in query.items()}
        event = an_event("GET", path, query=named or None)
        answer: dict[str, Any] = query_function.lambda_handler(event, None)
        return answer | {"json": json.loads(answer["body"])}

    return request


def keys(answer: dict[str, Any]) -> list[str]:
    assert answer["statusCode"] == 200, answer["body"]
    return [record["key"] for record in answer["json"]["records"]]


def all_pages(ask: Ask, path: str, **query: str) -> list[dict[str, Any]]:
    pages = [ask(path, **query)["json"]]
    while "next" in pages[-1]:
        pages.append(ask(path, **query, cursor=pages[-1]["next"])["json"])
    return pages


NAMES = [b"%s|%02d" % (who, day) for who in (b"ann", b"bob") for day in range(20)]


def test_keys_come_in_order_from_all_lanes_a_page_at_a_time(ask: Ask, serve: Callable[..., Served]):
    served = serve(index=True)
    for name in NAMES:
        served.put(name, b'{"of": "%b"}' % name)
    served.put(b"bob|07", None)
    path = f"/topics/{served.topic}/keys"
    left = [name.decode() for name in NAMES if name != b"bob|07"]
    assert keys(ask(path)) == left
    pages = all_pages(ask, path, limit="7", prefix="bob|")
    assert [len(page["records"]) for page in pages] == [7, 7, 5]
    records = [record for page in pages for record in page["records"]]
    assert [record["key"] for record in records] == [name for name in left if name.startswith("bob")]
    assert records[3]["value"] == {"of": "bob|03"}
    assert set(pages[0]["watermarks"]) == set("012345678")
    assert keys(ask(path, from_="ann|18", to="bob|02")) == ["ann|18", "ann|19", "bob|00", "bob|01"]
    assert keys(ask(path, from_="ann|18", to="ann|18")) == []
    only = ask(path, prefix="ann|0", keys_only="true")["json"]["records"]
    assert only == [{"key": f"ann|0{day}", "key_format": "text"} for day in range(10)]
    assert keys(ask(path, prefix="YW5ufDE5", key_format="base64")) == ["ann|19"]


def count_of(ask: Ask, topic: str) -> int:
    answer = ask(f"/topics/{topic}/count")
    assert answer["statusCode"] == 200, answer["body"]
    found: int = answer["json"]["count"]
    return found


def listed(ask: Ask, topic: str) -> list[str]:
    pages = all_pages(ask, f"/topics/{topic}/keys", keys_only="true", limit="1000")
    return [record["key"] for page in pages for record in page["records"]]


KEY_NUMBERS = 60
COUNTED: dict[str, dict[str, Any]] = {
    "plain": {},
    "striped": {"stripes": 4},
    "once": {"insert_once": True},
    "with a history": {"history_count": 3},
    "without markers": {"marker_ms": 0},
    "expiring": {"ttl_ms": HOUR_MS},
    "expiring in stripes": {"ttl_ms": HOUR_MS, "stripes": 3},
    "in parts": {"index": 4},
    "expiring in parts": {"ttl_ms": HOUR_MS, "index": 4},
}


@pytest.mark.parametrize("kind", COUNTED)
def test_a_count_is_the_length_of_the_listing_and_the_number_of_keys_with_a_record(
    ask: Ask, serve: Callable[..., Served], kind: str
):
    served = serve(**{"index": True} | COUNTED[kind])
    assert count_of(ask, served.topic) == 0
    choose = random.Random(20)
    ages_ms = [-HOUR_MS, -1_000, 0, HOUR_MS - 60_000, 2 * HOUR_MS]
    lengths = set()
    for _ in range(90):
        key = b"key-%d" % choose.randrange(KEY_NUMBERS)
        put = choose.choice([served.put, served.put_stray])
        put(key, choose.choice([None, b"1", b"1"]), served.now_ms - choose.choice(ages_ms))
        keys_now = listed(ask, served.topic)
        assert count_of(ask, served.topic) == len(keys_now)
        lengths.add(len(keys_now))
    assert len(lengths) > 3
    # Count and listing read the same index: this does not.
    names = [f"key-{number}" for number in range(KEY_NUMBERS)]
    found = [name for name in names if ask(f"/topics/{served.topic}/keys/{name}")["statusCode"] == 200]
    assert sorted(found) == listed(ask, served.topic)


def test_a_count_has_no_keys_whose_time_is_over(ask: Ask, serve: Callable[..., Served]):
    served = serve(index=True, ttl_ms=HOUR_MS)
    for number in range(5):
        served.put(b"stays-%d" % number, b"1")
    now_ms = time.time_ns() // 1_000_000
    for number in range(40):
        put = served.put_stray if number % 2 else served.put
        put(b"goes-%d" % number, b"1", now_ms - HOUR_MS + 1_000 + 20 * number)
    counts = [count_of(ask, served.topic)]
    end_s = time.monotonic() + 60
    # Nothing is written meanwhile, so the index keeps the names: the count must not.
    while counts[-1] > 5:
        keys_now = listed(ask, served.topic)
        counts.append(count_of(ask, served.topic))
        assert counts[-2] >= len(keys_now) >= counts[-1]
        assert time.monotonic() < end_s
    assert len(listed(ask, served.topic)) == counts[-1] == 5
    assert len(set(counts)) > 2


def test_a_history_comes_newest_first_with_its_tombstones(ask: Ask, serve: Callable[..., Served]):
    served = serve(history_count=100)
    begin_ms = served.now_ms - 100_000
    positions = [served.put(b"k", b"%d" % number, begin_ms + number) for number in range(5)]
    positions.append(served.put(b"k", None, begin_ms + 5))
    positions.append(served.put(b"k", b"back", begin_ms + 6))
    path = f"/topics/{served.topic}/keys/k/history"
    document = ask(path)["json"]
    assert document["key"] == "k"
    assert [record["position"] for record in document["records"]] == positions[::-1]
    deleted = document["records"][1]
    assert (deleted["deleted"], deleted["timestamp"]) == (True, begin_ms + 5)
    assert document["records"][2]["value"] == 4
    pages = all_pages(ask, path, limit="2", from_=str(begin_ms + 1), to=str(begin_ms + 6))
    assert [len(page["records"]) for page in pages] == [2, 2, 1]
    told = [record["position"] for page in pages for record in page["records"]]
    assert told == positions[5:0:-1]


def test_a_range_can_be_read_as_of_a_time(ask: Ask, serve: Callable[..., Served]):
    served = serve(index=True, history_age_ms=HOUR_MS)
    first_ms = served.now_ms - 100_000
    for number, name in enumerate(NAMES[:12]):
        served.put(name, b'"old"', first_ms + number)
        served.put(name, b'"new"', first_ms + 50_000)
    page = ask(f"/topics/{served.topic}/keys", as_of=str(first_ms + 4))["json"]
    assert [(record["key"], record["value"]) for record in page["records"]] == [
        (name.decode(), "old") for name in NAMES[:5]
    ]
    served.put(NAMES[2], None, first_ms + 60_000)
    assert NAMES[2].decode() not in [
        row["key"] for row in ask(f"/topics/{served.topic}/keys")["json"]["records"]
    ]
    again = ask(f"/topics/{served.topic}/keys", as_of=str(first_ms + 4))["json"]
    assert [record["key"] for record in again["records"]] == [name.decode() for name in NAMES[:5]]
    late = ask(f"/topics/{served.topic}/keys", as_of=str(first_ms + 60_000))["json"]
    assert [record["key"] for record in late["records"]] == [
        name.decode() for name in NAMES[:12] if name != NAMES[2]
    ]
    early = ask(f"/topics/{served.topic}/keys", as_of=str(served.now_ms - 2 * HOUR_MS))
    assert problem_of(early)[:2] == (410, "history-too-short")
    assert early["json"]["since_ms"] >= served.now_ms - HOUR_MS
