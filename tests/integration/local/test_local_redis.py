from __future__ import annotations

import pytest
import redis
from tests.servers.own import READY_WITHIN_S, repair

from keylane_local.process.guard import guarded
from keylane_local.process.ports import HOST, Ports
from keylane_local.servers.redis_cluster import RedisCluster, slot_range


def _client(nodes: str) -> redis.RedisCluster:
    host, port = nodes.split(",", maxsplit=1)[0].split(":")
    return redis.RedisCluster(host=host, port=int(port))


def test_three_primaries_and_three_replicas_serve_all_slots(cluster):
    facts = [node.facts() for node in cluster.nodes]
    assert {fact["cluster_state"] for fact in facts} == {"ok"}
    assert sorted(fact["role"] for fact in facts) == ["master"] * 3 + ["slave"] * 3
    assert all(fact["master_link_status"] == "up" for fact in facts if fact["role"] == "slave")


def test_each_shard_owns_one_contiguous_range_of_slots(cluster):
    owned = cluster.nodes[0].command("CLUSTER NODES")
    ranges = sorted([int(a), int(b)] for node in owned.values() for a, b in node["slots"])
    assert ranges == [list(slot_range(shard, 3)) for shard in range(3)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 16383


def test_every_node_redirects_a_client_to_every_slot(redis_cluster):
    with _client(redis_cluster) as client:
        for number in range(50):
            client.set(f"local-{number}", number)
        assert [int(client.get(f"local-{number}")) for number in range(50)] == list(range(50))


@pytest.mark.parametrize("stopped", [True, False])
def test_a_cluster_whose_making_was_broken_off_is_made_by_the_next_start(tmp_path, monkeypatch, *, stopped):
    """By Ctrl-C, or because Kafka did not start. It was an error for good."""

    def interrupt(*_) -> bool:
        raise KeyboardInterrupt

    ports = Ports()
    addresses = [(HOST, ports.any(), ports.any()) for _ in range(6)]
    folders = {name: tmp_path / name for name in ("run", "logs")}
    first, second = (RedisCluster(tmp_path / "redis", addresses=addresses, **folders) for _ in range(2))
    with guarded(tmp_path):
        first.start()
        monkeypatch.setattr(first, "_knows_all", interrupt)
        with pytest.raises(KeyboardInterrupt):
            first.wait_ready(READY_WITHIN_S)
        if stopped:
            first.stop()
        second.start()
        second.wait_ready(READY_WITHIN_S)
        assert len(second.primaries()) == 3


def test_a_crashed_node_restarts_with_its_data(cluster, redis_cluster):
    with _client(redis_cluster) as client:
        client.set("before", "crash")
        node = cluster.nodes[0]
        node.kill()
        assert not node.running
        repair(cluster)
        assert client.get("before") == b"crash"
