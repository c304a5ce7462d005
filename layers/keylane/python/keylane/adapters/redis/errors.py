"""What an error of Redis or a connection calls for: one classification for readers, scripts and the writer.

    MOVED                        the slot has another primary: send the command there, now and from now on
    ASK                          the slot is migrating, and this key has left: ask the other node, this once
    TRYAGAIN                     the slot is migrating, and the keys are on both nodes: one by one, or again
    CLUSTERDOWN, MASTERDOWN,     the node can't serve now: ask a replica, or again with a new slot map
    LOADING, READONLY, timeouts,
    broken connections
    NOSCRIPT, missing function   send the code first
    everything else              repeating does not help; but a replica may answer a read, unless the error is
                                 the same on all nodes: BUSY, OOM, MISCONF, codes that are not known here

The writer follows no redirect: a lane's calls must stay in order, so it reads the slot map again and repeats
the call.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

from keylane.adapters.redis.error_replies import (
    AskError,
    AuthenticationError,
    ClusterCrossSlotError,
    ClusterDownError,
    InvalidResponse,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    RedisConnectionError,
    RedisError,
    RedisTimeoutError,
    ResponseError,
    TryAgainError,
)
from keylane.errors import StateUnavailable


class Remedy(Enum):
    """What to do about an error; the module's docstring lists which errors call for which remedy."""

    FOLLOW_MOVED = auto()
    FOLLOW_ASK = auto()
    SPLIT = auto()
    RETRY = auto()
    LOAD_CODE = auto()
    NONE = auto()


CREDENTIALS = (AuthenticationError, NoPermissionError)

# The first match counts: AuthenticationError is a ConnectionError, MovedError is an AskError.
_REMEDIES: tuple[tuple[tuple[type[Exception], ...], Remedy], ...] = (
    (CREDENTIALS, Remedy.NONE),
    ((MovedError,), Remedy.FOLLOW_MOVED),
    ((AskError,), Remedy.FOLLOW_ASK),
    ((TryAgainError,), Remedy.SPLIT),
    ((NoScriptError,), Remedy.LOAD_CODE),
    ((RedisConnectionError, RedisTimeoutError, OSError), Remedy.RETRY),  # LOADING is a ConnectionError
    ((InvalidResponse, ClusterDownError, ReadOnlyError), Remedy.RETRY),  # MASTERDOWN is a ClusterDownError
)


def remedy_for(error: Exception) -> Remedy:
    """Classify an exception or an error reply."""
    for kinds, remedy in _REMEDIES:
        if isinstance(error, kinds):
            return remedy
    if isinstance(error, ResponseError) and "Function not found" in str(error):
        return Remedy.LOAD_CODE
    return Remedy.NONE


def is_transient(error: Exception) -> bool:
    """Whether another node, a new slot map or time may help."""
    return remedy_for(error) not in (Remedy.LOAD_CODE, Remedy.NONE)


_SAME_EVERYWHERE = (*CREDENTIALS, ClusterCrossSlotError)
_CODE = re.compile(r"[A-Z]+(?= )")


def may_differ_elsewhere(error: Exception) -> bool:
    """Whether another node may answer a read that this one refused, or time may help.

    Rejected credentials, and what is wrong with a command or its key, are the same on all nodes. The
    text of the latter lacks its code ERR.
    """
    remedy = remedy_for(error)
    if remedy is not Remedy.NONE:
        return remedy is not Remedy.LOAD_CODE
    if isinstance(error, _SAME_EVERYWHERE) or not isinstance(error, ResponseError):
        return False
    code = _CODE.match(str(error))
    return type(error) is not ResponseError or bool(code and code[0] != "WRONGTYPE")


@contextmanager
def translate_redis_errors() -> Iterator[None]:
    """Raise StateUnavailable from each error of Redis or a connection."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise unavailable(error) from error


def unavailable(error: Exception) -> StateUnavailable:
    """The StateUnavailable for a RedisError or OSError; the caller sets its cause."""
    if isinstance(error, CREDENTIALS):
        return StateUnavailable("Redis refused our credentials", 10)
    if isinstance(error, RedisTimeoutError):
        return StateUnavailable("Redis did not answer in time")
    if isinstance(error, (RedisConnectionError, OSError)):
        return StateUnavailable("Redis can't be reached")
    if isinstance(error, (AskError, ClusterDownError, TryAgainError)):
        return StateUnavailable("the Redis Cluster does not serve this slot for now")
    return StateUnavailable("Redis refused the command")
