from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

import httpx
import pytest
from tests.servers.own import eventually
from tests.unit.client.api_double import ApiDouble, problem
from tests.unit.client.snapshot_answers import (
    ENDED_AT,
    OpenBody,
    a_row,
    begun,
    changed,
    ended,
    failed,
    lane,
    lines,
    named,
    reached,
    removed,
    snapshot_of,
)

from keylane_client import (
    Absent,
    AccessDenied,
    AsyncClient,
    InvalidArgument,
    Position,
    ServiceFailed,
    SyncFailed,
    Unavailable,
)
from keylane_client.syncing import BEGINNINGS
from keylane_client.wire import ApiResponse, Items

GAP = named("gap", {"partition": 0, "from": 3, "to": 9})


def values_of(records: Mapping) -> dict[object, object]:
    return {key: record.value for key, record in records.items()}


class Changes:
    """What a hook was called with."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def __call__(self, change: object) -> None:
        self.seen.append((change.key, None if isinstance(change, Absent) else change.value))


def test_a_mapping_has_the_snapshot_and_then_each_change():
    body, changes = OpenBody("retry: 1000\n\n", reached(ENDED_AT)), Changes()
    api = ApiDouble(snapshot_of({"a": 1, "b": 2}), body.response())
    with api.topic().sync(on_change=changes) as records:
        assert (values_of(records), str(records.at)) == ({"a": 1, "b": 2}, ENDED_AT)
        body.send(
            changed("a", 3, 8) + changed("c", 4, 9) + named("absent", removed("b")) + reached("0:5,1:9@7")
        )
        eventually(lambda: str(records.at) == "0:5,1:9@7")
        assert values_of(records) == {"a": 3, "c": 4}
        assert (len(records), "a" in records, b"a" in records, "b" in records) == (2, True, True, False)
        assert records["a"].position == Position(2, 8)
        assert sorted(records) == ["a", "c"]
        assert {record.value for record in records.values()} == {3, 4}
        with pytest.raises(KeyError, match="b"):
            records["b"]
        assert records.get("b") is None
        assert Position(1, 8) in records.at
    assert changes.seen == [("a", 3), ("c", 4), ("b", None)]
    assert api.paths == ["/topics/t/snapshot", "/topics/t/changes"]
    assert api.requests[1].headers["Last-Event-ID"] == ENDED_AT


def test_prefix_and_conditions_are_those_of_both_and_what_has_left_is_removed():
    body = OpenBody(named("left", a_row("a", 5, 8)))
    api = ApiDouble(snapshot_of({"a": 1, "b": 2}), body.response())
    with api.topic().sync(prefix="p", where={"state": "open"}) as records:
        eventually(lambda: values_of(records) == {"b": 2})
    assert [dict(each.url.params) for each in api.requests] == [{".state": "open", "prefix": "p"}] * 2


def test_a_change_that_the_snapshot_has_already_is_not_reported():
    body, changes = (
        OpenBody(changed("a", 1, 7) + named("absent", removed("x")) + reached("0:9,1:9@7")),
        Changes(),
    )
    with ApiDouble(snapshot_of({"a": 1}), body.response()).topic().sync(on_change=changes) as records:
        eventually(lambda: str(records.at) == "0:9,1:9@7")
    assert changes.seen == []


@pytest.mark.parametrize(
    "broken",
    [
        httpx.ConnectError("refused"),
        httpx.Response(502, content=b"<html>bad gateway"),
        problem(503, "overloaded"),
        problem(404, "unknown-topic"),
        problem(429, "rate-limited", Retry_After="0"),
    ],
    ids=["connection", "proxy", "overload", "unknown", "limit"],
)
def test_a_stream_that_breaks_is_resumed_where_it_was_however_often(broken):
    first, last = OpenBody(changed("a", 2, 8, "0:6,1:6@7"), httpx.ReadError("gone")), OpenBody()
    api = ApiDouble(snapshot_of({"a": 1}), first.response(), *[broken] * 6, last.response())
    with api.topic().sync() as records:
        last.send(changed("a", 3, 9, "0:7,1:6@7"))
        eventually(lambda: values_of(records) == {"a": 3})
    resumed = [each.headers["Last-Event-ID"] for each in api.requests[1:]]
    assert resumed == [ENDED_AT, *["0:6,1:6@7"] * 7]


def test_age_grows_and_trouble_says_why_while_the_service_cannot_be_reached():
    first, last = OpenBody(reached("0:6,1:6@7")), OpenBody()
    broken = [httpx.ConnectError("refused")] * 3
    api = ApiDouble(snapshot_of({"a": 1}), first.response(), *broken, last.response())
    with api.topic().sync() as records:
        eventually(lambda: str(records.at) == "0:6,1:6@7" and records.trouble is None)
        first.send(named("problem", failed(503, "state-unavailable")["problem"]))
        eventually(lambda: isinstance(records.trouble, Unavailable))
        age = records.age
        eventually(lambda: records.age > age + timedelta(milliseconds=50))
        first.send(httpx.ReadError("gone"))
        eventually(lambda: "cannot be reached" in str(records.trouble))
        assert values_of(records) == {"a": 1}
        before = records.age
        last.send(reached("0:6,1:6@7"))
        eventually(lambda: records.trouble is None and records.age < before)


def test_the_time_that_a_hook_takes_is_no_news_of_the_service(monkeypatch):
    ahead_s, now_s = [0.0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now_s() + ahead_s[0])

    def take_long(_: object) -> None:
        ahead_s[0] += 100

    records = ApiDouble().topic().sync(on_change=take_long)
    stream = records._calls.stream()
    next(stream)
    snapshot = snapshot_of({"a": 1}).content
    while not isinstance(stream.send(ApiResponse(200, {}, snapshot)), Items):
        snapshot = b""
    next(stream)
    stream.send(ApiResponse(200, {}, (changed("a", 2, 8) + reached("0:9,1:9@7")).encode()))
    assert (records["a"].value, str(records.at)) == (2, "0:9,1:9@7")
    assert records.age >= timedelta(seconds=100)


@pytest.mark.parametrize("error", [ValueError("hook"), SystemExit(3)])
def test_whatever_a_hook_raises_the_mapping_says_that_it_is_not_kept_current(error: BaseException):
    def fail(_: object) -> None:
        raise error

    body = OpenBody(changed("a", 2, 8, "0:6,1:6@7"))
    with ApiDouble(snapshot_of({"a": 1}), body.response()).topic().sync(on_change=fail) as records:
        eventually(lambda: records._calls.records.failure is error)
        with pytest.raises(SyncFailed) as caught:
            len(records)
    assert caught.value.__cause__ is error


def test_a_hook_that_would_have_to_be_awaited_is_refused():
    async def hear(_: object) -> None:
        """Nobody would call this."""

    with pytest.raises(InvalidArgument, match="called, and not awaited"):
        ApiDouble().topic().sync(on_change=hear)


def test_after_a_gap_the_mapping_is_replaced_and_what_differs_is_reported():
    first, last, changes = OpenBody(changed("a", 2, 8, "0:6,1:6@7") + GAP), OpenBody(), Changes()
    again = snapshot_of({"a": 2, "new": 5}, "0:9,1:9@7", offset=8)
    api = ApiDouble(snapshot_of({"a": 1, "b": 2}), first.response(), again, last.response())
    with api.topic().sync(on_change=changes) as records:
        eventually(lambda: str(records.at) == "0:9,1:9@7")
        eventually(lambda: len(changes.seen) == 3)
        assert values_of(records) == {"a": 2, "new": 5}
    assert changes.seen == [("a", 2), ("b", None), ("new", 5)]
    assert api.requests[3].headers["Last-Event-ID"] == "0:9,1:9@7"


def test_all_records_of_a_topic_that_was_created_again_are_other_ones():
    first, last, changes = OpenBody(reached("0:6,1:6@7") + GAP), OpenBody(), Changes()
    again = snapshot_of({"a": 1}, "0:9,1:9@8")
    api = ApiDouble(snapshot_of({"a": 1}), first.response(), again, last.response())
    with api.topic().sync(on_change=changes):
        eventually(lambda: changes.seen == [("a", 1)])


def test_a_new_snapshot_is_tried_until_it_is_there_and_the_old_records_stay_in_use():
    first, last = OpenBody(reached("0:6,1:6@7") + GAP), OpenBody()
    again = snapshot_of({"a": 2}, "0:9,1:9@7")
    outdated = lines(begun(1), a_row("x", 1), lane(0), failed(409, "snapshot-outdated"))
    broken = [problem(503, "lane-building")] * 5
    api = ApiDouble(snapshot_of({"a": 1}), first.response(), *broken, outdated, again, last.response())
    with api.topic().sync() as records:
        seen = set()
        eventually(lambda: seen.add(records["a"].value) or str(records.at) == "0:9,1:9@7")
        assert seen == {1, 2}
        assert values_of(records) == {"a": 2}


def test_a_stream_that_never_goes_on_from_a_snapshot_ends_the_mapping():
    scoped = [answer for _ in range(BEGINNINGS) for answer in (snapshot_of({}), OpenBody(GAP).response())]
    with ApiDouble(*scoped).topic().sync() as records:
        eventually(lambda: _fails(lambda: len(records)))
        with pytest.raises(SyncFailed, match="rules that compare fields"):
            records.get("a")


def _fails(read: Callable[[], object]) -> bool:
    try:
        read()
    except SyncFailed:
        return True
    return False


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (403, "forbidden", AccessDenied),
        (501, "not-streamed", ServiceFailed),
        (503, "overloaded", Unavailable),
    ],
)
def test_what_prevents_the_first_snapshot_is_raised_on_entry(status, kind, error, is_async):
    api = ApiDouble(*(problem(status, kind) for _ in range(3)))

    async def enter(client: AsyncClient) -> None:
        async with client.topic("t").sync():
            pass

    with pytest.raises(error):
        api.run(enter) if is_async else api.topic().sync().__enter__()


def test_what_does_not_pass_ends_the_mapping_and_each_read_says_why():
    body = OpenBody(reached(ENDED_AT), httpx.ReadError("gone"))
    api = ApiDouble(snapshot_of({"a": 1}), body.response(), problem(403, "forbidden"))
    with api.topic().sync() as records:
        eventually(lambda: _fails(lambda: records.at))
        for read in (
            lambda: records["a"],
            lambda: "a" in records,
            lambda: len(records),
            lambda: list(records),
        ):
            with pytest.raises(SyncFailed, match="403") as caught:
                read()
            assert isinstance(caught.value.__cause__, AccessDenied)


def test_an_error_of_the_hook_ends_the_mapping():
    def refuse(change: object) -> None:
        raise RuntimeError("no room")

    body = OpenBody(changed("a", 2, 8))
    with ApiDouble(snapshot_of({"a": 1}), body.response()).topic().sync(on_change=refuse) as records:
        eventually(lambda: _fails(lambda: records.at))
        with pytest.raises(SyncFailed, match="no room"):
            records["a"]


def test_records_expire_by_themselves():
    now_ms = time.time_ns() // 1_000_000
    rows = [
        a_row("soon", 1, timestamp=now_ms - 59_500),
        a_row("late", 2, timestamp=now_ms),
        a_row("n", 3, timestamp=None),
    ]
    snapshot = lines(begun(1, ttl_ms=60_000), *rows, lane(0, as_of_ms=now_ms), ended())
    body, changes = OpenBody(), Changes()
    with ApiDouble(snapshot, body.response()).topic().sync(on_change=changes) as records:
        eventually(lambda: "soon" not in records)
        assert (values_of(records), len(records)) == ({"late": 2, "n": 3}, 2)
        eventually(lambda: changes.seen == [("soon", None)])


def test_a_record_that_was_written_again_does_not_expire_with_the_earlier_one():
    now_ms = time.time_ns() // 1_000_000
    rows = [a_row("k", 1, timestamp=now_ms - 59_000)]
    snapshot = lines(begun(1, ttl_ms=60_000), *rows, lane(0, as_of_ms=now_ms), ended())
    body = OpenBody(named("record", a_row("k", 2, 8, timestamp=now_ms)))
    with ApiDouble(snapshot, body.response()).topic().sync() as records:
        eventually(lambda: records["k"].value == 2)
        eventually(lambda: time.time_ns() // 1_000_000 > now_ms + 1_100)
        assert values_of(records) == {"k": 2}


def test_typed_keys_are_found_by_their_fields_in_any_order():
    row = a_row("x", 1) | {"key": {"region": "eu", "number": 7}}
    number = a_row("x", 2) | {"key": 7}
    api = ApiDouble(lines(begun(1), row, number, lane(0), ended()), OpenBody().response())
    with api.topic().sync() as records:
        assert records[{"number": 7, "region": "eu"}].value == 1
        assert records[7].value == records["7"].value == 2


def test_reads_go_on_while_the_mapping_changes():
    body = OpenBody()
    api = ApiDouble(snapshot_of({f"k{number}": number for number in range(100)}), body.response())
    with api.topic().sync() as records:
        for key, record in records.items():
            body.send(named("absent", removed(key)))
            assert record.value is not None
        eventually(lambda: not records)


def test_an_asynchronous_mapping_is_kept_by_a_task():
    async def use(client: AsyncClient) -> object:
        has_changed = asyncio.Event()
        body = OpenBody(changed("a", 2, 8))
        api.answers.append(body.response())
        async with client.topic("t").sync(on_change=lambda _: has_changed.set()) as records:
            await has_changed.wait()
            return values_of(records), records.age < timedelta(seconds=60)

    api = ApiDouble(snapshot_of({"a": 1}))
    assert api.run(use) == ({"a": 2}, True)


def test_an_error_within_the_statement_is_raised_as_it_is():
    async def fail(client: AsyncClient) -> None:
        async with client.topic("t").sync():
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        ApiDouble(snapshot_of({}), OpenBody().response()).run(fail)
    api = ApiDouble(snapshot_of({}), OpenBody().response())
    with pytest.raises(LookupError, match="mine"), api.topic().sync():
        raise LookupError("mine")


def test_a_mapping_is_read_within_its_statement():
    with pytest.raises(SyncFailed, match="with"):
        ApiDouble().topic().sync().at  # noqa: B018
