"""`keylane serve` under reads, while a primary of its Redis Cluster is killed, or hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.own import eventually, fill, hanging, primary_and_replica, repair
from tests.support.builders import a_lane, a_layout, lane_of
from tests.support.steady import SteadyReads

from keylane import routing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.client import HTTPConnection

    from tests.servers.standing import StandingServer

    from keylane_local.servers.redis_cluster import RedisCluster

READERS = 8
KEYS = [b"key-%d" % number for number in range(30)]


@pytest.fixture(scope="module")
def variables(breakable: RedisCluster) -> dict[str, str]:
    return {"KEYLANE_REDIS_NODES": breakable.addresses, "KEYLANE_REDIS_TLS": "false"}


@pytest.fixture
def reads(breakable: RedisCluster, server: StandingServer) -> Iterator[SteadyReads]:
    """Reads of keys of all shards over kept connections."""
    repair(breakable)
    layout = a_layout()
    for key in KEYS:
        fill(breakable.addresses, a_lane(layout, key, key))

    connections = [server.connect() for _ in range(READERS)]

    def reader(connection: HTTPConnection) -> Callable[[int], None]:
        def read(number: int) -> None:
            key = KEYS[number // READERS % len(KEYS)]
            connection.request("GET", f"/topics/{layout.topic}/keys/{key.decode()}")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, key)

        return read

    with SteadyReads([reader(each) for each in connections]) as steady:
        eventually(lambda: len(steady.done) > 100)
        yield steady
    for each in connections:
        each.close()


def victim_slot() -> int:
    return routing.key_slot(b"{%b}" % lane_of(a_layout(), KEYS[0])[2])


def test_a_killed_primary_costs_no_read(breakable: RedisCluster, reads: SteadyReads):
    primary, replica = primary_and_replica(breakable, victim_slot())
    primary.kill()
    eventually(lambda: replica.running and replica.facts()["role"] == "master")
    reads.wait_for_more()
    primary.start()
    breakable.wait_ready()
    reads.wait_for_more()
    assert reads.failures == []


def test_a_hanging_primary_costs_no_read(breakable: RedisCluster, reads: SteadyReads):
    primary, _ = primary_and_replica(breakable, victim_slot())
    with hanging(primary):
        reads.wait_for_more(2.0)
    reads.wait_for_more()
    assert reads.failures == []
