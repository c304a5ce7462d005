"""The thin cluster client and RedisState against a real cluster that nobody breaks."""

from __future__ import annotations

import gc
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
import redis
from tests.servers.own import deadline, eventually, fill
from tests.support.builders import a_topic
from tests.support.stopwatch import takes_about

from keylane import routing
from keylane.adapters.redis.cluster import Cluster, Node, announced
from keylane.adapters.redis.error_replies import RedisError, RedisTimeoutError, ResponseError
from keylane.adapters.redis.resp import encode_command
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.errors import StateUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane_local.servers.redis_cluster import RedisCluster

ALL_SLOTS = range(routing.SLOTS)


@pytest.fixture
def client(redis_cluster: str) -> Iterator[Cluster]:
    client = Cluster(redis_settings({"KEYLANE_REDIS_NODES": redis_cluster}))
    # A node learns of its peers' replicas a moment after the cluster was made.
    eventually(
        lambda: client.refresh(deadline()) is None and all(client.slots[slot][1:] for slot in ALL_SLOTS)
    )
    yield client
    client.close()


@pytest.fixture
def key(redis_cluster: str) -> bytes:
    """A key that holds its own name."""
    key = a_topic().encode()
    fill(redis_cluster, {key: key})
    return key


def test_slot_map_has_a_primary_and_a_replica_for_every_slot(client: Cluster, cluster: RedisCluster):
    assert set(map(client.primary, ALL_SLOTS)) == {Node("127.0.0.1", p.port) for p in cluster.primaries()}
    assert len(client.nodes) == 6
    assert all(len(client.slots[slot]) == 2 for slot in ALL_SLOTS)


def test_host_that_is_not_announced_is_the_one_asked():
    asked = Node("given", 7001)
    for host in (None, b"", "", b"?", "?"):
        assert announced(host, 7002, asked) == Node("given", 7002)
    assert announced(b"other", 7002, asked) == Node("other", 7002)


def test_plain_connection_costs_no_round_trip_of_its_own(
    client: Cluster, cluster: RedisCluster, key: bytes, redis_cluster: str
):
    port = client.primary(routing.key_slot(key)).port
    fresh = Cluster(redis_settings({"KEYLANE_REDIS_NODES": redis_cluster}))
    with redis.Redis(port=port) as observer:
        observer.config_resetstat()
        fresh.roundtrip(Node("127.0.0.1", port), encode_command(b"MGET", key), 1, deadline())
        called = set(observer.info("commandstats"))
    fresh.close()
    assert "cmdstat_mget" in called
    assert not called & {"cmdstat_hello", "cmdstat_auth", "cmdstat_readonly", "cmdstat_cluster|slots"}


def test_error_replies_are_values_and_the_connection_is_kept(client: Cluster, key: bytes):
    node = client.primary(routing.key_slot(key))
    packed = encode_command(b"NONSENSE") + encode_command(b"GET", key)
    error, value = client.roundtrip(node, packed, 2, deadline())
    assert isinstance(error, ResponseError)
    assert value == key
    assert client.is_connected(node)


def test_cluster_that_is_forgotten_in_a_cycle_closes_its_connections(redis_cluster: str):
    client = Cluster(redis_settings({"KEYLANE_REDIS_NODES": redis_cluster}))
    client.refresh(deadline())
    [connection] = client.connections.values()
    sock = connection.sock
    cycle: list[object] = [client]
    cycle.append(cycle)
    del client, cycle
    gc.collect()
    assert sock.fileno() == -1


@contextmanager
def server_that_answers(*pieces: bytes, every_s: float) -> Iterator[Node]:
    """A server that accepts one connection and answers every command with these pieces, with pauses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(every_s)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Node("127.0.0.1", listener.getsockname()[1])
        thread.join(20)


def test_reply_that_comes_in_drops_is_bound_by_the_deadline_as_a_whole(client: Cluster):
    with server_that_answers(b"*1\r\n$1000\r\n", *[b"x"] * 100, every_s=0.05) as node:
        with takes_about(0.3), pytest.raises(RedisTimeoutError):
            client.roundtrip(node, encode_command(b"GET", b"k"), 1, deadline(300))
        assert not client.is_connected(node)


@pytest.mark.parametrize("reply", [b"$1\r\nx\r\n$1\r\ny\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_reply_that_is_not_what_was_asked_for_is_refused_and_forgotten(
    client: Cluster, key: bytes, reply: bytes
):
    with server_that_answers(reply, every_s=0) as node:
        with pytest.raises(RedisError):
            client.roundtrip(node, encode_command(b"GET", b"k"), 1, deadline())
        assert not client.is_connected(node)
    right = client.primary(routing.key_slot(key))
    assert client.roundtrip(right, encode_command(b"GET", key), 1, deadline()) == [key]


def test_passwords_are_used_and_wrong_ones_reported_without_showing_them(
    cluster: RedisCluster, key: bytes, redis_cluster: str
):
    for node in cluster.nodes:
        node.command("ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+@all")
    environment = {"KEYLANE_REDIS_NODES": redis_cluster, "KEYLANE_REDIS_USERNAME": "reader"}
    slot = routing.key_slot(key)
    right = RedisState(Cluster(redis_settings(environment | {"KEYLANE_REDIS_PASSWORD": "hunter2"})))
    assert right.read(slot, [key], deadline()) == [key]
    right.close()
    wrong = RedisState(Cluster(redis_settings(environment | {"KEYLANE_REDIS_PASSWORD": "hunter3"})))
    with pytest.raises(StateUnavailable) as caught:
        wrong.read(slot, [key], deadline(2_000))
    assert "hunter" not in str(caught.value)
    assert "credentials" in str(caught.value)


def test_missing_right_to_read_is_reported_at_once(cluster: RedisCluster, key: bytes, redis_cluster: str):
    for node in cluster.nodes:
        node.command("ACL", "SETUSER", "nobody", "on", ">hunter2", "~*", "-@all", "+cluster|slots")
    environment = {"KEYLANE_REDIS_USERNAME": "nobody", "KEYLANE_REDIS_PASSWORD": "hunter2"}
    state = RedisState(Cluster(redis_settings(environment | {"KEYLANE_REDIS_NODES": redis_cluster})))
    limit = deadline(10_000)
    with pytest.raises(StateUnavailable, match="credentials"):
        state.read(routing.key_slot(key), [key], limit)
    assert limit.remaining_s > 8
    state.close()
