"""Calls the function library: each call is repeated until it has its reply.

1. The call goes to the primary of its slot.
2. After a transient error (a broken connection, a node that moved, is loading or full, a migrating slot) the
   slot map is read again, and after a pause the call is sent again. A node without the library is sent it.
3. Once `retry_budget_s` is spent, the call raises StateUnavailable.
4. An error of the library's own is raised at once, as CallRefused: repeating would not help.

The names of the library and of its functions end in a hash of its source. So a call never runs another
version than the caller's, and the libraries of two versions stand side by side.
"""

import hashlib
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from keylane.adapters.redis.cluster import Cluster, Node
from keylane.adapters.redis.error_replies import OutOfMemoryError
from keylane.adapters.redis.errors import Remedy, remedy_for, translate_redis_errors
from keylane.adapters.redis.resp import encode_command
from keylane.errors import CorruptState, Fenced, KeylaneError, LaneBehind, StateUnavailable, StraysLost
from keylane.model.keys import printable
from keylane.ports import Clock, Deadline
from keylane_spark.lanes.option_arguments import lua_names

_FILES = ("watermark", "records", "writes", "fields", "merge", "lanes", "full", "layouts", "views", "removal")
"""The library's source, in this order: a file may use what those before it define, and `lua_names`."""


def named(source: bytes) -> tuple[str, bytes]:
    """The version of a library's source, 8 hexadecimal digits, and the code to load."""
    version = hashlib.sha256(source).hexdigest()[:8]
    return version, f"#!lua name=keylane_{version}\nlocal VERSION = '{version}'\n".encode() + source


_FOLDER = files(__package__).joinpath("library")
VERSION, CODE = named(lua_names() + b"".join(_FOLDER.joinpath(f"{name}.lua").read_bytes() for name in _FILES))
_NAMES = (
    "apply",
    "whole",
    "strays",
    "carry",
    "open",
    "gave",
    "mark",
    "epoch",
    "layout",
    "commit",
    "commit_rows",
)
APPLY, APPLY_UNLESS_LOST, STRAYS, CARRY, OPEN, GAVE, MARK, EPOCH, LAYOUT, COMMIT, COMMIT_ROWS = (
    f"keylane_{name}_{VERSION}".encode() for name in _NAMES
)
WHEN_FULL = {
    name: f"keylane_{kind}_full_{VERSION}".encode()
    for name, kind in ((APPLY, "apply"), (APPLY_UNLESS_LOST, "whole"), (STRAYS, "strays"))
}
"""The functions that do the same on a full node, unless the chunk needs more room than it gives free."""
RETIRE, REMOVE, FORGET = (f"keylane_{name}_{VERSION}".encode() for name in ("retire", "remove", "forget"))

FENCED, BEHIND, LOST, CORRUPT, WRONGTYPE = "FENCED", "BEHIND", "LOST", "CORRUPT", "WRONGTYPE"
"""The codes with which the library refuses a call; WRONGTYPE is Redis' own."""

_FIRST_PAUSE_S = 0.02
_LAST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How writes are retried, and how many replicas must have them.

    `attempt_timeout_s`: a node that is silent for longer counts as dead. `wait_replicas`: a write counts as
    durable once this many replicas of its shard have it, or `wait_ms` has passed; 0: at once.
    """

    retry_budget_s: float = 60.0
    attempt_timeout_s: float = 5.0
    wait_replicas: int = 0
    wait_ms: int = 1000


DEFAULTS = WriteOptions()


class CallRefused(Exception):
    """An error reply of the library: its code, and the rest of its text."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code} {detail}")
        self.code = code
        self.detail = detail

    def for_lane(self, lane: str, key: bytes, epoch: int, begin_offset: int = 0) -> KeylaneError:
        """The error to raise for a call of this epoch; `lane` and `key` name what it was about."""
        if self.code == FENCED:
            return Fenced(lane, epoch, int(self.detail))
        if self.code == BEHIND:
            next_offset = int(self.detail)
            return LaneBehind(lane, next_offset if next_offset >= 0 else None, begin_offset)
        if self.code == LOST:
            return StraysLost(lane)
        return CorruptState(printable(key), str(self))


def checked(reply: Any) -> Any:
    """Return a reply, raise an error reply: CallRefused where it is the library's own, else as it is."""
    if isinstance(reply, Exception):
        code, _, detail = str(reply).partition(" ")
        if code in (FENCED, BEHIND, LOST, CORRUPT, WRONGTYPE):
            raise CallRefused(code, detail) from reply
        raise reply
    return reply


def cause_of(error: Exception | None) -> Exception | None:
    """What a call met: the error of the client library, where StateUnavailable was made of one."""
    cause = error.__cause__ if isinstance(error, StateUnavailable) else None
    return cause if isinstance(cause, Exception) else error


def is_full(error: BaseException | None) -> bool:
    """Whether a node refused a call because it has reached `maxmemory`."""
    return isinstance(error, OutOfMemoryError)


@dataclass(slots=True, eq=False)
class FunctionLibrary:
    """Calls the library over one cluster. `notify` gets a sentence for each pause. Not thread-safe."""

    cluster: Cluster
    clock: Clock
    options: WriteOptions = DEFAULTS
    notify: Callable[[str], None] = lambda _: None

    def attempt(self) -> Deadline:
        """The deadline of one exchange that begins now."""
        return Deadline.after_ms(self.options.attempt_timeout_s * 1000, self.clock)

    def budget(self) -> Deadline:
        """The deadline of repeats that begin now."""
        return Deadline.after_ms(self.options.retry_budget_s * 1000, self.clock)

    def call(
        self,
        slot: int,
        packed: bytes,
        error: Exception | None = None,
        budget: Deadline | None = None,
        when_full: Callable[[], bytes] = lambda: b"",
    ) -> Any:
        """The reply to one encoded command, from the slot's primary.

        `error`: what an earlier attempt of the same call met. `budget`: until when the call is repeated,
        after a first attempt. `when_full`: what is sent at once where a full node refuses the command. Raises
        CallRefused, and StateUnavailable (from its cause) once the budget is spent.
        """
        budget = budget or self.budget()
        pause_s = _FIRST_PAUSE_S
        sent = packed
        if is_full(error) and (other := when_full()):
            sent, error = other, None
        while True:
            try:
                with translate_redis_errors():
                    if error is not None:
                        self._repair(slot, error)
                    primary = self.cluster.primary(slot)
                    (reply,) = self.cluster.roundtrip(primary, sent, 1, self.attempt())
                    return checked(reply)
            except StateUnavailable as unavailable:
                error = cause_of(unavailable) or unavailable
                if is_full(error) and sent is packed and (other := when_full()):
                    sent, error = other, None
                    continue
                sent = packed
                if budget.remaining_s <= 0:
                    spent = f"Redis accepted no writes for {self.options.retry_budget_s:.0f} s: {error}"
                    raise StateUnavailable(spent, 10) from error
                if remedy_for(error) is not Remedy.LOAD_CODE:
                    jitter = random.uniform(0.5, 1.0)  # noqa: S311
                    self.clock.pause_s(min(pause_s * jitter, budget.remaining_s))
                    pause_s = min(pause_s * 2, _LAST_PAUSE_S)

    def count_replicas(self, nodes: Collection[Node]) -> int:
        """How many replicas have all that was written over these connections; of each node, the fewest.

        Waits up to `wait_ms` for `wait_replicas` of them (Redis' WAIT), on all nodes at once. Raises
        StateUnavailable.
        """
        options = self.options
        packed = encode_command(b"WAIT", b"%d" % options.wait_replicas, b"%d" % options.wait_ms)
        limit_s = options.attempt_timeout_s + options.wait_ms / 1000
        limit = Deadline.after_ms(limit_s * 1000, self.clock)
        # WAIT counts the writes of its own connection, so a new connection would count none.
        asked = [node for node in nodes if self.cluster.is_connected(node)]
        try:
            with translate_redis_errors():
                for node in asked:
                    self.cluster.send(node, packed, limit)
                replies = [checked(self.cluster.receive_next(node, limit)) for node in asked]
        except BaseException:
            for node in asked:
                self.cluster.drop(node)
            raise
        return min(map(int, replies), default=options.wait_replicas)

    def _repair(self, slot: int, error: Exception) -> None:
        """Do what the error calls for before its call is repeated."""
        if remedy_for(error) is Remedy.LOAD_CODE:
            self._load(slot)
            return
        if self.cluster.nodes:
            self.notify(f"writes to Redis are delayed: {error}")
        self.cluster.refresh(self.attempt())

    def _load(self, slot: int) -> None:
        load = encode_command(b"FUNCTION", b"LOAD", b"REPLACE", CODE)
        self.cluster.execute(self.cluster.primary(slot), [load], self.attempt())
