"""What the servers say of themselves: Redis nodes, Kafka's offsets, and the folders that the stack writes."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import redis
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.processes import Figures

    from keylane_local.stack.stack import Stack

USED_MEMORY, KEYS, CLIENTS, IS_PRIMARY = "used_memory_bytes", "keys", "clients", "is_primary"
DISK, FILES, RECORDS = "disk_bytes", "files", "records"
_FACTS = {USED_MEMORY: "used_memory", CLIENTS: "connected_clients"}


class StateReader:
    """Reads the figures of a stack's servers over connections of its own."""

    def __init__(self, stack: Stack, topics: dict[str, int]) -> None:
        """`topics`: partition counts by name."""
        self._stack = stack
        self._offsets = [
            TopicPartition(topic, partition) for topic, count in topics.items() for partition in range(count)
        ]
        self._admin = AdminClient({"bootstrap.servers": stack.kafka_bootstrap, "log_level": 0})
        self._nodes = {
            f"redis {number}": redis.Redis(port=node.port, socket_timeout=10)
            for number, node in enumerate(stack.redis.nodes)
        }

    def read(self) -> dict[str, Figures]:
        """Return figures by the name of what they are of."""
        return {**self._redis(), **self._kafka(), **self._folders()}

    def close(self) -> None:
        for client in self._nodes.values():
            client.close()

    def _redis(self) -> dict[str, Figures]:
        found: dict[str, Figures] = {}
        for name, client in self._nodes.items():
            with contextlib.suppress(redis.RedisError):
                facts = client.info()
                found[name] = {figure: float(facts[fact]) for figure, fact in _FACTS.items()}
                found[name][KEYS] = float(facts.get("db0", {}).get("keys", 0))
                found[name][IS_PRIMARY] = float(facts["role"] == "master")
        return found

    def _kafka(self) -> dict[str, Figures]:
        futures = self._admin.list_offsets(
            {each: OffsetSpec.latest() for each in self._offsets}, request_timeout=10
        )
        sums: dict[str, Figures] = {}
        for each, future in futures.items():
            figures = sums.setdefault(f"topic {each.topic}", {RECORDS: 0.0})
            figures[RECORDS] += future.result(15).offset
        return sums

    def _folders(self) -> dict[str, Figures]:
        data = self._stack.data
        folders = {
            "kafka's log": data / "kafka", "Redis' files": data / "redis", "job's folder": data / "job",
            "job's checkpoint": data / "checkpoint",
        }  # fmt: skip
        sizes = {name: measure_folder(path) for name, path in folders.items()}
        # The server logs each request.
        logs = [path.stat().st_size for path in (data / "logs").iterdir() if path.name != "server.log"]
        return {**sizes, "logs": {DISK: float(sum(logs)), FILES: float(len(logs))}}


def measure_folder(path: Path) -> Figures:
    """Return how many files a folder has, and what they take of the disk; 0 if there is no such folder."""
    sizes = []
    for folder, _, files in os.walk(path):
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                sizes.append(os.stat(os.path.join(folder, file)).st_blocks * 512)  # noqa: PTH116, PTH118 (many)
    return {DISK: float(sum(sizes)), FILES: float(len(sizes))}
