from __future__ import annotations

import asyncio
from typing import Any

from keylane_local.process.ports import HOST, Ports
from keylane_server.options import ServerOptions
from keylane_server.worker import READY, ServerProcess, say_ready


class BrokenEnvironment(dict[str, str]):
    """An environment whose reading fails in a way that nobody thought of."""

    def __contains__(self, name: object) -> bool:
        raise RuntimeError("never thought of")


async def test_a_start_that_fails_in_an_unknown_way_is_a_failed_start_and_in_the_log(caplog):
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await ServerProcess(ServerOptions(HOST, 0), BrokenEnvironment())({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "never thought of" in caplog.text


async def test_a_server_says_that_it_is_ready_once_its_port_accepts_connections(capsys):
    options = ServerOptions(HOST, Ports().any())

    saying = asyncio.ensure_future(say_ready(options))
    await asyncio.sleep(0.05)
    before = capsys.readouterr().out
    server = await asyncio.start_server(lambda _, writer: writer.close(), HOST, options.port)
    await asyncio.wait_for(saying, 20)
    server.close()
    assert before == ""
    assert capsys.readouterr().out == f"{READY} on {options.url}\n"
