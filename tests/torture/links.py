"""TCP proxies before the Redis nodes, which cut, hold, slow down or drip what passes.

The job and the readers have proxies of their own (`Links`), so one may lose a node that the other still
reaches. The nodes know nothing of them: a `LinkedCluster` connects to the proxy of the node that it means.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.connections import Connector, Node
from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from keylane.adapters.redis.connections import RedisSettings, Wire
    from keylane.ports import Deadline

ROOT = Path(__file__).parents[2]
_READ_BYTES = 65_536
_DRIP_BYTES = 50
_DRIP_PAUSE_S = 0.002


class Mode(enum.Enum):
    """What a link does with the bytes that it takes."""

    OPEN = enum.auto()
    CUT = enum.auto()
    """Every connection is closed, new ones too."""
    HOLD = enum.auto()
    """Nothing passes, as in a network partition. All of it arrives afterwards, even if the client is gone."""
    HOLD_REPLIES = enum.auto()
    """Commands pass, their replies don't: the client does not know what was carried out."""
    SLOW = enum.auto()
    """Each read of the socket takes `Link.delay_s` more, in both directions."""
    LATE = enum.auto()
    """Commands pass at once, their replies `Link.delay_s` later, however many: the delay is no queue."""
    FAR = enum.auto()
    """As LATE in both directions: the other side is far away."""
    DRIP = enum.auto()
    """Bytes pass a few at a time."""


class Link:
    """The proxy of one node. Everything but `port` and `mode` belongs to the event loop."""

    def __init__(self, node_port: int) -> None:
        self.port = 0
        self.mode = Mode.OPEN
        self.delay_s = 0.0
        self._node_port = node_port
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def set(self, mode: Mode, delay_s: float) -> None:
        self.mode, self.delay_s = mode, delay_s
        self._changed.set()
        self._changed = asyncio.Event()
        if mode is Mode.CUT:
            for writer in list(self._writers):
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        try:
            if self.mode is not Mode.CUT:
                replies, upstream = await asyncio.open_connection(HOST, self._node_port)
                self._writers.add(upstream)
                back = asyncio.create_task(self._pump(replies, writer, is_reply=True))
                await self._pump(reader, upstream, is_reply=False)
                await back
        except (OSError, asyncio.CancelledError):
            pass  # the node is down, or this process ends, of which asyncio would print a traceback
        finally:
            for each in (writer, upstream):
                if each is not None:
                    each.close()
                    self._writers.discard(each)

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_reply: bool
    ) -> None:
        loop, due_s, late = asyncio.get_running_loop(), 0.0, deque[bytes]()

        def write_oldest() -> None:
            if late:
                target.write(late.popleft())

        with contextlib.suppress(OSError):
            while data := await source.read(_READ_BYTES):
                while self.mode is Mode.HOLD or (is_reply and self.mode is Mode.HOLD_REPLIES):
                    await self._changed.wait()
                is_late = self.mode is Mode.FAR or (is_reply and self.mode is Mode.LATE)
                if is_late or late:  # in order, also when the delay ends
                    due_s = max(due_s, loop.time() + (self.delay_s if is_late else 0.0))
                    late.append(data)
                    loop.call_at(due_s, write_oldest)  # timers of one time are called in any order
                    continue
                if self.mode is Mode.SLOW:
                    await asyncio.sleep(self.delay_s)
                while self.mode is Mode.DRIP and len(data) > _DRIP_BYTES:
                    target.write(data[:_DRIP_BYTES])
                    await target.drain()  # raises once the other side has gone
                    data = data[_DRIP_BYTES:]
                    await asyncio.sleep(_DRIP_PAUSE_S)
                target.write(data)
                await target.drain()
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        target.writelines(late)
        late.clear()
        target.close()


class Links:
    """A link to each node. They have a process of their own: readers here would keep them waiting."""

    def __init__(self, node_ports: Iterable[int], rest: Mode = Mode.OPEN, delay_s: float = 0.0) -> None:
        """`rest`, `delay_s`: how the links are while nothing else is set."""
        command = [sys.executable, "-m", __name__, *map(str, node_ports)]
        # It ends when its input does, so with this process.
        self._process = subprocess.Popen(
            command, cwd=ROOT, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._lock = threading.Lock()
        self._ports = {int(node): link for node, link in self._answer().items()}
        self._rest = rest, delay_s
        for node_port in self._ports:
            self._set(node_port, *self._rest)

    @property
    def ports(self) -> dict[int, int]:
        """The port of each node's proxy, by the node's own port."""
        return self._ports

    @contextlib.contextmanager
    def set(self, node_port: int, mode: Mode, delay_s: float = 0.0) -> Iterator[None]:
        """Change a node's link; it is at rest again at the end."""
        self._set(node_port, mode, delay_s)
        try:
            yield
        finally:
            self._set(node_port, *self._rest)

    def _set(self, node_port: int, mode: Mode, delay_s: float) -> None:
        assert self._process.stdin
        with self._lock:
            self._process.stdin.write(json.dumps([node_port, mode.name, delay_s]) + "\n")
            self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End all connections and the process."""
        assert self._process.stdin
        assert self._process.stdout
        with self._lock:
            self._process.stdin.close()
            self._process.wait(10)
            self._process.stdout.close()


async def _serve(node_ports: Iterable[int]) -> None:
    """Answer commands: the ports at first, then each change of a link once it is made.

    A terminal sends Ctrl-C to this process, too: it ends with the one that has started it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    links = {port: Link(port) for port in node_ports}
    for link in links.values():
        await link.open()
    print(json.dumps({port: link.port for port, link in links.items()}), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        port, mode, delay_s = json.loads(line)
        await links[port].set(Mode[mode], delay_s)
        print("null", flush=True)


class LinkedConnector(Connector):
    """Connects through links. `ports`: as `Links.ports`."""

    def __init__(self, settings: RedisSettings, ports: Mapping[int, int]) -> None:
        super().__init__(settings)
        self._ports = ports

    def connect(self, node: Node, deadline: Deadline) -> Wire:
        return super().connect(Node(node.host, self._ports.get(node.port, node.port)), deadline)


class LinkedCluster(Cluster):
    """A cluster's client that connects through links. `ports`: as `Links.ports`."""

    def __init__(self, settings: RedisSettings, ports: Mapping[int, int]) -> None:
        super().__init__(settings)
        self._connector = LinkedConnector(settings, ports)


def link_all_clusters(ports: Mapping[int, int]) -> None:
    """Let every `Cluster` of this process connect through links."""

    def connect(self: Connector, node: Node, deadline: Deadline, _connect: Callable = Connector.connect):
        return _connect(self, Node(node.host, ports.get(node.port, node.port)), deadline)

    Connector.connect = connect  # type: ignore[method-assign]


if __name__ == "__main__":
    asyncio.run(_serve(map(int, sys.argv[1:])))
