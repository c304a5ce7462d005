"""The connection that requests share, against a scripted server at the other end of a socket."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import contextmanager

import pytest

from keylane.adapters.redis.error_replies import (
    InvalidResponse,
    RedisConnectionError,
    RedisTimeoutError,
    ResponseError,
)
from keylane.adapters.redis.resp import READONLY, encode_command
from keylane.errors import TooLarge
from keylane_server.greenlets import run_request
from keylane_server.redis import shared_connection
from keylane_server.redis.shared_connection import SharedConnection

BOUND_S = 20


class PairedWire:
    """The client's end of a pair of sockets, as redis-py's connection has it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def disconnect(self) -> None:
        self.sock.close()


class ScriptedServer:
    """The other end: `received` is all that was sent to it so far."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = b""

    async def receive(self, size: int) -> bytes:
        """Wait until this many bytes have arrived in all."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(BOUND_S):
            while len(self.received) < size:
                part = await loop.sock_recv(self.sock, 1_048_576)
                assert part, "the connection was closed"
                self.received += part
        return self.received

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)


@contextmanager
def connected():
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    closed = []
    connection = SharedConnection(asyncio.get_running_loop(), PairedWire(ours), closed.append)
    try:
        yield connection, ScriptedServer(theirs), closed
    finally:
        connection.close(RedisConnectionError("the test is over"))
        theirs.close()


def exchange(connection, packed, reply_count=1, timeout_s=BOUND_S):
    """Send and wait, as a request."""
    return run_request(lambda: connection.send(packed, reply_count, time.monotonic() + timeout_s).wait())


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A machine that is busy does not make the scripted server look as if it hung."""
    monkeypatch.setattr(shared_connection, "STALL_S", BOUND_S)


GETS = [encode_command(b"GET", b"key-%d" % number) for number in range(3)]


async def test_commands_of_one_tick_leave_in_one_write_and_replies_go_to_who_asked():
    with connected() as (connection, server, _):
        asked = [asyncio.ensure_future(exchange(connection, packed)) for packed in GETS]
        await server.receive(sum(map(len, GETS)))
        await server.send(b"$1\r\na\r\n$-1\r\n:3\r\n")
        received, replies = server.received, await asyncio.gather(*asked)
    assert received == b"".join(GETS)
    assert replies == [[b"a"], [None], [3]]


async def test_what_a_request_sends_stays_in_one_piece():
    with connected() as (connection, server, _):
        sent = [GETS[0], READONLY + GETS[1], GETS[2]]
        asked = [
            asyncio.ensure_future(exchange(connection, packed, count))
            for packed, count in zip(sent, (1, 2, 1), strict=True)
        ]
        await server.receive(len(b"".join(sent)))
        await server.send(b"$1\r\na\r\n+OK\r\n$1\r\nb\r\n$1\r\nc\r\n")
        received, replies, sent = server.received, await asyncio.gather(*asked), b"".join(sent)
    assert received == sent
    assert replies == [[b"a"], [b"OK", b"b"], [b"c"]]


async def test_a_reply_that_arrives_byte_by_byte_is_complete_in_the_end():
    with connected() as (connection, server, _):
        asked = asyncio.ensure_future(exchange(connection, GETS[0] + GETS[1], 2))
        await server.receive(1)
        for byte in b"$3\r\nabc\r\n*2\r\n:1\r\n$-1\r\n":
            await server.send(bytes([byte]))
            await asyncio.sleep(0)
        assert await asked == [b"abc", [1, None]]


async def test_an_error_reply_is_a_value():
    with connected() as (connection, server, _):
        asked = asyncio.ensure_future(exchange(connection, GETS[0]))
        await server.receive(1)
        await server.send(b"-ERR wrong\r\n")
        [reply] = await asked
        assert isinstance(reply, ResponseError)
        assert connection.is_open


async def test_a_request_that_times_out_leaves_its_reply_to_nobody_and_the_connection_open():
    with connected() as (connection, server, closed):
        late = asyncio.ensure_future(exchange(connection, GETS[0], timeout_s=0.02))
        await server.receive(len(GETS[0]))
        with pytest.raises(RedisTimeoutError):
            await late
        after = asyncio.ensure_future(exchange(connection, GETS[1]))
        await server.receive(len(GETS[0] + GETS[1]))
        await server.send(b"$4\r\nlate\r\n$3\r\nown\r\n")
        assert (await after, list(closed)) == ([b"own"], [])


async def test_a_broken_connection_fails_all_who_wait_each_with_an_error_of_its_own():
    with connected() as (connection, server, closed):
        asked = [asyncio.ensure_future(exchange(connection, packed)) for packed in GETS]
        await server.receive(1)
        await server.send(b"$1\r\na\r\n$1\r\n")  # the second reply is cut off
        server.sock.close()
        (first, second, third), is_closed = (
            await asyncio.gather(*asked, return_exceptions=True),
            closed == [connection],
        )
    assert first == [b"a"]
    assert isinstance(second, RedisConnectionError)
    assert isinstance(third, RedisConnectionError)
    assert second is not third
    assert is_closed


async def test_a_server_that_hangs_fails_all_who_wait_and_the_connection_is_closed(monkeypatch):
    monkeypatch.setattr(shared_connection, "STALL_S", 0.05)

    with connected() as (connection, server, _):
        asked = [asyncio.ensure_future(exchange(connection, packed)) for packed in GETS[:2]]
        await server.receive(1)
        errors, is_open = await asyncio.gather(*asked, return_exceptions=True), connection.is_open
    assert [type(error) for error in errors] == [RedisTimeoutError] * 2
    assert not is_open


async def test_more_replies_than_commands_close_the_connection():
    with connected() as (connection, server, _):
        asked = asyncio.ensure_future(exchange(connection, GETS[0]))
        await server.receive(1)
        await server.send(b"$1\r\na\r\n$1\r\nb\r\n")
        with pytest.raises(InvalidResponse):
            await asked
        assert not connection.is_open


async def test_replies_over_the_limit_fail_their_request_and_the_others_may_try_again(monkeypatch):
    monkeypatch.setattr(shared_connection, "REPLIES_LIMIT_BYTES", 1_000)

    with connected() as (connection, server, _):
        asked = [asyncio.ensure_future(exchange(connection, packed)) for packed in GETS[:2]]
        await server.receive(1)
        await server.send(b"$100000\r\n" + b"x" * 5_000)
        large, other = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(large, TooLarge)
    assert isinstance(other, RedisConnectionError)


async def test_a_retired_connection_answers_those_who_wait_and_closes_then():
    with connected() as (connection, server, closed):
        asked = asyncio.ensure_future(exchange(connection, GETS[0]))
        await server.receive(1)
        connection.retire()
        was_open = connection.is_open
        await server.send(b"$1\r\na\r\n")
        assert (await asked, was_open, closed == [connection]) == ([b"a"], True, True)


def test_a_request_that_sends_over_a_connection_that_was_closed_meanwhile_fails_at_once():
    """Requests that share the attempt to connect get the connection in a later tick than it was made."""

    async def run():
        with connected() as (connection, _, _):
            connection.retire()
            async with asyncio.timeout(BOUND_S):
                await exchange(connection, GETS[0])

    with pytest.raises(RedisConnectionError):
        asyncio.run(run())


async def test_commands_larger_than_the_socket_takes_arrive_whole_and_in_order():
    large = [encode_command(b"SET", b"key-%d" % number, b"x" * 3_000_000) for number in range(2)]

    with connected() as (connection, server, _):
        first = asyncio.ensure_future(exchange(connection, large[0]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.ensure_future(exchange(connection, large[1]))
        await server.receive(len(large[0]) + len(large[1]))
        await server.send(b"+OK\r\n+OK\r\n")
        received, replies = server.received, await asyncio.gather(first, second)
    assert received == b"".join(large)
    assert replies == [[b"OK"], [b"OK"]]


async def test_a_reply_that_has_arrived_counts_even_if_the_process_looks_too_late():
    with connected() as (connection, server, _):
        asked = asyncio.ensure_future(exchange(connection, GETS[0], timeout_s=0.05))
        await server.receive(1)
        await server.send(b"$1\r\na\r\n")
        time.sleep(0.1)  # noqa: ASYNC251 (the process is not scheduled)
        assert await asked == [b"a"]
