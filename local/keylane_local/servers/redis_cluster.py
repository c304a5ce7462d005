"""A Redis Cluster of primaries with equal, contiguous slot ranges, and their replicas."""

from collections.abc import Sequence
from pathlib import Path

from keylane_local.servers.redis_node import RedisNode

NAME = "redis"
SLOTS = 16384
START_TIMEOUT_S = 30.0
MIN_SHARDS = 3


def slot_range(shard: int, shards: int) -> tuple[int, int]:
    """Return the first and last slot of `shard` (0-based) of `shards` shards of equal size."""
    return shard * SLOTS // shards, (shard + 1) * SLOTS // shards - 1


class RedisCluster:
    """`shards` primaries, then their replicas. Node i belongs to shard i mod `shards`."""

    name = NAME

    def __init__(
        self,
        home: Path,
        *,
        run: Path,
        logs: Path,
        addresses: Sequence[tuple[str, int, int]],
        shards: int = 3,
        appendonly: bool = True,
    ) -> None:
        """Set folders and addresses: one (host, port, bus port) per node."""
        self.shards = shards
        self.created = home / "created"
        self.nodes = [
            RedisNode(
                home / f"node-{index}",
                run=run,
                log=logs / f"redis-{index}.log",
                address=address,
                appendonly=appendonly,
            )
            for index, address in enumerate(addresses)
        ]

    @property
    def addresses(self) -> str:
        """The nodes in the form of KEYLANE_REDIS_NODES, "host:port,host:port"."""
        return ",".join(node.address for node in self.nodes)

    @property
    def running(self) -> bool:
        """Whether all nodes' processes run."""
        return all(node.running for node in self.nodes)

    def start(self) -> None:
        """Start the nodes that do not run. If all were down, their ports may have changed."""
        if not self.created.exists():
            self._forget()
        elif not any(node.running for node in self.nodes):
            self._rewrite_addresses()
        for node in self.nodes:
            node.start()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Form the cluster if it is new; wait until all slots are served and all replicas are linked.

        Raises PartFailed, which names the node and has the end of its log.
        """
        for node in self.nodes:
            node.program.wait_until(node.answers, timeout_s)
        if not self.created.exists():
            self._join(timeout_s)
            self.created.write_text("\n".join(node.bus_address for node in self.nodes), encoding="utf-8")
        for node in self.nodes:
            node.program.wait_until(lambda node=node: self._is_complete(node), timeout_s)  # type: ignore[misc]

    def stop(self) -> None:
        """Stop the replicas first: a primary waits for its replicas when it shuts down."""
        for node in reversed(self.nodes):
            node.stop()

    def primaries(self) -> list[RedisNode]:
        """Return the nodes that are primaries now."""
        return [node for node in self.nodes if node.running and node.facts()["role"] == "master"]

    def _join(self, timeout_s: float) -> None:
        """Form a cluster of the empty nodes: assign slots, introduce the nodes, then set up replicas."""
        for epoch, node in enumerate(self.nodes, start=1):
            # As `redis-cli --cluster create` does: distinct epochs spare the nodes a conflict resolution.
            node.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        primaries = self.nodes[: self.shards]
        for shard, node in enumerate(primaries):
            node.command("CLUSTER", "ADDSLOTSRANGE", *slot_range(shard, self.shards))
        first = self.nodes[0]
        for node in self.nodes[1:]:
            node.command("CLUSTER", "MEET", *first.address.split(":"), first.bus_port)
        for node in self.nodes:
            node.program.wait_until(lambda node=node: self._knows_all(node), timeout_s)  # type: ignore[misc]
        identities = [str(node.command("CLUSTER", "MYID")) for node in primaries]
        for index, node in enumerate(self.nodes[self.shards :]):
            node.command("CLUSTER", "REPLICATE", identities[index % self.shards])

    def _forget(self) -> None:
        """Begin with nodes that know no others: an attempt before this one may have been broken off."""
        self.stop()
        for node in self.nodes:
            (node.home / "nodes.conf").unlink(missing_ok=True)

    def _knows_all(self, node: RedisNode) -> bool:
        facts = node.facts()
        links = node.command("CLUSTER", "LINKS")
        return facts["cluster_known_nodes"] == str(len(self.nodes)) and len(links) >= len(self.nodes) - 1

    def _is_complete(self, node: RedisNode) -> bool:
        import redis  # noqa: PLC0415 - its import takes as long as all else in `keylane status`

        try:
            facts = node.facts()
        except redis.RedisError:
            return False
        return (
            facts["cluster_state"] == "ok"
            and facts["cluster_slots_ok"] == str(SLOTS)
            and facts["cluster_known_nodes"] == str(len(self.nodes))
            and (facts["role"] == "master" or facts["master_link_status"] == "up")
            and (facts["role"] == "slave" or int(facts["connected_slaves"]) == self._replicas)
        )

    @property
    def _replicas(self) -> int:
        return len(self.nodes) // self.shards - 1

    def _rewrite_addresses(self) -> None:
        """Replace the addresses of the last start by the current ones, in each node's nodes.conf."""
        old = self.created.read_text(encoding="utf-8").splitlines()
        new = [node.bus_address for node in self.nodes]
        if old == new:
            return
        for node in self.nodes:
            path = node.home / "nodes.conf"
            words = path.read_text(encoding="utf-8")
            # In two steps: a node's new address may be another node's old one.
            for index, address in enumerate(old):
                words = words.replace(f"{address},", f"<{index}>,").replace(f"{address} ", f"<{index}> ")
            for index, address in enumerate(new):
                words = words.replace(f"<{index}>", address)
            path.write_text(words, encoding="utf-8")
        self.created.write_text("\n".join(new), encoding="utf-8")
