"""The Python client's snapshots and mappings over `keylane serve`; see `test_live_copy_schedules` too."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import eventually
from tests.servers.standing import StandingServer, plain_variables
from tests.support.cut_relay import relaying

from keylane_client import AsyncClient, Client, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.logged_topic import LoggedTopic

SEED = 53


@pytest.fixture(scope="module")
def variables(redis_cluster: str, kafka: str) -> dict[str, str]:
    return plain_variables(redis_cluster, kafka)


def values_of(records: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: record.value for key, record in records.items()}


def test_a_snapshot_whose_connection_is_cut_has_every_record_once(
    server: StandingServer, logged_topic: Callable[..., LoggedTopic]
):
    topic = logged_topic()
    values = random.Random(SEED)  # which do not become small when they are compressed
    for number in range(400):
        topic.put(b"k%d" % number, values.randbytes(200).hex().encode())
    with relaying(server.port) as relay, Client(relay.url) as client:
        snapshot = client.topic(topic.name).snapshot()
        relay.cut_after_bytes = 70_000
        found = []
        for record in snapshot:
            found.append(record.key)
            relay.cut_after_bytes = None
        assert relay.connections == 2
        assert sorted(found) == sorted(f"k{number}" for number in range(400))
        assert (snapshot.lanes_read, snapshot.is_over) == (9, True)
        assert len(snapshot.at.next_offsets) == topic.served.layout.partition_count


def test_conditions_and_prefixes_hold_for_changes_too(
    server: StandingServer, logged_topic: Callable[..., LoggedTopic]
):
    topic = logged_topic(index=1, fields=(("state", "text"),))
    topic.put(b"a|1", b'{"state": "open"}')
    topic.put(b"a|2", b'{"state": "paid"}')
    topic.put(b"b|1", b'{"state": "open"}')
    with (
        Client(server.url) as client,
        client.topic(topic.name).sync(prefix="a|", where={"state": "open"}) as records,
    ):
        assert set(records) == {"a|1"}
        topic.put(b"a|2", b'{"state": "open"}')
        topic.put(b"a|1", b'{"state": "paid"}')
        topic.put(b"b|2", b'{"state": "open"}')
        eventually(lambda: set(records) == {"a|2"})


def test_leaving_a_mapping_does_not_wait_for_the_stream(
    server: StandingServer, logged_topic: Callable[..., LoggedTopic]
):
    topic = logged_topic()
    topic.put(b"k", b"1")
    with Client(server.url) as client:
        with client.topic(topic.name).sync() as records:
            eventually(lambda: records.trouble is None)
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 3  # a comment comes after 15 s
        assert values_of(records) == {"k": 1}


def test_an_asynchronous_mapping_has_what_is_written_meanwhile(
    server: StandingServer, logged_topic: Callable[..., LoggedTopic]
):
    topic, fold = logged_topic(), dict[str, int]()

    def put(number: int) -> Position:
        fold[f"k{number % 40}"] = number
        return Position.parse(topic.put(b"k%d" % (number % 40), b"%d" % number))

    for number in range(30):
        put(number)

    async def use() -> None:
        async with AsyncClient(server.url) as client, client.topic(topic.name).sync() as records:
            assert values_of(records) == fold
            for number in range(30, 60):
                last = await asyncio.to_thread(put, number)
            await asyncio.to_thread(eventually, lambda: last in records.at)
            assert values_of(records) == fold

    asyncio.run(use())
