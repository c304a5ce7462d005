"""The heavy process: thousands of connections, and requests at a rate, whether or not others are answered.

`python -m tests.fire.load PLAN`, a JSON object: host, port, topic, connections, per_s, seconds, and either
`write_part` of PUTs among GETs of the same keys, or `path` for GETs of one path. A request needs a connection
that waits for no answer; those that found none are counted. Each connection writes to a key of its own, so
that a key's records are in the order of their answers. The last line that it prints has what it found.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter, deque
from typing import Any

from tests.fire.wire import NO_ANSWER, rendered

TICK_S = 0.005
OPEN_AT_ONCE = 100
AGAIN_AFTER_S = 0.5
ENDS_WITHIN_S = 30.0
FILLER = "x" * 150
NICE = 10


class Load:
    """What is sent, and what came back."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.outcomes: Counter[int] = Counter()
        self.without_connection = 0
        self.acks: list[tuple[int, int, str, int]] = []
        self.free: deque[LoadConnection] = deque()
        self.opened = 0
        self._chance = random.Random(1)
        self._number = 0
        self._path = f"/topics/{plan['topic']}/keys/"
        self._prefix = f"l{os.getpid()}-"

    async def run(self) -> None:
        plan = self.plan
        for first in range(0, plan["connections"], OPEN_AT_ONCE):
            last = min(first + OPEN_AT_ONCE, plan["connections"])
            await asyncio.gather(*(self.open(f"{self._prefix}{number}") for number in range(first, last)))
        begun_s = time.monotonic()
        sent = 0
        while (now_s := time.monotonic()) < begun_s + plan["seconds"]:
            due = int((now_s - begun_s) * plan["per_s"])
            while sent < due and self.free:
                self.send(self.free.popleft())
                sent += 1
            self.without_connection += due - sent
            sent = due
            await asyncio.sleep(TICK_S)
        until_s = time.monotonic() + ENDS_WITHIN_S
        while len(self.free) < self.opened and time.monotonic() < until_s:  # noqa: ASYNC110 (of a protocol)
            await asyncio.sleep(TICK_S)
        self.outcomes[NO_ANSWER] += self.opened - len(self.free)

    async def open(self, key: str) -> None:
        try:
            loop, plan = asyncio.get_running_loop(), self.plan
            await loop.create_connection(lambda: LoadConnection(self, key), plan["host"], plan["port"])
        except OSError:
            self.outcomes[NO_ANSWER] += 1
            asyncio.get_running_loop().call_later(AGAIN_AFTER_S, self.open_again, key)

    def open_again(self, key: str) -> None:
        task = asyncio.ensure_future(self.open(key))
        task.add_done_callback(lambda _: None)

    def send(self, connection: LoadConnection) -> None:
        connection.number = None
        if "path" in self.plan:
            connection.transport.write(rendered("GET", self.plan["path"]))
        elif self._chance.random() < self.plan["write_part"]:
            self._number += 1
            connection.number = self._number
            body = f'{{"number": {self._number}, "filler": "{FILLER}"}}'.encode()
            connection.transport.write(rendered("PUT", self._path + connection.key, body))
        else:
            key = f"{self._prefix}{self._chance.randrange(self.plan['connections'])}"
            connection.transport.write(rendered("GET", self._path + key))

    def take(self, connection: LoadConnection, head: bytes, body: bytes) -> None:
        status = int(head[9:12])
        self.outcomes[status] += 1
        if status == 201 and connection.number is not None:
            partition, _, offset = json.loads(body)["position"].partition(":")
            self.acks.append((int(partition), int(offset), connection.key, connection.number))
        self.free.append(connection)


class LoadConnection(asyncio.Protocol):
    """One connection: one request at a time."""

    transport: asyncio.Transport

    def __init__(self, load: Load, key: str) -> None:
        self.key = key
        self.number: int | None = None
        self._load = load
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._load.opened += 1
        self._load.free.append(self)

    def data_received(self, data: bytes) -> None:
        self._data = data = self._data + data if self._data else data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = data[:end].lower()
        begin = head.find(b"content-length:")
        size = int(head[begin + 15 :].split(b"\r\n", 1)[0]) if begin >= 0 else 0
        if len(data) < end + 4 + size:
            return
        self._data = b""
        self._load.take(self, head, data[end + 4 :])

    def connection_lost(self, _: Exception | None) -> None:
        load = self._load
        load.opened -= 1
        if self in load.free:
            load.free.remove(self)
        else:
            load.outcomes[NO_ANSWER] += 1
        load.open_again(self.key)


def main() -> None:
    os.nice(NICE)
    load = Load(json.loads(sys.argv[1]))
    begun_s = time.monotonic()
    asyncio.run(load.run())
    print(
        json.dumps(
            {
                "seconds": time.monotonic() - begun_s, "outcomes": load.outcomes, "acks": load.acks,
                "without_connection": load.without_connection,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
