"""One read by a warm query function, event in to response out, beside bare-socket `MGET`s of the same keys.

They alternate on one real cluster, each with its own order of keys, so that other load on the machine affects
all of them. There are two measurements: `lookup`, with the processes where the system places them, and
`lookup-one-core`, with client and servers on one core. There, no other core has to wake up for a reply, which
otherwise dominates the bare socket's time and hides the cost of the function itself.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import psutil
import stage
import state
from functions import CONTEXT, load_function
from harness import ResultRow, in_turns, latency, parse, report

from keylane.adapters.redis.resp import encode_command
from keylane.state.codec import HEADER_BYTES, WATERMARK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Record = tuple[bytes, bytes]
    Way = Callable[[bytes, bytes], float]

BARE = "bare-socket MGET"
CLIENT = "redis-py's cluster client"
FUNCTION = "query function"
WARM_UP = 500


class BareReader:
    """One socket per primary; commands are encoded in advance, replies are counted and not parsed."""

    def __init__(self, nodes: str) -> None:
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        with state.client(nodes) as client:
            self._node_of = client.nodes_manager.get_node_from_slot
            self._commands: dict[bytes, tuple[socket.socket, bytes]] = {}

    def prepare(self, key: bytes) -> None:
        slot, value_key, watermark_key = state.redis_keys(key)
        node = self._node_of(slot)
        address = (node.host, node.port)
        if address not in self._sockets:
            self._sockets[address] = socket.create_connection(address)
            self._sockets[address].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._commands[key] = self._sockets[address], encode_command(b"MGET", value_key, watermark_key)

    def read(self, key: bytes, reply_bytes: int) -> bytes:
        connection, command = self._commands[key]
        connection.sendall(command)
        reply = connection.recv(65_536)
        while len(reply) < reply_bytes:
            reply += connection.recv(65_536)
        return reply

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()


def reply_length(value: bytes) -> int:
    return len(encode_command(bytes(HEADER_BYTES + len(value)), bytes(WATERMARK_BYTES)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keys", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=3, help="reads of every key, each way")
    options.add_argument("--value-bytes", type=int, default=184)
    chosen = parse(options)
    with stage.cluster() as nodes:
        records = state.fill(nodes, chosen.keys, chosen.value_bytes)
        with ways_to_read(nodes, records) as ways:
            measure_and_report("lookup", ways, records, chosen)
            if hasattr(os, "sched_setaffinity"):
                core = min(os.sched_getaffinity(0))
                for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                    os.sched_setaffinity(process.pid, {core})
                measure_and_report("lookup-one-core", ways, records, chosen)


def measure_and_report(
    bench: str, ways: dict[str, Way], records: list[Record], chosen: argparse.Namespace
) -> None:
    samples = measure(ways, records * chosen.rounds)
    report(
        bench,
        "us",
        [ResultRow(name, latency(taken)) for name, taken in samples.items()],
        reference=BARE,
        settings=vars(chosen) | {"reads_each_way": len(samples[BARE])},
        aim="the function's p50 at most 2x of the bare socket's",
    )


def measure(ways: dict[str, Way], records: list[Record]) -> dict[str, list[float]]:
    """Return the microseconds of every read, by way."""
    for way in ways.values():
        for key, value in records[:WARM_UP]:
            way(key, value)
    return in_turns({name: partial(_of_record, way) for name, way in ways.items()}, records)


def _of_record(way: Way, record: Record) -> float:
    return way(*record)


@contextmanager
def ways_to_read(nodes: str, records: list[Record]) -> Iterator[dict[str, Way]]:
    """Yield functions (key, value) -> microseconds, which check the answer after the clock has stopped."""
    os.environ.update(state.environment(nodes))
    handler = load_function("query").lambda_handler
    bare = BareReader(nodes)
    client = state.client(nodes)
    clock = time.perf_counter_ns

    def through_socket(key: bytes, value: bytes) -> float:
        length = reply_length(value)
        begun = clock()
        reply = bare.read(key, length)
        taken = clock() - begun
        assert value in reply
        assert len(reply) == length
        return taken / 1000

    def through_client(key: bytes, value: bytes) -> float:
        _, value_key, watermark_key = state.redis_keys(key)
        begun = clock()
        found = client.mget(value_key, watermark_key)
        taken = clock() - begun
        assert found[0].endswith(value)
        return taken / 1000

    def through_function(key: bytes, value: bytes) -> float:
        event = state.get_event(key)  # created here, as the Lambda runtime does
        begun = clock()
        answer = handler(event, CONTEXT)
        taken = clock() - begun
        state.check(answer, value)
        return taken / 1000

    for key, _ in records:
        bare.prepare(key)
    yield {BARE: through_socket, CLIENT: through_client, FUNCTION: through_function}
    bare.close()
    client.close()


if __name__ == "__main__":
    main()
