from __future__ import annotations

import asyncio

from keylane_local.process.ports import HOST, Ports
from keylane_server.options import ServerOptions
from keylane_server.worker import READY, say_ready


def test_a_server_says_that_it_is_ready_once_its_port_accepts_connections(capsys):
    options = ServerOptions(HOST, Ports().any())

    async def run() -> str:
        saying = asyncio.ensure_future(say_ready(options))
        await asyncio.sleep(0.05)
        before = capsys.readouterr().out
        server = await asyncio.start_server(lambda _, writer: writer.close(), HOST, options.port)
        await asyncio.wait_for(saying, 20)
        server.close()
        return before

    assert asyncio.run(run()) == ""
    assert capsys.readouterr().out == f"{READY} on {options.url}\n"
