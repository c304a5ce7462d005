"""Runs small scripts that write, each on the primary of its key: rate limits and idempotency keys.

They are not in the function library `keylane`, which is the writer's: whoever may load a library may replace
it. A script is called by its digest; a node that does not know the digest is sent the text, and keeps it.

A script whose reply was lost may have run, and is run again: each script must tolerate that.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from redis.exceptions import RedisError

from keylane import routing
from keylane.adapters.redis.errors import CREDENTIALS, Remedy, remedy_for, unavailable
from keylane.adapters.redis.resp import ASKING, encode_command
from keylane.adapters.redis.slot_map import announced
from keylane.errors import StateUnavailable
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keylane.adapters.redis.connections import Node
    from keylane.adapters.redis.slot_map import SlotMap

PAUSE_S = 0.005
LATE_MS = 5.0
"""The time for a reply that may have arrived already, when other nodes have used up the deadline."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the digest by which servers know it."""

    text: bytes
    digest: bytes

    @classmethod
    def named(cls, name: str) -> Self:
        """Read it from the folder `lua`."""
        text = files(__package__).joinpath("lua", f"{name}.lua").read_bytes()
        return cls(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


class Run(NamedTuple):
    """A script with its one key and its arguments."""

    script: Script
    key: bytes
    arguments: tuple[bytes, ...]


class Scripts:
    """Runs scripts on all nodes at the same time. Like its cluster, not thread-safe."""

    def __init__(self, cluster: SlotMap) -> None:
        self._cluster = cluster
        self._is_map_stale = True

    def node_of(self, key: bytes) -> Node | None:
        """Return the node to which the key's script would be sent; None if it is not known."""
        return self._cluster.known_primary(routing.key_slot(key))

    def run(self, runs: Sequence[Run], deadline: Deadline) -> list[Any]:
        """Return the replies in the order of `runs`; a run without a reply has a StateUnavailable instead."""
        pending = _Pending(runs)
        pauses = 0
        while True:
            try:
                if self._is_map_stale:
                    self._cluster.refresh(deadline)
                    self._is_map_stale = False
                self._run_round(pending, deadline)
            except StateUnavailable as error:
                pending.replies = [error if n in pending.left else r for n, r in enumerate(pending.replies)]
                if isinstance(error.__cause__, CREDENTIALS):
                    return pending.replies
            if not pending.left or not deadline.remaining_s:
                return pending.replies
            if self._is_map_stale:
                # No pause the first time: an idle connection may merely have been closed.
                deadline.clock.pause_s(min(PAUSE_S * min(pauses, 1), deadline.remaining_s))
                pauses += 1

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def _run_round(self, pending: _Pending, deadline: Deadline) -> None:
        """Send to all nodes, then read their replies."""
        by_node: dict[Node, list[int]] = {}
        for number, redirected in pending.left.items():
            node = redirected or self.node_of(pending.runs[number].key)
            if node is None:
                self._is_map_stale = True
            else:
                by_node.setdefault(node, []).append(number)
        unread: dict[Node, list[int]] = {}
        try:
            for node, numbers in by_node.items():
                with self._note_failure(pending, numbers):
                    count = sum(map(pending.reply_count, numbers))
                    self._cluster.send(node, b"".join(map(pending.packed, numbers)), deadline, count)
                    unread[node] = numbers
            while unread:
                node, numbers = unread.popitem()
                with self._note_failure(pending, numbers):
                    late = Deadline.after_ms(max(deadline.remaining_s * 1000, LATE_MS), deadline.clock)
                    count = sum(map(pending.reply_count, numbers))
                    self._take(pending, node, numbers, self._cluster.receive(node, count, late))
        finally:
            for node in unread:
                self._cluster.abandon(node)

    @contextmanager
    def _note_failure(self, pending: _Pending, numbers: Sequence[int]) -> Iterator[None]:
        """Keep an error as the provisional reply; its scripts are run again with a new slot map."""
        try:
            yield
        except (RedisError, OSError) as error:
            self._is_map_stale = True
            for number in numbers:
                pending.left[number] = None
                pending.replies[number] = _reply_of(error)

    def _take(self, pending: _Pending, node: Node, numbers: Sequence[int], found: Sequence[Any]) -> None:
        begin = 0
        for number in numbers:
            begin += pending.reply_count(number)
            reply = found[begin - 1]  # after ASKING's, where there is one
            pending.left[number] = None
            if not isinstance(reply, RedisError):
                pending.replies[number] = reply
                del pending.left[number]
                continue
            pending.replies[number] = _reply_of(reply)
            match remedy_for(reply):
                case Remedy.LOAD_CODE:
                    pending.with_text.add(number)
                case Remedy.FOLLOW_MOVED:
                    slot = routing.key_slot(pending.runs[number].key)
                    self._cluster.learn(slot, announced(reply.host, reply.port, node))  # type: ignore[attr-defined]
                case Remedy.FOLLOW_ASK:
                    pending.left[number] = announced(reply.host, reply.port, node)  # type: ignore[attr-defined]
                case Remedy.SPLIT | Remedy.RETRY:
                    self._is_map_stale = True
                case Remedy.NONE:
                    del pending.left[number]


class _Pending:
    """The progress of one call of `Scripts.run`.

    `replies`: one for each run. `left`: the index of each run that still needs a reply -> the node to send it
    to: the node that an ASK named, or None for the primary of the key's slot. `with_text`: indexes of runs
    whose script the node lacks, so that its text is sent.
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
        """How many replies the run has."""
        return 1 if self.left[number] is None else 2


def _reply_of(error: Exception) -> StateUnavailable:
    translated = unavailable(error)
    translated.__cause__ = error
    return translated
