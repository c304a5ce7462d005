"""The TypeScript client's live copy of a topic, in a process of Node."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.node import node_program

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).with_suffix(".ts")


class LiveCopy:
    """What a copy has, and what a subscriber has made of its changes."""

    def __init__(self, node: subprocess.Popen[str]) -> None:
        self._node = node

    def comes_to(self, records: dict[str, Any]) -> bool:
        """Whether both are exactly these values by key, now."""
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
