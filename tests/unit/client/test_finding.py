"""Records by their fields: what the client sends, how it follows pages, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from uuid import UUID

import httpx
import pytest
from tests.unit.client.api_double import ApiDouble, row

from keylane_client import AsyncClient, InvalidArgument, Position, all_of, between, starting_with
from keylane_client.testing import FakeKeylane


class State(Enum):
    OPEN = "open"


@dataclass
class Keyed:
    k: str


def found(*keys: str, scanned: int = 1, cursor: str | None = None, watermark: int = 8) -> httpx.Response:
    rows = [row(key) for key in keys]
    document = {"records": rows, "scanned": scanned, "watermarks": {"2": watermark}, "age_ms": 3}
    return httpx.Response(200, json=document | ({"next": cursor} if cursor else {}))


def asked(api: ApiDouble) -> list[list[tuple[str, str]]]:
    return [request.url.params.multi_items() for request in api.requests]


@pytest.mark.parametrize(
    ("wanted", "texts"),
    [
        ("open", ["open"]),
        ("", ['""']),
        ("Sm*", ['"Sm*"']),
        ("a..b", ['"a..b"']),
        ('"', ['"\\""']),
        ("ü..", ['"ü.."']),
        (10, ["10"]),
        (True, ["true"]),
        (1e22, ["1e+22"]),
        (Decimal("12.50"), ["12.50"]),
        (State.OPEN, ["open"]),
        (UUID(int=1), ["00000000-0000-0000-0000-000000000001"]),
        (date(2026, 11, 1), ["2026-11-01"]),
        (datetime(2026, 11, 1, 1, 2, 3, 4, tzinfo=UTC), ["2026-11-01T01:02:03.000004Z"]),
        (datetime(2026, 11, 1, 1, tzinfo=timezone(timedelta(hours=1))), ["2026-11-01T00:00:00Z"]),
        (between(10, 20), ["10..20"]),
        (between(10), ["10.."]),
        (between(high=-1.5), ["..-1.5"]),
        (between(), [".."]),
        (between(date(2026, 11, 1), below=date(2026, 12, 1)), ["2026-11-01..<2026-12-01"]),
        (starting_with("Sm"), ["Sm*"]),
        (all_of("a", starting_with("b"), "c*"), ["a", "b*", '"c*"']),
    ],
)
def test_a_condition_is_sent_as_the_api_spells_it(wanted, texts):
    api = ApiDouble(found())
    list(api.topic().find(limit=wanted))
    # With its dot the field is not taken for the parameter of its name.
    assert asked(api) == [[(".limit", text) for text in texts]]
    assert api.requests[0].url.path == "/v1/topics/t/find"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda topic: topic.find(a=None), "no record is found by a field that it lacks"),
        (lambda topic: topic.find(a=["x"]), r"all_of\(...\) is for several conditions"),
        (lambda topic: topic.find(a=float("nan")), "not a number"),
        (lambda topic: topic.find(a=Decimal("Infinity")), "not a number"),
        (lambda topic: topic.find(a=b"x"), "bytes is not a value of a field"),
        (lambda _: between("a..b", "c"), "bounds no range"),
        (lambda _: between("a", "<c"), "bounds no range"),
        (lambda _: between(1, 2, below=3), "exclude each other"),
        (lambda _: starting_with("a..b"), "is no prefix"),
        (lambda _: starting_with('"a'), "is no prefix"),
        (lambda _: starting_with(1), "a prefix is a string"),
        (lambda _: all_of(), "needs a condition"),
        (lambda topic: topic.find(a=1).limit(0), "1 at least"),
        (lambda topic: topic.at(5).find(a=1), "find has no `at`"),
    ],
)
def test_what_is_no_condition_is_refused_and_nothing_is_sent(make, text):
    api = ApiDouble()
    with pytest.raises(InvalidArgument, match=text):
        make(api.topic())
    assert api.requests == []


def test_pages_are_followed_in_the_order_that_is_asked_for():
    api = ApiDouble(found("a", cursor="c1"), found(cursor="c2"), found("b"))
    orders = api.topic().reading(fields=["amount"], max_age=timedelta(seconds=2))
    query = orders.find({"customer.country": "NL"}, status="open").order_by("-placed").page_size(5)
    assert [record.key for record in query] == ["a", "b"]
    first, second, third = map(dict, asked(api))
    assert first == {
        ".customer.country": "NL",
        ".status": "open",
        "order": "-placed",
        "limit": "5",
        "fields": "amount",
        "max_age_ms": "2000",
    }
    assert (second, third) == (first | {"cursor": "c1"}, first | {"cursor": "c2"})


def test_a_find_of_keys_with_a_prefix_sends_it_beside_the_field_of_that_name():
    api = ApiDouble(found("a"), found("a"))
    query = api.topic().find(prefix="x")
    list(query.prefix("ann|"))
    list(query.prefix(b"\xff"))
    assert [dict(each) for each in asked(api)] == [
        {".prefix": "x", "prefix": "ann|"},
        {".prefix": "x", "prefix": "_w==", "key_format": "base64"},
    ]


def test_a_limit_ends_the_iteration_and_no_page_is_larger_than_what_is_left():
    api = ApiDouble(found("a", "b", cursor="c1"), found("c", "d", cursor="c2"))
    assert [record.key for record in api.topic().find(a=1).limit(3)] == ["a", "b", "c"]
    assert [dict(each)["limit"] for each in asked(api)] == ["3", "1"]
    api = ApiDouble(found())
    list(api.topic().find(a=1).limit(5000))
    assert dict(asked(api)[0])["limit"] == "1000"


def test_a_page_has_its_cursor_and_what_was_scanned():
    api = ApiDouble(found("a", scanned=5000, cursor="c1"), found("b"))
    query = api.topic().find(a=1)
    first = query.page()
    assert ([each.key for each in first.records], first.next, first.scanned) == (["a"], "c1", 5000)
    assert (first.watermarks, first.age) == ({2: 8}, timedelta(milliseconds=3))
    assert query.page(first.next).next is None
    assert dict(asked(api)[1]) == {".a": "1", "cursor": "c1"}


def test_a_count_adds_up_its_answers():
    counts = [{"count": 3, "scanned": 5000, "next": "c1"}, {"count": 2, "scanned": 9}]
    api = ApiDouble(*[httpx.Response(200, json=each | {"watermarks": {"2": 8}}) for each in counts])
    assert api.topic().find(a=1).order_by("b").limit(1).count() == 5
    assert asked(api)[1] == [(".a", "1"), ("count", "true"), ("order", "b"), ("cursor", "c1")]


def test_a_position_is_demanded_of_each_page():
    api = ApiDouble(found("a", cursor="c1"), found())
    list(api.topic().find(a=1).min_position(Position(2, 7), wait_s=9))
    for request in api.requests:
        assert request.headers["keylane-min-position"] == "2:7"
        assert request.headers["prefer"] == "wait=9"


def test_a_session_waits_for_its_own_writes():
    api = ApiDouble(
        httpx.Response(201, json={"partition": 2, "offset": 8}),
        found(watermark=8),
        httpx.Response(200),
        found("k", watermark=9),
    )
    topic = api.client().session().topic("t")
    topic.put("k", {"a": 1})
    assert [record.key for record in topic.find(a=1)] == ["k"]
    assert [request.method for request in api.requests] == ["PUT", "GET", "HEAD", "GET"]


def test_values_are_of_the_topics_model_in_either_client():
    query = ApiDouble(found("a")).client().topic("t", model=Keyed).find(a=1)
    assert [record.value for record in query] == [Keyed("a")]

    async def read(client: AsyncClient):
        query = client.topic("t", model=Keyed).find(a=1)
        return [record.value async for record in query], (await query.limit(1).page()).records[0].value

    api = ApiDouble(found("a", cursor="c"), found("b"), found("c"))
    assert api.run(read) == ([Keyed("a"), Keyed("b")], Keyed("c"))


def test_a_query_says_what_it_is():
    assert repr(ApiDouble().topic().find(a=1)) == "Find('t', 'https://api.test/v1')"


def test_the_fake_knows_fields_of_its_own_topics_alone():
    with pytest.raises(InvalidArgument, match="fields are of topics that there are"):
        FakeKeylane({"t": 1}, fields={"u": {"a": "text"}})
    with pytest.raises(
        InvalidArgument, match="text, number, time, time_s, time_us, time_ns, time_days, boolean, texts"
    ):
        FakeKeylane({"t": 1}, fields={"t": {"a": "string"}})
