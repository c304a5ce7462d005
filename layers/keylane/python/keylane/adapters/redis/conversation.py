"""Conversations with Redis Cluster: what to send, and what to make of the replies. No I/O.

A conversation is a generator that yields steps and returns its result. It is sent what came of each step: the
replies to an `Ask` or of an `End`, error replies among them, else None. Where a step failed, it is sent the
error: a RedisError or OSError, of `Refresh` a StateUnavailable. `cluster.ClusterClient.hold` performs the
steps: it blocks, or suspends a request of the server. A test sends what it likes.
"""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from keylane.adapters.redis.connections import Node
from keylane.ports import Clock, Deadline

T = TypeVar("T")


class Ask(NamedTuple):
    """Send encoded commands in one piece, and read all their replies."""

    node: Node
    packed: bytes
    reply_count: int
    deadline: Deadline


class Begin(Ask):
    """Send as `Ask` does, and do not wait: `End` reads the replies, unless this failed."""

    __slots__ = ()


class End(NamedTuple):
    """Read all replies to what `Begin` sent to the node."""

    node: Node
    reply_count: int
    deadline: Deadline


class Refresh(NamedTuple):
    """Read the slot map again, from the node `ask_first` if it answers."""

    deadline: Deadline
    ask_first: Node | None = None


class Sleep(NamedTuple):
    """Do nothing for a time."""

    seconds: float
    clock: Clock


Conversation: TypeAlias = Generator[Ask | Begin | End | Refresh | Sleep, Any, T]


class Answered(NamedTuple):
    """An `Ask` that was made before its conversation began, and what came of it."""

    asked: Ask
    outcome: list[Any] | Exception
