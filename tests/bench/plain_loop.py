"""The floor of `keylane serve`: the least that a server in this language does for a look-up and for a push.

An ASGI application under the same HTTP server. A GET of a key is one `MGET` of its record and its watermark,
sent with those of the same tick, and answered with the bytes as they are. A push is parsed, handed to
librdkafka, and answered once it is acknowledged. Nothing else is looked at: no parameters, tokens, formats,
positions, bounds, errors, metrics. `python plain_loop.py PORT lookups NODES`, or `... pushes BOOTSTRAP`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_write
import hiredis
import psutil
import state
from confluent_kafka import Producer
from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from peers import Contender
from tests.servers.own import eventually

from keylane.adapters.redis.resp import encode_command
from keylane_local.process.ports import HOST, Ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAME = "a plain loop"
WORK, BEHIND = "PLAIN_LOOP_WORK", "PLAIN_LOOP_BEHIND"
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
START_S = 60


class NodeConnection(asyncio.Protocol):
    """One connection to a node: commands of a tick leave together, replies come in order."""

    def __init__(self) -> None:
        self._reader, self._waiting = hiredis.Reader(), deque[asyncio.Future[Any]]()
        self._sent: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self, command: bytes) -> asyncio.Future[Any]:
        reply = self._loop.create_future()
        self._waiting.append(reply)
        if not self._sent:
            self._loop.call_soon(self._flush)
        self._sent.append(command)
        return reply

    def _flush(self) -> None:
        self._transport.write(b"".join(self._sent))
        self._sent.clear()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while self._waiting and (found := self._reader.gets()) is not False:
            self._waiting.popleft().set_result(found)


class Lookups:
    """Answers GETs of keys."""

    async def open(self, nodes: str) -> None:
        with state.client(nodes) as client:
            slots = [client.nodes_manager.get_node_from_slot(slot) for slot in range(16_384)]
        loop, opened = asyncio.get_running_loop(), dict[Any, NodeConnection]()
        for host, port in {(node.host, node.port) for node in slots}:
            _, opened[host, port] = await loop.create_connection(NodeConnection, host, port)
        self._of_slot = [opened[node.host, node.port] for node in slots]

    async def answer(self, scope: Any, _: Any) -> bytes:
        slot, value_key, watermark_key = state.redis_keys(scope["raw_path"].rpartition(b"/")[2])
        value, _ = await self._of_slot[slot].ask(encode_command(b"MGET", value_key, watermark_key))
        return bytes(value)


class Pushes:
    """Answers pushes."""

    async def open(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **bench_write.SETTINGS, "linger.ms": 1})
        self._loop, self._done = asyncio.get_running_loop(), deque[asyncio.Future[Any]]()
        threading.Thread(target=self._poll, daemon=True).start()

    def _poll(self) -> None:
        while True:
            if self._producer.poll(0.1) and self._done:
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        while self._done:
            self._done.popleft().set_result(None)

    async def answer(self, _: Any, receive: Any) -> bytes:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body")
        records = json.loads(body)["records"]
        answered = [self._loop.create_future() for _ in records]
        for record, future in zip(records, answered, strict=True):
            given = record["topic"], record["data"], record["key"]
            self._producer.produce(*given, on_delivery=lambda *_, future=future: self._done.append(future))
        for future in answered:
            await future
        return b'{"status": "ok", "errors": []}'


class PlainLoop:
    """The application."""

    def __init__(self) -> None:
        self._work: Any = Lookups() if os.environ[WORK] == "lookups" else Pushes()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await self._work.open(os.environ[BEHIND])
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = await self._work.answer(scope, receive)
        await send(START)
        await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def plain_loop(work: str, where: str, behind: Mapping[str, Sequence[psutil.Process]]) -> Iterator[Contender]:
    """Yield a plain loop that is ready, as what is measured."""
    port = Ports().any()
    process = psutil.Popen([sys.executable, __file__, str(port), work, where], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: any(each.laddr.port == port for each in _listening(process)), START_S)
        yield Contender(NAME, f"http://{HOST}:{port}", psutil.Process(process.pid), behind)
    finally:
        process.terminate()
        process.wait()


def _listening(process: Any) -> list[Any]:
    return [each for one in (process, *process.children()) for each in one.net_connections("tcp")]


def main() -> None:
    port, os.environ[WORK], os.environ[BEHIND] = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parent))
    server = Granian(
        "plain_loop:PlainLoop", factory=True, address=HOST, port=int(port), interface=Interfaces.ASGI,
        loop=Loops.uvloop, http=HTTPModes.auto, websockets=False,
    )  # fmt: skip
    server.serve()


if __name__ == "__main__":
    main()
