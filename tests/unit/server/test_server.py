"""What `keylane serve` sets for the processes that it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from keylane_local.process.ports import HOST, Ports
from keylane_server import server
from keylane_server.options import VARIABLE, ServerOptions

if TYPE_CHECKING:
    import pytest


def test_processes_give_large_blocks_back_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "")
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_")
    found: dict[str, str | None] = {}

    class Granian:
        def serve(self) -> None:
            found.update({name: os.environ.get(name) for name in server.ALLOCATOR})

    monkeypatch.setattr(server, "_make_server", lambda _: Granian())
    server.serve(ServerOptions(HOST, Ports().any()))
    assert found == {"MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_ARENA_MAX": "8"}
