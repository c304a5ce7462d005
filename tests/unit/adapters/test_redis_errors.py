"""What each error of Redis calls for, parsed as the client parses it."""

from __future__ import annotations

import pytest

from keylane.adapters.redis.error_replies import AuthenticationError, RedisTimeoutError
from keylane.adapters.redis.errors import Remedy, is_transient, may_differ_elsewhere, remedy_for
from keylane.adapters.redis.resp import new_reader


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        (b"MOVED 3999 127.0.0.1:6381", Remedy.FOLLOW_MOVED),
        (b"ASK 3999 127.0.0.1:6381", Remedy.FOLLOW_ASK),
        (b"TRYAGAIN Multiple keys request during rehashing of slot", Remedy.SPLIT),
        (b"CLUSTERDOWN The cluster is down", Remedy.RETRY),
        (b"MASTERDOWN Link with MASTER is down", Remedy.RETRY),
        (b"LOADING Redis is loading the dataset in memory", Remedy.RETRY),
        (b"READONLY You can't write against a read only replica.", Remedy.RETRY),
        (b"NOSCRIPT No matching script. Please use EVAL.", Remedy.LOAD_CODE),
        (b"ERR Function not found", Remedy.LOAD_CODE),
        (b"NOAUTH Authentication required.", Remedy.NONE),
        (b"NOPERM this user has no permissions", Remedy.NONE),
        (b"WRONGTYPE Operation against a key", Remedy.NONE),
        (b"ERR unknown command", Remedy.NONE),
    ],
)
def test_an_error_reply_calls_for_one_remedy(line: bytes, remedy: Remedy):
    reader = new_reader()
    reader.feed(b"-" + line + b"\r\n")
    assert remedy_for(reader.gets()) is remedy


@pytest.mark.parametrize(
    ("line", "differs"),
    [
        (b"BUSY Redis is busy running a script.", True),
        (b"OOM command not allowed when used memory > 'maxmemory'.", True),
        (b"MISCONF Errors writing to the AOF file", True),
        (b"STRANGE a code that nobody knows", True),
        (b"CLUSTERDOWN The cluster is down", True),
        (b"WRONGTYPE Operation against a key", False),
        (b"CROSSSLOT Keys in request don't hash to the same slot", False),
        (b"NOPERM this user has no permissions", False),
        (b"NOAUTH Authentication required.", False),
        (b"ERR unknown command", False),
        (b"NOSCRIPT No matching script. Please use EVAL.", False),
    ],
)
def test_a_replica_is_asked_whatever_the_error_but_for_those_of_all_nodes(line: bytes, differs: bool):
    reader = new_reader()
    reader.feed(b"-" + line + b"\r\n")
    assert may_differ_elsewhere(reader.gets()) is differs


def test_broken_connections_and_timeouts_may_pass_and_wrong_credentials_do_not():
    assert is_transient(ConnectionResetError())
    assert is_transient(RedisTimeoutError())
    assert not is_transient(AuthenticationError())
