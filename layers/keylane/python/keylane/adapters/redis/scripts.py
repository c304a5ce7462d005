"""Small scripts that write, each on the primary of its key: of rate limits, and of idempotency keys.

They are no part of the library `keylane`: that is the writer's, and who may load it may replace it. A script
goes by its digest; a node that does not know it yet is sent its text, and keeps it.

A script whose reply got lost may have run, and is run again: each must bear that.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)

from keylane import routing
from keylane.adapters.redis.cluster import announced
from keylane.adapters.redis.replicas import ASKING
from keylane.adapters.redis.resp import encode_command, translate_redis_errors
from keylane.errors import StateUnavailable
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.adapters.redis.cluster import Cluster, Node

PASSING = (BusyLoadingError, ClusterDownError, ReadOnlyError, TryAgainError)
"""Replies that a newer map or a little patience may heal."""

FINAL = (AuthenticationError, NoPermissionError)
"""What no patience heals."""

PAUSE_S = 0.005
LATE_MS = 5.0
"""What an answer gets that may be there already, when another node has used up the time."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the digest by which servers know it."""

    text: bytes
    digest: bytes

    @classmethod
    def named(cls, name: str) -> Self:
        """Read it from the folder `scripts`."""
        text = files(__package__).joinpath("lua", f"{name}.lua").read_bytes()
        return cls(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


class Run(NamedTuple):
    """A script with its one key and its arguments."""

    script: Script
    key: bytes
    arguments: tuple[bytes, ...]


class Scripts:
    """Runs scripts, on all nodes at the same time. As its cluster: one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_map_old = True

    def home(self, key: bytes) -> Node | None:
        """The node that the key's script would be sent to, None where that isn't known."""
        return next(iter(self._cluster.copies(routing.key_slot(key))), None)

    @property
    def has_map(self) -> bool:
        """Whether the cluster was ever asked for its map."""
        return bool(self._cluster.nodes)

    def run(self, runs: Sequence[Run], deadline: Deadline) -> list[Any]:
        """Replies in the runs' order, StateUnavailable as a value where there was none by the deadline."""
        pending = _Pending(runs)
        pauses = 0
        while True:
            try:
                if self._is_map_old:
                    self._cluster.refresh(deadline)
                    self._is_map_old = False
                self._round(pending, deadline)
            except StateUnavailable as error:
                pending.replies = [error if n in pending.left else r for n, r in enumerate(pending.replies)]
                if isinstance(error.__cause__, FINAL):
                    return pending.replies
            if not pending.left or not deadline.remaining_s:
                return pending.replies
            if self._is_map_old:
                # The first time a connection may merely have been closed while nobody used it.
                deadline.clock.pause_s(min(PAUSE_S * min(pauses, 1), deadline.remaining_s))
                pauses += 1

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def _round(self, pending: _Pending, deadline: Deadline) -> None:
        """Send to all nodes, then take what they answer."""
        by_node: dict[Node, list[int]] = {}
        for number, redirected in pending.left.items():
            node = redirected or self.home(pending.runs[number].key)
            if node is None:
                self._is_map_old = True
            else:
                by_node.setdefault(node, []).append(number)
        unread: dict[Node, list[int]] = {}
        try:
            for node, numbers in by_node.items():
                with self._noted(pending, numbers):
                    self._cluster.send(node, b"".join(map(pending.packed, numbers)), deadline)
                    unread[node] = numbers
            while unread:
                node, numbers = unread.popitem()
                with self._noted(pending, numbers):
                    late = Deadline.after_ms(max(deadline.remaining_s * 1000, LATE_MS), deadline.clock)
                    count = sum(map(pending.reply_count, numbers))
                    self._take(pending, node, numbers, self._cluster.receive(node, count, late))
        finally:
            for node in unread:
                self._cluster.drop(node)

    @contextmanager
    def _noted(self, pending: _Pending, numbers: Sequence[int]) -> Iterator[None]:
        """What fails on the way is kept as the reply, and asked again with a newer map."""
        try:
            yield
        except (RedisError, OSError) as error:
            self._is_map_old = True
            for number in numbers:
                pending.left[number] = None
                pending.replies[number] = _unavailable(error)

    def _take(self, pending: _Pending, node: Node, numbers: Sequence[int], got: Sequence[Any]) -> None:
        begin = 0
        for number in numbers:
            begin += pending.reply_count(number)
            reply = got[begin - 1]  # behind ASKING's, where there is one
            run = pending.runs[number]
            pending.replies[number] = _unavailable(reply) if isinstance(reply, RedisError) else reply
            pending.left[number] = None
            if isinstance(reply, NoScriptError):
                pending.with_text.add(number)
            elif isinstance(reply, AskError):
                told = announced(reply.host, reply.port, node)
                if isinstance(reply, MovedError):
                    self._cluster.learn(routing.key_slot(run.key), told)
                else:
                    pending.left[number] = told
            elif isinstance(reply, PASSING):
                self._is_map_old = True
            else:
                del pending.left[number]


class _Pending:
    """What one call of `Scripts.run` still has to ask: `left` has the number of each run without a reply.

    Its value is the node that it was redirected to, None for its key's own.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.replies: list[Any] = [StateUnavailable("Redis did not answer in time") for _ in runs]
        self.left: dict[int, Node | None] = dict.fromkeys(range(len(runs)))
        self.with_text: set[int] = set()

    def packed(self, number: int) -> bytes:
        """The run as RESP."""
        script, key, arguments = self.runs[number]
        words = (b"EVAL", script.text) if number in self.with_text else (b"EVALSHA", script.digest)
        command = encode_command(*words, b"1", key, *arguments)
        return command if self.left[number] is None else ASKING + command

    def reply_count(self, number: int) -> int:
        """How many replies it has."""
        return 1 if self.left[number] is None else 2


def _unavailable(error: Exception) -> StateUnavailable:
    try:
        with translate_redis_errors():
            raise error
    except StateUnavailable as unavailable:
        return unavailable
