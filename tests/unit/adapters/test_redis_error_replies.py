"""Error replies as exceptions, as redis-py makes them; and connections to servers that do not answer well."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from redis.connection import DefaultParser
from tests.servers.own import deadline

from keylane.adapters.redis import error_replies
from keylane.adapters.redis.connections import Connector, Node, RedisSettings, Wire
from keylane.adapters.redis.error_replies import (
    AskError,
    AuthenticationError,
    InvalidResponse,
    MovedError,
    RedisConnectionError,
    RedisTimeoutError,
    ResponseError,
    parse_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

REPLIES = (
    "ASK 3999 127.0.0.1:6381",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "CLUSTERDOWN Hash slot not served",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "ERR Function not found",
    "ERR max number of clients reached",
    "ERR unknown command 'NONSENSE', with args beginning with:",
    "EXECABORT Transaction discarded because of previous errors.",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "MISCONF Redis is configured to save RDB snapshots",
    "MOVED 3999 127.0.0.1:6381",
    "MOVED 3999 2001:db8::1:6381",
    "MOVED 3999 :6381",
    "NOAUTH Authentication required.",
    "NOPERM User a has no permissions to run the 'get' command",
    "NOSCRIPT No matching script. Please use EVAL.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY You can't write against a read only replica.",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    (
        "ERR AUTH <password> called without any password configured for the default user. "
        "Are you sure your configuration is correct?"
    ),
    "ODD",
)


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_is_the_error_that_redis_py_makes_of_it(reply: str):
    ours, theirs = parse_error(reply), DefaultParser.parse_error(reply)
    own_name = {"ConnectionError": "RedisConnectionError"}.get(type(theirs).__name__, type(theirs).__name__)
    assert (type(ours).__name__, str(ours)) == (own_name, str(theirs))
    if isinstance(ours, AskError):
        assert (ours.host, ours.port, ours.slot_id) == (theirs.host, theirs.port, theirs.slot_id)


def test_every_class_has_a_reply_here_or_is_no_reply():
    made = {type(parse_error(reply)) for reply in REPLIES}
    kinds = {kind for kind in vars(error_replies).values() if isinstance(kind, type)}
    assert kinds - made == {error_replies.RedisError, RedisTimeoutError, InvalidResponse}


@pytest.mark.parametrize("reply", ["MOVED 3999", "MOVED x 127.0.0.1:1", "ASK 1 nowhere", "MOVED "])
def test_a_redirect_that_names_no_node_is_an_error_of_no_class(reply: str):
    error = parse_error(reply)
    assert (type(error), str(error)) == (ResponseError, reply)
    assert not isinstance(error, MovedError)


@contextlib.contextmanager
def server(*answers: bytes) -> Iterator[tuple[Node, list[bytes]]]:
    """A server that answers what one client sends, one answer after the other; then it closes."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for answer in answers:
                    received.append(connection.recv(1_000))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Node("127.0.0.1", listener.getsockname()[1]), received
        thread.join(20)


def connect(node: Node, **settings: str) -> Wire:
    return Connector(RedisSettings((node,), **settings)).connect(node, deadline(20_000))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({"password": "p"}, b"*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n"),
        ({"username": "u", "password": "pü"}, b"*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$3\r\np\xc3\xbc\r\n"),
    ],
)
def test_credentials_are_sent_once_the_connection_is_open(settings: dict[str, str], sent: bytes):
    with server(b"+OK\r\n") as (node, received):
        connect(node, **settings).disconnect()
    assert received == [sent]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"-WRONGPASS invalid username-password pair\r\n", AuthenticationError),
        (b"", RedisConnectionError),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", InvalidResponse),
        (b"-LOADING Redis is loading the dataset in memory\r\n", RedisConnectionError),
    ],
)
def test_a_server_that_does_not_take_the_credentials_is_an_error_of_its_kind(answer: bytes, kind: type):
    with server(answer) as (node, _), pytest.raises(kind):
        connect(node, password="p")


def test_a_server_that_says_nothing_is_late():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = Node("127.0.0.1", listener.getsockname()[1])
        with pytest.raises(RedisTimeoutError):
            Connector(RedisSettings((node,), password="p")).connect(node, deadline(50))


def test_a_port_where_nobody_listens_is_no_connection():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = Node("127.0.0.1", listener.getsockname()[1])
    with pytest.raises(RedisConnectionError, match=f"127.0.0.1:{node.port}"):
        connect(node)


def test_a_host_that_is_unknown_is_no_connection():
    with pytest.raises(RedisConnectionError, match=r"no-such-host\.invalid"):
        connect(Node("no-such-host.invalid", 6379))


def test_replies_that_arrive_together_are_read_one_by_one():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire = Wire(ours)
        theirs.sendall(b"+a\r\n-ERR no\r\n$3\r\nab")
        assert wire.read_response() == b"a"
        error = wire.read_response()
        assert (type(error), str(error)) == (ResponseError, "no")
        theirs.sendall(b"c\r\n")
        assert wire.read_response() == b"abc"
        theirs.close()
        with pytest.raises(RedisConnectionError):
            wire.read_response()
