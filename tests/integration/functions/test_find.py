"""Records found by their fields on a real cluster: what a plain search over the same records finds."""

from __future__ import annotations

import base64
import json
import random
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import SlotMove, eventually
from tests.support.builders import an_event, lane_of

from keylane.api.http import cursors
from keylane.query import field_scan, finder

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.support.served import Served

    from keylane_local.servers.redis_cluster import RedisCluster

    Ask = Callable[..., dict[str, Any]]

HOUR_MS = 3_600_000
FIELDS = (
    ("amount", "number"),
    ("customer.id", "text"),
    ("limit", "boolean"),
    ("placed", "time"),
    ("status", "text"),
    ("tags", "texts"),
)
INDEXES = (("by_customer", ("customer.id", "placed")), ("by_status", ("status", "amount")))
STATES = ["open", "paid", "void"]
TAGS = ["gift", "gone", "new", "old"]


@pytest.fixture
def ask(query_function: ModuleType) -> Ask:
    def request(topic: str, headers: dict[str, str] | None = None, **query: str) -> dict[str, Any]:
        event = an_event("GET", f"/topics/{topic}/find", query=query or None, headers=headers)
        answer: dict[str, Any] = query_function.lambda_handler(event, None)
        return answer | {"json": json.loads(answer["body"])}

    return request


@pytest.fixture
def serve(serve: Callable[..., Served]) -> Callable[..., Served]:
    return lambda **options: serve(**{"index": 1, "fields": FIELDS, **options})


def found(ask: Ask, topic: str, **query: str) -> list[str]:
    """The keys on all pages, in their order."""
    names: list[str] = []
    while True:
        answer = ask(topic, **query)
        assert answer["statusCode"] == 200, answer["body"]
        names += [record["key"] for record in answer["json"]["records"]]
        if "next" not in answer["json"]:
            assert len(set(names)) == len(names)
            return names
        query["cursor"] = answer["json"]["next"]


def sent_bytes(cluster: RedisCluster) -> int:
    """What all nodes have sent so far, but for what replicas follow."""
    sent = 0
    for node in cluster.nodes:
        stats = node.command("INFO", "stats")
        sent += stats["total_net_output_bytes"] - stats["total_net_repl_output_bytes"]
    return sent


def refused(answer: dict[str, Any]) -> tuple[int, str | None, str]:
    return answer["statusCode"], answer["json"].get("parameter"), answer["json"]["detail"]


def a_document(rng: random.Random) -> dict[str, Any]:
    document: dict[str, Any] = {
        "amount": rng.choice([rng.randrange(-20, 20), rng.randrange(-200, 200) / 10, "7.5", None, "odd"]),
        "customer": {"id": rng.choice(["c1", "c2", "c3", "c10", 7])},
        "placed": rng.choice([f"2013-01-{rng.randrange(10, 28)}", 1357016400000 + rng.randrange(10**9)]),
        "status": rng.choice([*STATES, "x" * 70 + rng.choice("ab")]),
        "tags": rng.sample(TAGS, rng.randrange(4)),
        "limit": rng.choice([True, False]),
    }
    for name in rng.sample(sorted(document), rng.choice([0, 0, 1])):
        del document[name]
    return document


def number_of(found_: Any) -> Decimal | None:
    if isinstance(found_, bool) or not isinstance(found_, int | float | str) or found_ == "odd":
        return None
    return Decimal(str(found_))


def time_of(found_: Any) -> Decimal | None:
    if isinstance(found_, str):
        return Decimal(int(datetime.fromisoformat(found_ + "T00:00:00+00:00").timestamp() * 1000))
    return number_of(found_)


def text_of(found_: Any) -> str | None:
    return found_ if isinstance(found_, str) else None


VALUES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "amount": lambda document: number_of(document.get("amount")),
    "customer.id": lambda document: text_of(document.get("customer", {}).get("id")),
    "placed": lambda document: time_of(document.get("placed")),
    "status": lambda document: text_of(document.get("status")),
}
CONDITIONS: list[tuple[dict[str, str], Callable[[dict[str, Any]], bool]]] = [
    ({"status": "open"}, lambda d: d.get("status") == "open"),
    ({"status": "p*"}, lambda d: (text_of(d.get("status")) or "").startswith("p")),
    ({"status": "x" * 70 + "a"}, lambda d: d.get("status") == "x" * 70 + "a"),
    ({"status": "x" * 69 + "*"}, lambda d: (d.get("status") or "").startswith("x" * 69)),
    ({"status": '"open"'}, lambda d: d.get("status") == "open"),
    ({"amount": "7.50"}, lambda d: VALUES["amount"](d) == Decimal("7.5")),
    ({"amount": "-5..5"}, lambda d: (v := VALUES["amount"](d)) is not None and -5 <= v <= 5),
    ({"amount": "0..<7.5"}, lambda d: (v := VALUES["amount"](d)) is not None and 0 <= v < Decimal("7.5")),
    ({"amount": "..0"}, lambda d: (v := VALUES["amount"](d)) is not None and v <= 0),
    ({"amount": ".."}, lambda d: VALUES["amount"](d) is not None),
    ({"customer.id": "c1"}, lambda d: VALUES["customer.id"](d) == "c1"),
    ({"customer.id": "c1*"}, lambda d: (VALUES["customer.id"](d) or "").startswith("c1")),
    (
        {"placed": "2013-01-12..<2013-01-20"},
        lambda d: (v := VALUES["placed"](d)) is not None and 1357948800000 <= v < 1358640000000,
    ),
    ({"tags": "new"}, lambda d: "new" in d.get("tags", [])),
    ({"tags": "g*"}, lambda d: any(tag.startswith("g") for tag in d.get("tags", []))),
    ({".limit": "true"}, lambda d: d.get("limit") is True),
]


@pytest.mark.parametrize(
    ("options", "seed"),
    [({}, 1), ({"index": 3, "indexes": INDEXES}, 2), ({"indexes": INDEXES, "guarded": True}, 3)],
)
def test_what_is_found_is_what_a_search_of_all_records_finds_in_order_and_in_pages(
    ask: Ask,
    serve: Callable[..., Served],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    seed: int,
):
    rng, served = random.Random(seed), serve(**options)
    state: dict[str, dict[str, Any]] = {}
    for _ in range(260):
        key = f"k{rng.randrange(90)}" + rng.choice(["", "\0", "ÿ"])
        document = None if rng.random() < 0.1 else a_document(rng)
        write = served.put_stray if options.get("guarded") and rng.random() < 0.2 else served.put
        # Strays are of the same time: the key's own partition wins, so both may differ from the last write.
        write(
            key.encode(),
            None if document is None else json.dumps(document).encode(),
            served.now_ms + len(state),
        )
        served.now_ms += 1
        state.pop(key, None)
        if document is not None:
            state[key] = document
    for _ in range(70):
        monkeypatch.setattr(finder, "SORTED_AT_ONCE", rng.choice([0, 10, 1000]))
        chosen = rng.sample(CONDITIONS, rng.choice([1, 1, 2, 3]))
        query: dict[str, str] = {}
        tests = []
        for condition, test in chosen:
            if not condition.keys() & query.keys():
                query |= condition
                tests.append(test)
        prefix = rng.choice(["", "", "k1", "k12", "none"])
        query |= {"prefix": prefix} if prefix else {}
        wanted = {
            key
            for key, document in state.items()
            if key.startswith(prefix) and all(test(document) for test in tests)
        }
        counted = ask(served.topic, **query, count="true")["json"]
        assert counted["count"] == len(wanted)
        assert "next" not in counted
        order = rng.choice([None, *VALUES])
        limit = rng.choice(["3", "7", "100"])
        if order is None:
            assert set(found(ask, served.topic, **query, limit=limit)) == wanted, query
            continue
        is_descending = rng.random() < 0.5
        rows = [
            ((value.encode() if isinstance(value, str) else value), key.encode())
            for key in wanted
            if (value := VALUES[order](state[key])) is not None
        ]
        names = found(ask, served.topic, **query, limit=limit, order="-" * is_descending + order)
        in_order = [key.decode() for _, key in sorted(rows, reverse=is_descending)]
        if order == "status":  # texts that are cut come in the order of their keys
            assert sorted(names) == sorted(in_order)
        else:
            assert names == in_order, (query, order)


def test_a_find_of_keys_that_share_a_partition_key_asks_one_lane(ask: Ask, serve: Callable[..., Served]):
    served = serve(partition_by="prefix:|", stripes=2)
    for number in range(40):
        served.put(b"c%d|%02d" % (number % 8, number), b'{"amount": %d}' % (number % 3))

    answer = ask(served.topic, prefix="c3|", amount="1..", order="-amount")["json"]

    assert [record["key"] for record in answer["records"]] == ["c3|35", "c3|11", "c3|19"]
    partition, _, _ = lane_of(served.layout, b"c3|11")
    assert list(answer["watermarks"]) == [str(partition)]
    assert ask(served.topic, prefix="c3|", amount="1..", count="true")["json"]["count"] == 3
    # Without the separator there may be others: c30, for one.
    assert (
        len(ask(served.topic, prefix="c3", amount="1..")["json"]["watermarks"])
        == served.layout.partition_count
    )


def test_few_keys_with_a_prefix_are_found_by_the_index_of_keys(ask: Ask, serve: Callable[..., Served]):
    served = serve(fields=(("keys", "number"), ("status", "text")))
    for number in range(60):
        served.put(b"k%02d" % number, b'{"status": "open", "keys": %d}' % (number % 7))

    answer = ask(served.topic, prefix="k1", status="open", order="-keys")["json"]
    pages = found(ask, served.topic, prefix="k1", status="open", limit="3")

    assert answer["scanned"] == 10
    assert [record["value"]["keys"] for record in answer["records"]] == [6, 5, 5, 4, 4, 3, 3, 2, 1, 0]
    assert pages == [f"k1{number}" for number in range(10)]
    # All of them meet it, and those of the condition are fewer than the keys.
    assert ask(served.topic, prefix="k", keys="6")["json"]["scanned"] == 8


def test_a_find_by_a_prefix_may_have_an_order_alone(ask: Ask, serve: Callable[..., Served]):
    served = serve()
    served.put(b"a1", b'{"status": "open"}')

    assert found(ask, served.topic, prefix="a", order="status") == ["a1"]


def test_a_replaced_and_a_deleted_record_are_found_by_nothing_that_they_were(
    ask: Ask, serve: Callable[..., Served]
):
    served = serve()
    served.put(b"a", b'{"status": "open", "amount": 1}')
    served.put(b"b", b'{"status": "open"}')
    served.put(b"a", b'{"status": "paid", "amount": 1}')
    assert found(ask, served.topic, status="open") == ["b"]
    assert found(ask, served.topic, amount="1.0") == ["a"]
    served.put(b"b", None)
    assert found(ask, served.topic, status="open") == []
    served.put(b"a", b"no JSON")
    assert found(ask, served.topic, amount="..") == []


def test_a_record_with_several_values_in_a_range_is_one_row_on_all_pages(
    ask: Ask, serve: Callable[..., Served]
):
    served = serve()
    for number in range(9):
        served.put(b"k%d" % number, b'{"tags": ["gift", "gone", "g%d"]}' % number)
    names = found(ask, served.topic, tags="g*", limit="2")
    assert sorted(names) == [f"k{number}" for number in range(9)]
    assert ask(served.topic, tags="g*", count="true")["json"]["count"] == 9


@pytest.mark.parametrize("tags", [["new", "gift"], ["gift", "new"], ["g*", "gift*"]])
def test_conditions_on_several_values_of_a_record_give_one_row_on_all_pages(
    query_function: ModuleType, serve: Callable[..., Served], tags: list[str]
):
    """Each page is driven by the condition that drove the one before."""
    served, names, cursor = serve(), [], {}
    for number in range(9):
        served.put(b"k%d" % number, b'{"tags": ["ga", "gift", "new"]}')
        served.put(b"o%d" % number, b'{"tags": ["ga", "new"]}')
    while True:
        event = an_event("GET", f"/topics/{served.topic}/find", query={"limit": "2", **cursor})
        event["multiValueQueryStringParameters"]["tags"] = tags
        page = json.loads(query_function.lambda_handler(event, None)["body"])
        names += [record["key"] for record in page["records"]]
        if "next" not in page:
            break
        cursor = {"cursor": page["next"]}
    assert sorted(names) == [f"k{number}" for number in range(9)]


def test_an_expired_record_is_not_found_nor_counted(ask: Ask, serve: Callable[..., Served]):
    served = serve(ttl_ms=HOUR_MS)
    served.put(b"stays", b'{"status": "open"}')
    served.put(b"goes", b'{"status": "open"}', served.now_ms - HOUR_MS + 300)
    eventually(lambda: found(ask, served.topic, status="open") == ["stays"])
    assert ask(served.topic, status="open", count="true")["json"]["count"] == 1


def test_a_page_that_looked_at_its_most_says_so_and_goes_on(
    ask: Ask, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(finder, "MOST_SCANNED", 10)
    monkeypatch.setattr(finder, "SORTED_AT_ONCE", 0)
    served = serve()
    for number in range(40):
        status = "open" if number in (17, 38) else "paid"
        served.put(b"%d" % number, b'{"amount": %d, "status": "%b"}' % (number, status.encode()))
    page = ask(served.topic, order="amount", status="open")["json"]
    assert (page["records"], page["scanned"]) == ([], 10)
    assert found(ask, served.topic, order="amount", status="open") == ["17", "38"]
    assert found(ask, served.topic, order="-amount", status="open") == ["38", "17"]
    asked = {"order": "amount", "status": "open", "count": "true"}
    counted = ask(served.topic, **asked)["json"]
    total = counted["count"]
    while "next" in counted:
        counted = ask(served.topic, **asked, cursor=counted["next"])["json"]
        total += counted["count"]
    assert total == 2


def test_a_cursor_goes_on_behind_what_was_read_whatever_is_written(ask: Ask, serve: Callable[..., Served]):
    served = serve()
    for number in range(30):
        served.put(b"k%02d" % number, b'{"amount": %d}' % number)
    first = ask(served.topic, order="amount", limit="10")["json"]
    assert [record["key"] for record in first["records"]] == [f"k{number:02d}" for number in range(10)]
    served.put(b"k05", b'{"amount": 25.5}')
    served.put(b"k20", None)
    names = found(ask, served.topic, order="amount", limit="7", cursor=first["next"])
    assert names == [f"k{number:02d}" for number in range(10, 26) if number != 20] + ["k05"] + [
        f"k{number:02d}" for number in range(26, 30)
    ]


def test_a_page_of_large_values_reads_little_more_than_it_answers_with(
    ask: Ask, serve: Callable[..., Served], cluster: RedisCluster
):
    served = serve(index=8)
    text = "x" * 700_000
    for number in range(40):
        served.put(b"k%02d" % number, f'{{"amount": {number}, "x": "{text}"}}'.encode())
    before = sent_bytes(cluster)
    page = ask(served.topic, order="amount", limit="100", fields="amount")["json"]
    assert len(page["records"]) == 6  # of 700 KB each, in 4 MiB
    assert sent_bytes(cluster) - before < 3 * 4 * 1024 * 1024
    for order in ("amount", "-amount"):
        names = found(ask, served.topic, order=order, limit="100", fields="amount")
        assert names == sorted((f"k{number:02d}" for number in range(40)), reverse=order.startswith("-"))


@pytest.mark.parametrize("step", [1, 7, 100])
@pytest.mark.parametrize("lane_bytes", [1, 2_000, 40_000])
def test_whatever_fits_into_a_round_the_pages_are_the_same(
    ask: Ask, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, step: int, lane_bytes: int
):
    monkeypatch.setattr(field_scan, "BYTES_OF_LANE", lane_bytes)
    served = serve(index=4)
    sizes = random.Random(f"{step} {lane_bytes}")
    for number in range(60):
        text = "x" * sizes.choice([0, 10, 900, 5_000])
        served.put(b"k%02d" % number, f'{{"amount": {number % 20}, "x": "{text}"}}'.encode())
    in_order = sorted((number % 20, f"k{number:02d}") for number in range(60))
    wanted = [name for _, name in in_order]
    assert found(ask, served.topic, order="amount", limit=str(step)) == wanted
    assert found(ask, served.topic, order="-amount", limit=str(step)) == wanted[::-1]
    assert found(ask, served.topic, amount="5..15", order="amount", limit=str(step)) == [
        name for amount, name in in_order if 5 <= amount <= 15
    ]


@pytest.mark.parametrize("asked", [{"order": "amount"}, {"amount": "0.."}], ids=["in order", "by an index"])
def test_a_cursor_of_an_index_whose_field_has_another_type_now_is_refused(
    ask: Ask, serve: Callable[..., Served], asked: dict[str, str]
):
    numbers, texts = serve(fields=(("amount", "number"),)), serve(fields=(("amount", "text"),))
    for served in (numbers, texts):
        for number in range(10, 20):
            served.put(b"k%d" % number, b'{"amount": "%d"}' % number)
    cursor = ask(numbers.topic, limit="3", **asked)["json"]["next"]
    data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    bounds, position = data[2 + data[1] :][:8], data[2 + data[1] :][8:-8]
    for other, is_refused in ((numbers.topic, False), (texts.topic, True)):
        answer = ask(other, limit="3", cursor=cursors.encode(other, bounds, position), **asked)
        if is_refused:
            assert refused(answer) == (
                *(400, "cursor"),
                "the cursor is of an index that the topic no longer has: begin again",
            )
        else:
            assert [record["key"] for record in answer["json"]["records"]] == ["k13", "k14", "k15"]


@pytest.mark.parametrize(
    "position", [b"", b"abc", bytes(4), bytes(4) + b"\xff\xfe", bytes(4) + b"\2\xff\xff"]
)
@pytest.mark.parametrize("asked", [{"order": "amount"}, {"amount": "0.."}], ids=["in order", "by an index"])
def test_a_forged_cursor_is_refused_or_a_page(
    ask: Ask, serve: Callable[..., Served], asked: dict[str, str], position: bytes
):
    served = serve(fields=(("amount", "number"),))
    for number in range(10):
        served.put(b"k%d" % number, b'{"amount": %d}' % number)
    cursor = ask(served.topic, limit="3", **asked)["json"]["next"]
    data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    forged = cursors.encode(served.topic, data[2 + data[1] :][:8], position)
    assert ask(served.topic, limit="3", cursor=forged, **asked)["statusCode"] in {200, 400}


@pytest.mark.parametrize("first_goes", ["a record", "the watermark", "all but records"])
def test_in_a_migrating_slot_a_find_waits_and_never_lacks_a_row(
    ask: Ask, serve: Callable[..., Served], cluster: Any, first_goes: str
):
    """A script that asks for the watermark is redirected to the target once that has it."""
    served = serve()
    keys = [b"k%d" % number for number in range(40)]
    for number, key in enumerate(keys):
        served.put(key, b'{"amount": %d}' % number)
    wanted = [key.decode() for key in keys]
    assert found(ask, served.topic, order="amount", amount="..") == wanted
    lane = served.lanes[lane_of(served.layout, keys[0])[0]]
    move = SlotMove(cluster, lane.slot)
    in_slot = move.source.command("CLUSTER", "GETKEYSINSLOT", lane.slot, 10_000)
    names = {
        "a record": [lane.key_prefix + keys[0]],
        "the watermark": [lane.watermark_key],
        "all but records": [
            name
            for each in in_slot
            if served.topic.encode() in (name := each if isinstance(each, bytes) else each.encode())
            and not name.startswith(lane.key_prefix)
        ],
    }
    try:
        move.begin()
        move.move(*names[first_goes])
        status, _, _ = refused(ask(served.topic, order="amount"))
        assert status == 503
    finally:
        move.undo()
    assert found(ask, served.topic, order="amount", amount="..") == wanted
