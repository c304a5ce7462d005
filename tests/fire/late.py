"""A proxy before a broker whose replies arrive late, as many of them as there are: the delay is no queue."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

_READ_BYTES = 65_536


class LateReplies:
    """`delay_s`: of replies that come from now on. Requests pass at once."""

    def __init__(self, port: int, to_port: int) -> None:
        self.delay_s = 0.0
        self._port, self._to_port = port, to_port

    async def serve(self, is_open: threading.Event, over: asyncio.Event) -> None:
        async with await asyncio.start_server(self._take, HOST, self._port):
            is_open.set()
            await over.wait()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            replies, upstream = await asyncio.open_connection(HOST, self._to_port)
            back = asyncio.create_task(self._pass_late(replies, writer))
            with contextlib.suppress(OSError):
                while data := await reader.read(_READ_BYTES):
                    upstream.write(data)
                    await upstream.drain()
            upstream.close()
            back.cancel()
        writer.close()

    async def _pass_late(self, replies: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        due_s = 0.0
        while data := await replies.read(_READ_BYTES):
            due_s = max(due_s, loop.time() + self.delay_s)  # in order, also when the delay ends
            loop.call_at(due_s, writer.write, data)
        loop.call_at(due_s, writer.close)


@contextlib.contextmanager
def late_replies(port: int, to_port: int) -> Iterator[LateReplies]:
    """Yield a proxy at `port`, served by a thread of its own."""
    proxy, is_open = LateReplies(port, to_port), threading.Event()
    loop, over = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(proxy.serve(is_open, over)))
    thread.start()
    try:
        assert is_open.wait(10), "the proxy does not listen"
        yield proxy
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
