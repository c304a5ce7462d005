"""The lower bound of a read's duration: its own commands over bare sockets.

The commands that the function sends are recorded once, outside the measurement. `prepare` packs them for each
node, and determines the length of the replies. During the measurement, replies are counted and not parsed.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, NamedTuple

import hiredis
import state

from keylane.adapters.redis.resp import encode_command
from keylane.ports import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from keylane.adapters.redis.state import RedisState

    Round = Sequence[Call]

RECEIVE_BYTES = 65_536


class Errand(NamedTuple):
    """Bytes for one node, and the length of its reply."""

    connection: socket.socket
    packed: bytes
    reply_bytes: int


def noted(redis_state: RedisState, act: Callable[[], Any]) -> list[Round]:
    """Return the rounds of commands that `act` sends through the state; a round goes to all nodes at once."""
    rounds: list[Round] = []
    read, run = redis_state.read, redis_state.run

    def note_read(slot: int, keys: Sequence[bytes], deadline: Any, **terms: Any) -> Any:
        rounds.append([Call(slot, (b"MGET", *keys))])
        return read(slot, keys, deadline, **terms)

    def note_run(calls: Round, deadline: Any, **terms: Any) -> Any:
        rounds.append(list(calls))
        return run(calls, deadline, **terms)

    redis_state.read, redis_state.run = note_read, note_run  # type: ignore[method-assign]
    try:
        act()
    finally:
        del redis_state.read, redis_state.run
    if not rounds:
        raise SystemExit("the read has sent no command: its reference would measure nothing")
    return rounds


class Bare:
    """One socket to each primary."""

    def __init__(self, nodes: str) -> None:
        with state.client(nodes) as client:
            self._node_of = client.nodes_manager.get_node_from_slot
        self._sockets: dict[tuple[str, int], socket.socket] = {}

    def prepare(self, rounds: Sequence[Round]) -> list[list[Errand]]:
        """Encode the rounds, and send them once to determine the length of the replies."""
        return [self._prepare(calls) for calls in rounds]

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()

    def _prepare(self, calls: Round) -> list[Errand]:
        by_node: dict[tuple[str, int], list[bytes]] = {}
        for call in calls:
            node = self._node_of(call.slot)
            by_node.setdefault((node.host, node.port), []).append(encode_command(*call.words))
        errands = []
        for address, commands in by_node.items():
            connection, packed = self._socket(address), b"".join(commands)
            errands.append(Errand(connection, packed, _reply_bytes(connection, packed, len(commands))))
        return errands

    def _socket(self, address: tuple[str, int]) -> socket.socket:
        if address not in self._sockets:
            connection = self._sockets[address] = socket.create_connection(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._sockets[address]


def run(rounds: Sequence[Sequence[Errand]]) -> None:
    """Send each round to all its nodes, then read until all bytes have arrived."""
    for errands in rounds:
        for connection, packed, _ in errands:
            connection.sendall(packed)
        for connection, _, reply_bytes in errands:
            left = reply_bytes
            while left > 0:
                left -= len(connection.recv(RECEIVE_BYTES))


def _reply_bytes(connection: socket.socket, packed: bytes, count: int) -> int:
    connection.sendall(packed)
    reader = hiredis.Reader()
    got = size = 0
    while got < count:
        data = connection.recv(RECEIVE_BYTES)
        size += len(data)
        reader.feed(data)
        while got < count and (reply := reader.gets()) is not False:
            if isinstance(reply, hiredis.ReplyError):
                raise SystemExit(f"the server refused a command: {reply}")
            got += 1
    return size
