"""What `keylane doctor` and `keylane up` say of a Redis Cluster that is not whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.servers.own import eventually, own_cluster

from keylane_cli.doctor_checks import check_redis

if TYPE_CHECKING:
    from pathlib import Path

SLOT = 100


def test_a_slot_that_no_node_serves_is_a_fault(tmp_path: Path):
    with own_cluster(tmp_path, replicas=0) as cluster:
        variables = {"KEYLANE_REDIS_NODES": cluster.addresses, "KEYLANE_REDIS_TLS": "false"}
        assert [each.result for each in check_redis(variables)] == ["ok", "ok"]
        for node in cluster.nodes:
            node.command("CLUSTER", "DELSLOTS", SLOT)
        said = f"no Redis node is known to serve slot {SLOT}"
        eventually(lambda: [each.found for each in check_redis(variables)] == [said])
        assert [each.result for each in check_redis(variables)] == ["failed"]
