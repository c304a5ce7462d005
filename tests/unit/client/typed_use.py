"""Code of a user of either client, which nothing runs: mypy checks its types.

A wrong call has an ignored error: an error that is not there is one, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from typing_extensions import assert_type  # noqa: UP035 (the client supports Python 3.10)

from keylane_client import (
    Absent,
    AsyncBatching,
    AsyncClient,
    AsyncFind,
    AsyncSession,
    AsyncSnapshot,
    AsyncSyncedTopic,
    AsyncTopic,
    AsyncView,
    Batching,
    Client,
    Find,
    FoundPage,
    HistoryEntry,
    Joined,
    KafkaTopic,
    LogRecord,
    NewRecord,
    Position,
    Record,
    Session,
    Snapshot,
    SyncedTopic,
    Topic,
    TopicLayout,
    TopicVector,
    View,
    Window,
    WriteFailed,
    Written,
    all_of,
    between,
    starting_with,
)


@dataclass
class Order:
    state: str


def modelled(client: Client) -> None:
    orders = client.session().batching().topic("orders", model=Order)
    assert_type(orders, Topic[Order])
    assert_type(orders["k"].value, Order)
    assert_type(orders.at(1).get("k"), Record[Order] | None)
    assert_type(orders.get_many(["k"]), dict[str | bytes, Record[Order] | None])
    assert_type(next(orders.scan()).value.state, str)
    query = orders.find({"customer.country": "NL"}, amount=between(10, 20)).order_by("-placed").limit(9)
    assert_type(query, Find[Order])
    assert_type([record.value for record in query], list[Order])
    assert_type(query.page().records[0].value, Order)
    assert_type(next(orders.history("k")).value, Order | None)
    assert_type(next(orders.watch("k")), Record[Order] | Absent)
    whole = orders.snapshot(where={"a": 1})
    assert_type(whole, Snapshot[Order])
    assert_type((whole.is_over, whole.lanes, whole.lanes_read), tuple[bool, int, int])
    assert_type([record.value for record in orders.snapshot()], list[Order])
    parts = list(whole.parts(4))
    assert_type(whole.part(parts[0]), Snapshot[Order])
    assert_type(whole.part(parts[0]).next_offset, int)
    with orders.sync(prefix="p", on_change=print) as kept:
        assert_type(kept, SyncedTopic[Order])
        assert_type(kept["k"].value, Order)
        assert_type(kept.at, TopicVector)
        assert_type(kept.copy(), dict[str | bytes, Record[Order]])
        assert_type(kept.get("k"), Record[Order] | None)
        assert_type(list(kept.items()), list[tuple[str | bytes, Record[Order]]])
        assert_type((list(kept.keys()), list(kept.values())), tuple[list[str | bytes], list[Record[Order]]])
        assert_type((kept.age, kept.trouble), tuple[timedelta, BaseException | None])
    assert_type("k" in orders, bool)
    orders["k"].value.missing  # type: ignore[attr-defined]  # noqa: B018


async def modelled_too(client: AsyncClient) -> None:
    orders = client.topic("orders", model=Order)
    assert_type(orders, AsyncTopic[Order])
    assert_type((await orders["k"]).value, Order)
    assert_type(await orders.get("k"), Record[Order] | None)
    assert_type(orders.scan(), AsyncIterator[Record[Order]])
    assert_type([record.value async for record in orders.find(a=1)], list[Order])
    snapshot = orders.snapshot()
    assert_type([record.value async for record in snapshot], list[Order])
    assert_type(snapshot, AsyncSnapshot[Order])
    assert_type((snapshot.at, snapshot.lanes), tuple[TopicVector | None, int])
    assert_type((snapshot.is_over, snapshot.lanes_read), tuple[bool, int])
    parts = [part async for part in snapshot.parts(4)]
    assert_type(snapshot.part(parts[0]), AsyncSnapshot[Order])
    assert_type(snapshot.part(parts[0]).next_offset, int)
    async with orders.sync() as kept:
        assert_type(kept, AsyncSyncedTopic[Order])
        assert_type((kept["k"].value, kept.age), tuple[Order, timedelta])
        assert_type((len(kept.items()), len(kept.values())), tuple[int, int])
        assert_type(
            (kept.copy(), kept.trouble), tuple[dict[str | bytes, Record[Order]], BaseException | None]
        )
    assert_type((await orders.find(a=1).page()).records[0].value, Order)
    "k" in orders  # type: ignore[misc]  # noqa: B015


def blocking(client: Client) -> None:
    topic = client.topic("t")
    assert_type(topic, Topic)
    assert_type(topic.contains("k"), bool)
    assert_type(topic.name, str)
    assert_type(topic["k"], Record)
    assert_type(topic.get(b"k", min_position=Position(0, 1), wait_s=5), Record | None)
    assert_type(topic.get_many(["k"], atomic=True), dict[str | bytes, Record | None])
    assert_type(topic.put("k", {"a": 1}, idempotency_key="i"), Written)
    assert_type(topic.delete("k", respond_async=True), Written)
    assert_type(topic.push([NewRecord("k", 1)]), list[Written | WriteFailed])
    assert_type(topic.scan(prefix="p", page_size=9), Iterator[Record])
    assert_type(topic.keys(start="a"), Iterator[str | bytes])
    query = topic.find(status="open", tags=all_of("a", starting_with("b")))
    found = query.prefix("p").order_by("-a").limit(1).page_size(1)
    assert_type(found.min_position(Position(0, 1), wait_s=1), Find)
    assert_type(query.page("cursor"), FoundPage)
    assert_type(query.count(), int)
    assert_type(topic.count(), int)
    assert_type(topic.history("k", start=1), Iterator[HistoryEntry])
    assert_type(topic.watch("k", wait_s=1), Iterator[Record | Absent])
    assert_type(topic.log(0, "latest", page_size=1), Iterator[LogRecord])
    assert_type(topic.tail(pause_s=1), Iterator[LogRecord])
    assert_type(topic.layout(), TopicLayout)
    assert_type(topic.at(1).reading(fields=["a"], max_age=timedelta(1)), Topic)
    view = client.session().view("v")
    assert_type(view, View)
    assert_type(view.windows("k", final=True), Iterator[Window])
    assert_type(view.scan(prefix="p"), Iterator[Window])
    assert_type(view.describe(), dict[str, Any])
    assert_type(client.session(), Session)
    assert_type(client.batching(), Batching)
    assert_type(client.session().batching().topic("t"), Topic)
    assert_type(client.views(), list[dict[str, Any]])
    assert_type(client.health(), dict[str, Any])
    assert_type(client.topics(prefix="p"), Iterator[KafkaTopic])
    assert_type(client.join("k", ["a", "b"]), Joined)
    with client as opened:
        assert_type(opened, Client)

    topic.get(1.5)  # type: ignore[arg-type]
    topic.get("k", nothing=1)  # type: ignore[call-arg]
    topic.put("k")  # type: ignore[call-arg]
    topic.find(status=None)  # type: ignore[arg-type]
    client.topic()  # type: ignore[call-overload]
    for _ in topic:  # type: ignore[misc]
        pass


async def asynchronous(client: AsyncClient) -> None:
    topic = client.topic("t")
    assert_type(topic, AsyncTopic)
    assert_type(topic.name, str)
    assert_type(await topic.contains("k"), bool)
    assert_type(topic["k"], Awaitable[Record])
    assert_type(topic.get("k", known=await topic["k"]), Awaitable[Record | None])
    assert_type(await topic.get_many(["k"]), dict[str | bytes, Record | None])
    assert_type(await topic.put("k", b""), Written)
    assert_type(await topic.delete("k"), Written)
    assert_type(await topic.push([]), list[Written | WriteFailed])
    assert_type(topic.scan(), AsyncIterator[Record])
    assert_type(topic.keys(), AsyncIterator[str | bytes])
    query = topic.find({"a.b": 1}, status="open")
    found = query.prefix(b"p").order_by("-a").limit(1).page_size(1)
    assert_type(found.min_position(Position(0, 1)), AsyncFind)
    assert_type(await query.page(), FoundPage)
    assert_type(await query.count(), int)
    assert_type(topic.history("k"), AsyncIterator[HistoryEntry])
    assert_type(topic.watch("k"), AsyncIterator[Record | Absent])
    assert_type(topic.log(0), AsyncIterator[LogRecord])
    assert_type(topic.tail(), AsyncIterator[LogRecord])
    assert_type(await topic.count(), int)
    assert_type(await topic.layout(), TopicLayout)
    assert_type(topic.at(1).reading(partial=True), AsyncTopic)
    view = client.view("v")
    assert_type(view, AsyncView)
    assert_type(view.windows("k"), AsyncIterator[Window])
    assert_type(view.scan(), AsyncIterator[Window])
    assert_type(await view.describe(), dict[str, Any])
    assert_type(await client.views(), list[dict[str, Any]])
    assert_type(await client.health(), dict[str, Any])
    assert_type(client.session(), AsyncSession)
    assert_type(client.batching(), AsyncBatching)
    assert_type(client.session().batching().topic("t"), AsyncTopic)
    assert_type(client.session().topic("t"), AsyncTopic)
    assert_type(client.topics(), AsyncIterator[KafkaTopic])
    assert_type(await client.join("k", ["a", "b"]), Joined)
    async with client as opened:
        assert_type(opened, AsyncClient)

    await topic.get(1.5)  # type: ignore[arg-type]
    topic.scan(nothing=1)  # type: ignore[call-arg]
    for _ in topic.find(a=1):  # type: ignore[attr-defined]
        pass
    topic.get("k").value  # type: ignore[attr-defined]  # noqa: B018
    for _ in topic.scan():  # type: ignore[attr-defined]
        pass
