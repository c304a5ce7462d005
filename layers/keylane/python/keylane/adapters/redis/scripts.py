"""Runs small scripts that write, each on the primary of its key: rate limits and idempotency keys.

They are not in the function library `keylane`, which is the writer's: whoever may load a library may replace
it. A script is called by its digest; a node that does not know the digest is sent the text, and keeps it.

A script whose reply was lost may have run, and is run again: each script must tolerate that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from keylane import routing
from keylane.adapters.redis.conversation import Begin, End, Refresh, Sleep
from keylane.adapters.redis.error_replies import RedisError
from keylane.adapters.redis.errors import CREDENTIALS, Remedy, remedy_for, unavailable
from keylane.adapters.redis.resp import ASKING, encode_command
from keylane.adapters.redis.slot_map import announced
from keylane.errors import StateUnavailable
from keylane.ports import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.redis.cluster import ClusterClient
    from keylane.adapters.redis.connections import Node
    from keylane.adapters.redis.conversation import Conversation

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

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._is_map_stale = True

    def node_of(self, key: bytes) -> Node | None:
        """Return the node to which the key's script would be sent; None if it is not known."""
        return self._cluster.known_primary(routing.key_slot(key))

    def run(self, runs: Sequence[Run], deadline: Deadline) -> list[Any]:
        """Return the replies in the order of `runs`; a run without a reply has a StateUnavailable instead."""
        return self._cluster.hold(self.conversation(runs, deadline))

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def conversation(self, runs: Sequence[Run], deadline: Deadline) -> Conversation[list[Any]]:
        """As `run`: rounds in which all nodes work at once, until the deadline."""
        pending = [_PendingRun(run) for run in runs]
        left = pending
        pauses = 0
        while True:
            error = (yield Refresh(deadline)) if self._is_map_stale else None
            if error is None:
                self._is_map_stale = False
                yield from self._round(left, deadline)
                left = [each for each in left if not each.is_over]
            else:
                for each in left:
                    each.reply = error
            if not left or not deadline.remaining_s or (error and isinstance(error.__cause__, CREDENTIALS)):
                return [each.reply for each in pending]
            if self._is_map_stale:
                # No pause the first time: an idle connection may merely have been closed.
                yield Sleep(min(PAUSE_S * min(pauses, 1), deadline.remaining_s), deadline.clock)
                pauses += 1

    def _round(self, left: Sequence[_PendingRun], deadline: Deadline) -> Conversation[None]:
        """Send to all nodes, then read their replies."""
        by_node: dict[Node, list[_PendingRun]] = {}
        for each in left:
            node = each.redirected or self.node_of(each.run.key)
            if node is None:
                self._is_map_stale = True
            else:
                by_node.setdefault(node, []).append(each)
        sent: dict[Node, int] = {}
        for node, asked in by_node.items():
            commands = [command for each in asked for command in each.commands()]
            error = yield Begin(node, b"".join(commands), len(commands), deadline)
            if error:
                self._note_failure(asked, error)
            else:
                sent[node] = len(commands)
        for node, count in sent.items():
            late = Deadline.after_ms(max(deadline.remaining_s * 1000, LATE_MS), deadline.clock)
            found = yield End(node, count, late)
            if isinstance(found, Exception):
                self._note_failure(by_node[node], found)
            else:
                self._take(node, by_node[node], found)

    def _note_failure(self, asked: Sequence[_PendingRun], error: Exception) -> None:
        """Keep an error as the provisional reply; its scripts are run again with a new slot map."""
        self._is_map_stale = True
        for each in asked:
            each.fail(error)

    def _take(self, node: Node, asked: Sequence[_PendingRun], found: Sequence[Any]) -> None:
        replies = iter(found)
        for each in asked:
            if each.redirected:
                next(replies)  # to ASKING
            reply = next(replies)
            if not isinstance(reply, RedisError):
                each.reply, each.is_over = reply, True
                continue
            each.fail(reply)
            match remedy_for(reply):
                case Remedy.LOAD_CODE:
                    each.with_text = True
                case Remedy.FOLLOW_MOVED:
                    slot = routing.key_slot(each.run.key)
                    self._cluster.learn(slot, announced(reply.host, reply.port, node))  # type: ignore[attr-defined]
                case Remedy.FOLLOW_ASK:
                    each.redirected = announced(reply.host, reply.port, node)  # type: ignore[attr-defined]
                case Remedy.SPLIT | Remedy.RETRY:
                    self._is_map_stale = True
                case Remedy.NONE:
                    each.is_over = True


class _PendingRun:
    """A run, and its reply so far.

    `redirected`: the node that an ASK named, None for the primary of the key's slot. `with_text`: whether the
    node lacks the script, so that its text is sent.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.reply: Any = StateUnavailable("Redis did not answer in time")
        self.is_over = self.with_text = False
        self.redirected: Node | None = None

    def commands(self) -> list[bytes]:
        """The run as RESP; the last command's reply is its own."""
        script, key, arguments = self.run
        words = (b"EVAL", script.text) if self.with_text else (b"EVALSHA", script.digest)
        command = encode_command(*words, b"1", key, *arguments)
        return [ASKING, command] if self.redirected else [command]

    def fail(self, error: Exception) -> None:
        """Keep an error as the provisional reply, and forget a redirect."""
        self.redirected = None
        self.reply = unavailable(error)
        self.reply.__cause__ = error
