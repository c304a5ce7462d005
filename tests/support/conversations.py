"""Conversations with Redis Cluster that a test holds by hand: no sockets, no servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hiredis
from tests.support.fakes import FakeTime

from keylane.adapters.redis.connections import Node, RedisSettings
from keylane.adapters.redis.resp import new_reader
from keylane.adapters.redis.slot_map import SlotMap
from keylane.ports import Deadline

if TYPE_CHECKING:
    from keylane.adapters.redis.conversation import Conversation

FIRST, SECOND = Node("h", 1), Node("h", 2)
"""The primaries: of slots 0 to 8191, and of the others."""
FIRST_REPLICA, SECOND_REPLICA = Node("h", 11), Node("h", 12)
SLOTS_REPLY = [
    [0, 8191, [b"h", 1, b"id"], [b"h", 11, b"id"]],
    [8192, 16383, [b"h", 2, b"id"], [b"h", 12, b"id"]],
]


class Talk:
    """A conversation under way. `step`: what it wants to be done; `result`: what it has returned."""

    def __init__(self, conversation: Conversation[Any]) -> None:
        self._conversation = conversation
        self.step: Any = None
        self.result: Any = None
        self.say(None)

    def say(self, outcome: Any) -> None:
        """Answer the step with what came of it, and take the next. Raises what the conversation raises."""
        try:
            self.step = self._conversation.send(outcome)
        except StopIteration as end:
            self.step, self.result = None, end.value


class CountingMeter:
    """How often each metric was counted."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


def a_slot_map(*connected: Node, reply: list[Any] = SLOTS_REPLY) -> SlotMap:
    """A slot map as a node returned it, with connections to some nodes."""
    slot_map = SlotMap(RedisSettings(nodes=(FIRST, SECOND)), CountingMeter())  # type: ignore[arg-type]
    talk = Talk(slot_map.read_again(a_deadline()))
    talk.say([reply])
    slot_map.meter = CountingMeter()  # type: ignore[assignment]
    slot_map.connections = dict.fromkeys(connected)
    return slot_map


def a_deadline(milliseconds: float = 900, time: FakeTime | None = None) -> Deadline:
    return Deadline.after_ms(milliseconds, (time or FakeTime()).clock)


def commands(packed: bytes) -> list[list[bytes]]:
    """The commands in what a step sends."""
    reader, found = hiredis.Reader(), []
    reader.feed(packed)
    while (words := reader.gets()) is not False:
        found.append(words)
    return found


def error_reply(line: bytes) -> Exception:
    """An error reply as the client's parser returns it."""
    reader = new_reader()
    reader.feed(b"-" + line + b"\r\n")
    error: Exception = reader.gets()
    return error
