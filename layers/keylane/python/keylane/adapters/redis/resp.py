"""RESP and redis-py's errors: what both sides of the state, reader and writer, put on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import hiredis
from redis.connection import DefaultParser
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    InvalidResponse,
    NoPermissionError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from keylane.errors import StateUnavailable

if TYPE_CHECKING:
    import socket

    from keylane.ports import Deadline

NOT_YET = object()
"""What the reader gives while a reply isn't whole."""


class Wire(Protocol):
    """The part of redis-py's `Connection` that is used here; the class itself has no types."""

    _sock: socket.socket

    def connect(self) -> None:
        """Connect and authenticate."""

    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None:
        """Send RESP as it is."""

    def read_response(self) -> Any:
        """Give the next reply; an error reply is raised."""

    def disconnect(self) -> None:
        """Close the socket."""


def encode_command(*args: bytes) -> bytes:
    r"""One command as RESP: `encode_command(b"GET", b"k")` -> `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`."""
    return b"*%d\r\n%b" % (len(args), b"".join([b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args]))


class translate_redis_errors:  # noqa: N801 (it reads as the function that contextlib would make)
    """Every error of the client library becomes StateUnavailable; the cause keeps the server's words.

    A class, for it is around the read of a key: contextlib's way takes a microsecond more.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Translate."""
        if isinstance(error, (RedisError, OSError)):
            raise _translated(error) from error


def _translated(error: Exception) -> StateUnavailable:
    if isinstance(error, (AuthenticationError, NoPermissionError)):
        return StateUnavailable("Redis refused our credentials", 10)
    if isinstance(error, RedisTimeoutError):
        return StateUnavailable("Redis did not answer in time")
    if isinstance(error, (RedisConnectionError, OSError)):
        return StateUnavailable("Redis can't be reached")
    if isinstance(error, (AskError, ClusterDownError, TryAgainError)):
        return StateUnavailable("the Redis Cluster does not serve this slot for now")
    return StateUnavailable("Redis refused the command")


def new_reader() -> hiredis.Reader:
    """Give a parser that makes of error replies redis-py's own errors, as values."""
    return hiredis.Reader(
        protocolError=InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=NOT_YET
    )


def read_reply(connection: Wire) -> Any:
    """The next reply, an error reply of the server as a value; a broken connection raises."""
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def seconds_left(deadline: Deadline) -> float:
    """What a socket may wait; raises redis' TimeoutError at 0, which would mean "don't block" to it."""
    left_s = deadline.remaining_s
    if left_s <= 0:
        raise RedisTimeoutError("the deadline is over")
    return left_s
