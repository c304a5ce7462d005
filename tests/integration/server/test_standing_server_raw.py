"""`keylane serve` and what is not quite HTTP: smuggled requests, two lengths, heads that are read two ways.

Each is sent on a connection of its own, with one more request behind it, which is answered if it is beyond
doubt where the first one ends.
"""

from __future__ import annotations

import contextlib
import re
import socket
from typing import TYPE_CHECKING

import pytest

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from tests.servers.standing import StandingServer


BODY = b'{"keys": ["k"]}'
LENGTH = len(BODY)
POST = b"POST /topics/TOPIC/keys:read HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
MARKER = b"GET /metadata/partitions?topic=TOPIC HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
SMUGGLED = b"GET /topics/SMUGGLED/keys/x HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n0\r\n\r\n" % (LENGTH, BODY)
KEY = b"GET /topics/TOPIC/keys/k HTTP/1.1\r\n"


def sized(length: bytes) -> bytes:
    return POST + b"Content-Length: " + length + b"\r\n\r\n"


def coded(coding: bytes) -> bytes:
    return POST + b"Transfer-Encoding: " + coding + b"\r\n\r\n"


LISTED = {
    "length and chunks": (
        POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX" + SMUGGLED,
        [400],
    ),
    "chunks and length": (
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 100\r\n\r\n0\r\n\r\n",
        [400],
    ),
    "two lengths": (POST + b"Content-Length: 5\r\nContent-Length: 15\r\n\r\n" + BODY, [400]),
    "a length twice": (POST + b"Content-Length: 15\r\nContent-Length: 15\r\n\r\n" + BODY, [200, 200]),
    "a list of lengths": (sized(b"15, 15") + BODY, [400]),
    "a length with a plus": (sized(b"+15") + BODY, [400]),
    "a negative length": (sized(b"-1"), [400]),
    "a hexadecimal length": (sized(b"0xf") + BODY, [400]),
    "a length over 64 bits": (sized(b"99999999999999999999999") + BODY, [400]),
    "a length of 2^63": (sized(b"9223372036854775807") + BODY, [413]),
    "a space before the colon": (POST + b"Content-Length : 15\r\n\r\n" + BODY, [400]),
    "an unknown coding": (coded(b"xchunked") + b"0\r\n\r\n", [400]),
    "chunked before identity": (coded(b"chunked, identity") + b"0\r\n\r\n", [400]),
    "identity before chunked": (coded(b"identity, chunked") + b"0\r\n\r\n", [400, 200]),
    "gzip before chunked": (coded(b"gzip, chunked") + b"5\r\nhello\r\n0\r\n\r\n", [400, 200]),
    "two codings": (
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        [400],
    ),
    "a tab before the coding": (POST + b"Transfer-Encoding:\tchunked\r\n\r\n" + CHUNK, [200, 200]),
    "a vertical tab": (coded(b"\x0bchunked") + CHUNK, [400]),
    "a folded header": (
        POST + b"X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 15\r\n\r\n" + BODY,
        [400],
    ),
    "a bare carriage return": (KEY + b"Host: x\rX: y\r\n\r\n", [400]),
    "a zero byte": (KEY + b"Host: x\r\nA: b\x00c\r\n\r\n", [400]),
    "a header without a colon": (KEY + b"Host: x\r\nABC\r\n\r\n", [400]),
    "a chunk's long extension": (
        CHUNKED + b"f;" + b"a" * 20_000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
        [400],
    ),
    "an extension that ends by a line feed": (CHUNKED + b"f;a\n" + BODY + b"\r\n0\r\n\r\n", [400]),
    "a chunk over 64 bits": (CHUNKED + b"FFFFFFFFFFFFFFFFF\r\n" + BODY, [400]),
    "a chunk's size with 0x": (CHUNKED + b"0xf\r\n" + BODY + b"\r\n0\r\n\r\n", [400]),
    "a chunk without its end": (CHUNKED + b"f\r\n" + BODY + b"XX0\r\n\r\n", [400]),
    "trailers": (
        CHUNKED + b"f\r\n" + BODY + b"\r\n0\r\nContent-Length: 5\r\nAuthorization: x\r\n\r\n",
        [200, 200],
    ),
    "a GET with a body": (
        KEY + b"Host: x\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
        [200, 200],
    ),
    "an unknown route with a body": (
        b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
        [404, 200],
    ),
    "HTTP/1.0 with chunks": (
        POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        [400],
    ),
    "HTTP/0.9": (b"GET /topics/TOPIC/keys/k\r\n\r\n", [400]),
    "HTTP/2.0 in a line": (b"GET /topics/TOPIC/keys/k HTTP/2.0\r\nHost: x\r\n\r\n", [400]),
    "no Host": (KEY + b"\r\n", [400, 200]),
    "no Host in HTTP/1.0": (KEY.replace(b"1.1", b"1.0") + b"\r\n", [200]),
    "no Host for a page of the server": (LIVE.replace(b"Host: x\r\n", b""), [400, 200]),
    "an empty Host": (KEY + b"Host:\r\n\r\n", [400, 200]),
    "two Hosts": (KEY + b"Host: x\r\nHost: y\r\n\r\n", [400, 200]),
    "a Host twice": (KEY + b"Host: x\r\nHost: x\r\n\r\n", [400, 200]),
    "a Host with a path": (KEY + b"Host: evil/x\r\n\r\n", [400, 200]),
    "a Host with a port": (KEY + b"Host: [::1]:8080\r\n\r\n", [200, 200]),
    "a path over 64 KiB": (
        b"GET /topics/TOPIC/keys/" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        [414],
    ),
    "a head over 128 KiB": (KEY + b"Host: x\r\nA: " + b"a" * 1_000_000 + b"\r\n\r\n", [431]),
    "an expectation": (POST + b"Expect: 100-continue\r\nContent-Length: 15\r\n\r\n" + BODY, [100, 200, 200]),
    "pipelined": (MARKER.replace(b"Connection: close\r\n", b"") * 20, [200] * 21),
}


def exchanged(server: StandingServer, sent: bytes) -> bytes:
    """Return what is answered until the server closes: after a fault, or after the request that wants it."""
    received = b""
    with socket.create_connection((HOST, server.port), timeout=20) as connection:
        with contextlib.suppress(ConnectionError):  # it may close before it has read all
            connection.sendall(sent)
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65_536):
                received += part
    return received


@pytest.mark.parametrize("name", LISTED)
def test_what_is_not_quite_http_is_refused_and_nothing_is_smuggled(
    server: StandingServer, topic: str, name: str
):
    sent, expected = LISTED[name]
    received = exchanged(server, (sent + MARKER).replace(b"TOPIC", topic.encode()))
    assert [int(each) for each in re.findall(rb"HTTP/1\.[01] (\d{3})", received)] == expected
    assert b"SMUGGLED" not in received
