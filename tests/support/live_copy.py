"""Live copies of a topic: the TypeScript client's in a process of Node, and the Python client's."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tests.support.node import node_program

from keylane_client import Absent, Client, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane_client import SyncedTopic

PROGRAM = Path(__file__).with_suffix(".ts")


class Copy(Protocol):
    """What a copy has, and what a subscriber has made of its changes."""

    def comes_to(self, records: dict[str, Any]) -> bool:
        """Whether both are exactly these values by key, now."""


class LiveCopy:
    """The TypeScript client's."""

    def __init__(self, node: subprocess.Popen[str]) -> None:
        self._node = node

    def comes_to(self, records: dict[str, Any]) -> bool:
        assert self._node.stdin
        assert self._node.stdout
        self._node.stdin.write("\n")
        self._node.stdin.flush()
        line = self._node.stdout.readline()
        assert line, "the live copy has ended"
        found = json.loads(line)
        return dict(found["live"]) == dict(found["heard"]) == records


@contextmanager
def live_copy(url: str, topic: str, prefix: str = "") -> Iterator[LiveCopy]:
    """Keep a copy during the block. It has to end by itself then, without an error."""
    command = [str(node_program()), str(PROGRAM), url, topic, prefix]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        try:
            yield LiveCopy(node)
            assert node.stdin
            node.stdin.close()
            assert node.wait(20) == 0
        finally:
            node.kill()


class SyncedCopy:
    """The Python client's. `heard`: what its subscriber has come to."""

    def __init__(self, synced: SyncedTopic[Any], heard: dict[Any, Any]) -> None:
        self._synced, self._heard = synced, heard

    def comes_to(self, records: dict[str, Any]) -> bool:
        found = {key: record.value for key, record in self._synced.copy().items()}
        return found == self._heard == records


@contextmanager
def synced_copy(url: str, topic: str, prefix: str = "") -> Iterator[SyncedCopy]:
    """Keep a copy during the block, of a topic that has no changes while the block begins."""
    heard: dict[Any, Any] = {}

    def hear(change: Record[Any] | Absent) -> None:
        if isinstance(change, Record):
            heard[change.key] = change.value
        else:
            heard.pop(change.key, None)

    with Client(url) as client, client.topic(topic).sync(prefix=prefix or None, on_change=hear) as synced:
        heard |= {key: record.value for key, record in synced.copy().items()}
        yield SyncedCopy(synced, heard)


@contextmanager
def both_copies(url: str, topic: str, prefix: str = "") -> Iterator[dict[str, Copy]]:
    """Keep a copy by each client during the block."""
    with live_copy(url, topic, prefix) as live, synced_copy(url, topic, prefix) as synced:
        yield {"TypeScript": live, "Python": synced}
