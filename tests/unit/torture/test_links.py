"""The proxies of the torture: what each mode lets through, and when."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest
from tests.torture.links import Links, Mode

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN_S = 60
"""What arrives at all arrives by then, on a machine that is busy, too."""


@pytest.fixture
def node() -> Iterator[socket.socket]:
    """A listening socket: the server behind the link."""
    with socket.create_server((HOST, 0)) as listening:
        listening.settimeout(WITHIN_S)
        yield listening


@pytest.fixture
def links(node) -> Iterator[Links]:
    opened = Links([node.getsockname()[1]])
    yield opened
    opened.close()


@contextlib.contextmanager
def connected(links: Links, node: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's socket to the link, and the server's to it."""
    with socket.create_connection((HOST, links.ports[port(node)]), WITHIN_S) as client:
        server, _ = node.accept()
        with server:
            server.settimeout(WITHIN_S)
            yield client, server


def port(node: socket.socket) -> int:
    return node.getsockname()[1]


def test_an_open_link_passes_what_both_sides_send(links, node):
    with connected(links, node) as (client, server):
        client.sendall(b"ask")
        assert server.recv(10) == b"ask"
        server.sendall(b"answer")
        assert client.recv(10) == b"answer"


def test_a_cut_link_closes_every_connection_and_new_ones_too(links, node):
    with connected(links, node) as (client, server), links.set(port(node), Mode.CUT):
        for each in (client, server):
            with contextlib.suppress(ConnectionError):
                assert each.recv(10) == b""
        another = socket.create_connection((HOST, links.ports[port(node)]), WITHIN_S)
        with another, contextlib.suppress(ConnectionError):
            assert another.recv(10) == b""
    with connected(links, node) as (client, server):
        client.sendall(b"again")
        assert server.recv(10) == b"again"


def test_what_a_partition_held_arrives_after_it_though_the_client_is_gone(links, node):
    with connected(links, node) as (client, server):
        with links.set(port(node), Mode.HOLD):
            client.sendall(b"late")
            client.close()
            server.settimeout(0.1)
            with pytest.raises(TimeoutError):
                server.recv(10)
        server.settimeout(WITHIN_S)
        assert server.recv(10) == b"late"
        assert server.recv(10) == b""


def test_where_replies_are_held_commands_arrive(links, node):
    with connected(links, node) as (client, server):
        with links.set(port(node), Mode.HOLD_REPLIES):
            client.sendall(b"ask")
            assert server.recv(10) == b"ask"
            server.sendall(b"answer")
            client.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.recv(10)
        client.settimeout(WITHIN_S)
        assert client.recv(10) == b"answer"


def test_late_replies_arrive_after_the_delay_as_many_as_there_are_and_in_order(links, node):
    delay_s, sent = 0.5, b"abcdefghijklmnopqrst"
    with connected(links, node) as (client, server):
        with links.set(port(node), Mode.LATE, delay_s):
            client.sendall(b"ask")
            assert server.recv(10) == b"ask"
            begun_s = time.monotonic()
            for number in range(len(sent)):
                server.sendall(sent[number : number + 1])
                client.sendall(b".")  # what passes at once: the link has read the reply before
                assert server.recv(1) == b"."
            assert client.recv(1) == b"a"
            assert time.monotonic() - begun_s >= delay_s
        server.sendall(b"!")
        got = b"a"
        while len(got) <= len(sent):
            got += client.recv(100)
        assert got == sent + b"!"
        assert time.monotonic() - begun_s < len(sent) * delay_s


def test_a_far_link_delays_both_directions_as_many_messages_as_there_are_and_loses_no_last_word(node):
    delay_s, sent = 0.3, b"abcdefghijklmnopqrst"
    links = Links([port(node)], Mode.FAR, delay_s)
    begun_s = time.monotonic()
    with connected(links, node) as (client, server):
        with links.set(port(node), Mode.HOLD):
            client.sendall(sent[:1])
        for number in range(1, len(sent)):
            client.sendall(sent[number : number + 1])
        client.shutdown(socket.SHUT_WR)
        got = b""
        while part := server.recv(100):
            got += part
        assert got == sent
        assert delay_s <= time.monotonic() - begun_s < len(sent) * delay_s
    links.close()


@pytest.mark.parametrize("mode", [Mode.SLOW, Mode.DRIP])
def test_a_slow_link_passes_everything_in_order(links, node, mode):
    with connected(links, node) as (client, server), links.set(port(node), mode, 0.01):
        sent = bytes(range(256)) * 2
        client.sendall(sent)
        got = b""
        while len(got) < len(sent):
            got += server.recv(1024)
        assert got == sent


@pytest.mark.parametrize("mode", [Mode.HOLD, Mode.DRIP])
def test_connections_that_were_reset_and_ctrl_c_leave_no_traceback(node, capfd, mode):
    links = Links([port(node)])
    with connected(links, node) as (client, server), connected(links, node), links.set(port(node), mode):
        for each in (client, server):
            each.sendall(bytes(1000))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        links._process.send_signal(signal.SIGINT)
    links.close()
    assert links._process.returncode == 0
    assert capfd.readouterr().err == ""
