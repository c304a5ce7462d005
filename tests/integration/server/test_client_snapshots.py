"""The Python client's snapshots and mappings over `keylane serve`, which is stopped, killed and cut off."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import eventually
from tests.servers.standing import StandingServer, plain_variables, standing
from tests.support.cut_relay import relaying

from keylane_client import Absent, AsyncClient, Client, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.support.logged_topic import LoggedTopic

SEED = 53


@pytest.fixture(scope="module")
def variables(redis_cluster: str, kafka: str) -> dict[str, str]:
    return plain_variables(redis_cluster, kafka)


class RandomWrites:
    """Sets and deletes keys of a topic in a thread; `fold`: what its log comes to."""

    def __init__(self, topic: LoggedTopic, keys: int = 300) -> None:
        self.fold: dict[str, Any] = {}
        self.count = 0
        self.last: Position | None = None
        self._topic = topic
        self._keys = keys
        self._random = random.Random(SEED)

    def write(self) -> None:
        key, value = f"k{self._random.randrange(self._keys)}", self.count
        if self._random.random() < 0.3:
            self.last = Position.parse(self._topic.put(key.encode(), None))
            self.fold.pop(key, None)
        else:
            self.last = Position.parse(self._topic.put(key.encode(), b'{"n": %d}' % value))
            self.fold[key] = {"n": value}
        self.count += 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Write within the block."""
        is_over = threading.Event()

        def run() -> None:
            while not is_over.is_set():
                self.write()

        writing = threading.Thread(target=run)
        writing.start()
        try:
            yield
        finally:
            is_over.set()
            writing.join()


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


def test_a_mapping_equals_the_fold_while_servers_are_replaced_and_connections_cut(
    variables: dict[str, str], logged_topic: Callable[..., LoggedTopic], tmp_path: Path
):
    topic = logged_topic()
    writes, seen = RandomWrites(topic), {}

    def note(change: Any) -> None:
        seen[change.key] = None if isinstance(change, Absent) else change.value

    for _ in range(200):
        writes.write()
    before = writes.fold.copy()
    with standing(tmp_path / "first", variables) as first, relaying(first.port) as relay:
        with Client(relay.url) as client, client.topic(topic.name).sync(on_change=note) as records:
            assert values_of(records) == before
            with writes.going_on():
                for _ in range(3):
                    done = writes.count
                    eventually(lambda done=done: writes.count > done + 40)
                    relay.cut()
            eventually(lambda: writes.last in records.at)
            assert values_of(records) == writes.fold
            with writes.going_on():
                first.kill()
                done = writes.count
                eventually(lambda: writes.count > done + 40)
                with standing(tmp_path / "second", variables) as second:
                    relay.target = second.port
                    done = writes.count
                    eventually(lambda: writes.count > done + 40)
                    assert second.stop() == 0
            with standing(tmp_path / "third", variables) as third:
                relay.target = third.port
                eventually(lambda: writes.last in records.at)
                assert values_of(records) == writes.fold
                assert records.trouble is None
        kept = before | seen
        assert {key: value for key, value in kept.items() if value is not None} == writes.fold


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
    topic = logged_topic()
    writes = RandomWrites(topic, keys=40)
    for _ in range(30):
        writes.write()

    async def use() -> None:
        async with AsyncClient(server.url) as client, client.topic(topic.name).sync() as records:
            assert values_of(records) == writes.fold
            for _ in range(30):
                await asyncio.to_thread(writes.write)
            await asyncio.to_thread(eventually, lambda: writes.last in records.at)
            assert values_of(records) == writes.fold

    asyncio.run(use())
