"""A Redis that evicts keys is refused, before a lane is opened in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from tests.servers.own import eventually

from keylane.adapters.redis.cluster import Cluster
from keylane.config.functions import redis_settings
from keylane.errors import BadConfig
from keylane.ports import Clock
from keylane_cli.doctor_checks import check_redis
from keylane_spark.lanes.cluster import check_eviction_policy

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def client(redis_cluster: str) -> Iterator[Cluster]:
    cluster = Cluster(redis_settings({"KEYLANE_REDIS_NODES": redis_cluster}))
    yield cluster
    cluster.close()


@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-lfu", "volatile-ttl"])
def test_one_node_that_evicts_keys_is_named_with_what_to_do(client: Cluster, redis_cluster: str, policy: str):
    check_eviction_policy(client, Clock())
    node = client.primary(9_000)
    with redis.Redis(node.host, node.port) as server:
        server.config_set("maxmemory-policy", policy)
        try:
            with pytest.raises(BadConfig, match=f"{node.port} may evict keys.*{policy}.*noeviction"):
                check_eviction_policy(client, Clock())
        finally:
            server.config_set("maxmemory-policy", "noeviction")


def test_whoever_looks_before_a_start_sees_a_replica_that_would_evict_keys(redis_cluster: str):
    variables = {"KEYLANE_REDIS_NODES": redis_cluster, "KEYLANE_REDIS_TLS": "false"}
    address = redis_cluster.rsplit(",", maxsplit=1)[-1]
    host, _, port = address.rpartition(":")
    with redis.Redis(host, int(port)) as server:
        assert server.info("replication")["role"] == "slave"
        server.config_set("maxmemory-policy", "allkeys-lru")
        try:  # a node may not know another one's replica yet
            eventually(lambda: "allkeys-lru, noeviction" in [each.found for each in check_redis(variables)])
            found = list(check_redis(variables))
        finally:
            server.config_set("maxmemory-policy", "noeviction")
    assert [each.result for each in found] == ["ok", "failed"]


def test_a_user_who_may_not_ask_is_trusted(client: Cluster, redis_cluster: str):
    check_eviction_policy(client, Clock())
    for node in client.nodes:
        with redis.Redis(node.host, node.port) as server:
            server.acl_setuser(
                "blind", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all", "-info"]
            )
    settings = {"KEYLANE_REDIS_USERNAME": "blind", "KEYLANE_REDIS_PASSWORD": "x"}
    blind = Cluster(redis_settings({"KEYLANE_REDIS_NODES": redis_cluster, **settings}))
    check_eviction_policy(blind, Clock())
    blind.close()
