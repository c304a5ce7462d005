"""The errors of Redis, as exceptions: its error replies by their codes, and those of connections.

Names and texts are redis-py's, which tools and tests use: without the code, where the code has a class of its
own. To import redis-py would take 90 of the 150 ms of CPU that a cold start takes.

    MOVED 3999 127.0.0.1:6381      MovedError
    LOADING Redis is loading ...   BusyLoadingError
    ERR unknown command ...        ResponseError, without ERR
    BUSY Redis is busy ...         ResponseError, as it is: a code that is not known here
"""


class RedisError(Exception):
    """Any error of Redis, or of a connection to it."""


class RedisConnectionError(RedisError):
    """There is no connection, or it broke."""


class RedisTimeoutError(RedisError):
    """The server did not answer in time."""


class InvalidResponse(RedisError):
    """Bytes that are not RESP, or more replies than commands."""


class AuthenticationError(RedisConnectionError):
    """The server wants other credentials, or some."""


class BusyLoadingError(RedisConnectionError):
    """The server still reads its data."""


class ResponseError(RedisError):
    """An error reply."""


class NoPermissionError(ResponseError):
    """The user may not run the command, or use the key."""


class NoScriptError(ResponseError):
    """The server does not have the script."""


class OutOfMemoryError(ResponseError):
    """The server is at `maxmemory`, and evicts nothing."""


class ExecAbortError(ResponseError):
    """A command of the transaction was refused when it was queued."""


class ReadOnlyError(ResponseError):
    """The server is a replica."""


class TryAgainError(ResponseError):
    """The slot is migrating, and the keys are on both nodes."""


class ClusterCrossSlotError(ResponseError):
    """The command's keys are in several slots."""


class ClusterDownError(ResponseError):
    """The cluster does not serve the slot, or none at all."""


class MasterDownError(ClusterDownError):
    """A replica without its primary, which does not serve what may be stale."""


class AskError(ResponseError):
    """The slot is migrating, and the key has left: ask `host`:`port`, this once."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for a text that is not a slot and an address."""
        super().__init__(text)
        slot, _, address = text.partition(" ")
        self.host, _, port = address.rpartition(":")
        self.port, self.slot_id = int(port), int(slot)


class MovedError(AskError):
    """The slot has another primary: send the command there, now and from now on."""


_CLASSES: dict[str, type[RedisError]] = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "CROSSSLOT": ClusterCrossSlotError,
    "EXECABORT": ExecAbortError,
    "LOADING": BusyLoadingError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "NOAUTH": AuthenticationError,
    "NOPERM": NoPermissionError,
    "NOSCRIPT": NoScriptError,
    "OOM": OutOfMemoryError,
    "READONLY": ReadOnlyError,
    "TRYAGAIN": TryAgainError,
    "WRONGPASS": AuthenticationError,
}
_PLAIN_CODE = "ERR"
_OF_PLAIN_CODE: tuple[tuple[str, type[RedisError]], ...] = (
    ("max number of clients reached", RedisConnectionError),
    ("invalid password", AuthenticationError),
    ("AUTH <password> called without any password", AuthenticationError),
    ("Client sent AUTH, but no password is set", AuthenticationError),
    ("Script attempted to access a non local key", TryAgainError),  # in a migrating slot
)
"""How texts behind ERR begin that have a class of their own."""


def parse_error(reply: str) -> RedisError:
    """Return an error reply as its exception."""
    code, _, text = reply.partition(" ")
    if code == _PLAIN_CODE:
        kinds = (kind for begin, kind in _OF_PLAIN_CODE if text.startswith(begin))
        return next(kinds, ResponseError)(text)
    kind = _CLASSES.get(code)
    if kind is None:
        return ResponseError(reply)
    try:
        return kind(text)
    except ValueError:  # a redirect that names no node
        return ResponseError(reply)
