"""The fake that users have for their tests, beyond what it has in common with the service (tests/e2e)."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.servers.own import eventually
from tests.unit.client.api_double import QUICK

from keylane_client import (
    Absent,
    KeylaneError,
    NewRecord,
    ProblemError,
    RequestRefused,
    ServiceFailed,
    UnknownView,
    between,
)
from keylane_client.testing import FakeKeylane


@pytest.fixture
def fake():
    return FakeKeylane({"t": 3})


async def test_clients_of_one_fake_see_each_others_writes(fake):
    fake.client().topic("t").put("k", 1)

    async with fake.async_client() as client:
        assert (await client.topic("t")["k"]).value == 1
    with pytest.raises(KeylaneError, match="there is no topic 't'"):
        FakeKeylane({}).client().topic("t").get("k")


def test_the_next_requests_fail_as_they_are_asked_to_and_a_client_repeats_reads(fake):
    topic = fake.client(QUICK).topic("t")
    fake.fail_next(503, "redis-unavailable", times=2)
    assert topic.get("k") is None
    fake.fail_next(500, "kafka-failed")
    with pytest.raises(ServiceFailed, match="kafka-failed: the fake was asked to fail"):
        topic.put("k", 1)
    topic.put("k", 1)


def test_a_reader_waits_for_a_write_of_another_thread(fake):
    topic, seen = fake.client().topic("t"), threading.Event()
    changes = topic.watch("k", wait_s=10)
    assert isinstance(next(changes), Absent)
    writer = threading.Thread(target=lambda: (seen.wait(10), topic.put("k", "new")))
    writer.start()
    seen.set()
    assert next(changes).value == "new"
    writer.join()


def test_a_read_waits_for_another_record_than_the_one_it_knows(fake):
    topic = fake.client().topic("t")
    topic.put("k", "old")
    known = topic["k"]
    assert topic.get("k", known=known).raw is known.raw
    writer = threading.Timer(0.05, topic.put, ("k", "new"))
    writer.start()
    assert topic.get("k", known=known, wait_s=10).value == "new"
    writer.join()


def test_raw_records_histories_and_ranges_have_what_was_written_at_its_time(fake):
    topic = fake.client().topic("t")
    topic.push([NewRecord("a", number, partition=1, timestamp_ms=1000 * number) for number in range(1, 4)])
    topic.push([NewRecord("a", None, timestamp_ms=9000), NewRecord(None, b"\xff", partition=2)])
    assert [each.value for each in topic.history("a", start=2000, stop=3000)] == [2]
    assert [each.value for each in topic.at(2500).scan()] == [2]
    assert list(topic.scan()) == []
    assert [each.value for each in topic.log(1, 1, page_size=1)] == [2, 3]
    assert [each.key for each in topic.log(2) if each.value == b"\xff"] == [None]
    tail = topic.tail(2500, pause_s=0)
    assert next(tail).value == 3


def test_a_cursor_of_the_fake_leads_on_although_records_before_it_change():
    topic = FakeKeylane({"t": 3}, fields={"t": {"a": "number"}}).client().topic("t")
    topic.push([NewRecord(str(number), {"a": number}) for number in range(5)])
    query = topic.find(a=between()).order_by("-a").page_size(2)
    first = query.page()
    topic.delete("4")
    second = query.page(first.next)
    assert [each.key for each in (*first.records, *second.records)] == ["4", "3", "2", "1"]
    assert [each.key for each in query.page(second.next).records] == ["0"]


def test_what_the_fake_does_not_have_says_so(fake):
    client = fake.client()
    assert client.views() == []
    with pytest.raises(UnknownView):
        client.view("v").describe()
    assert client.health()["ready"] is True
    with pytest.raises(ProblemError) as caught:
        list(client.topic("t").log("x/y"))
    assert caught.value.type == "not-faked"


def test_the_fake_has_snapshots_and_mappings_that_stay_current():
    fake = FakeKeylane({"t": 3}, fields={"t": {"state": "text"}})
    with fake.client() as client:
        topic = client.topic("t")
        for number in range(20):
            topic.put(f"k{number}", {"state": "open" if number % 2 else "paid"})
        topic.put("other", {"state": "open"})
        topic.delete("k1")
        snapshot = topic.snapshot(prefix="k", where={"state": "open"})
        assert {record.key for record in snapshot} == {f"k{number}" for number in range(3, 20, 2)}
        assert sum(snapshot.at.next_offsets.values()) == 22
        with topic.sync(prefix="k", where={"state": "open"}) as records:
            topic.put("k1", {"state": "open"})
            topic.put("k3", {"state": "paid"})
            topic.delete("k5")
            last = topic.put("other", {"state": "open"})
            eventually(lambda: last.position in records.at)
            assert set(records) == {"k1", *(f"k{number}" for number in range(7, 20, 2))}
        with pytest.raises(RequestRefused):
            list(topic.snapshot(where={"unknown": 1}))


async def test_the_fake_has_mappings_of_asynchronous_clients():
    has_changed = asyncio.Event()
    async with FakeKeylane({"t": 2}).async_client() as client:
        topic = client.topic("t")
        await topic.put("a", 1)
        async with topic.sync(on_change=lambda _: has_changed.set()) as records:
            await topic.put(b"\xff", 2)
            await has_changed.wait()
            assert ({key: record.value for key, record in records.items()}) == {"a": 1, b"\xff": 2}
