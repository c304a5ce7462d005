"""How a client holds conversations, and the read that needs none, over a client that sends nothing."""

from __future__ import annotations

import socket
import weakref
from typing import Any

import pytest
from tests.support.conversations import (
    FIRST,
    FIRST_REPLICA,
    SECOND,
    SLOTS_REPLY,
    a_deadline,
    commands,
    error_reply,
)
from tests.support.fakes import FakeTime

from keylane.adapters.redis.cluster import ClusterClient, RedisSettings
from keylane.adapters.redis.connections import Connector, Node
from keylane.adapters.redis.conversation import Ask, Begin, Conversation, End, Refresh, Sleep
from keylane.adapters.redis.error_replies import RedisConnectionError, RedisTimeoutError, ResponseError
from keylane.adapters.redis.state import RedisState
from keylane.errors import StateUnavailable, TooLarge
from keylane.ports import Clock, Deadline

DEADLINE = a_deadline()
BROKEN = RedisConnectionError("the connection broke")
MAP = [SLOTS_REPLY]


class ScriptedClient(ClusterClient):
    """Answers what is sent, in its order, with `outcomes`; the slot map is read over them too."""

    def __init__(self, *outcomes: Any) -> None:
        super().__init__(RedisSettings(nodes=(FIRST,)))
        self.outcomes = list(outcomes)
        self.sent: list[tuple[Node, list[list[bytes]]]] = []
        self.abandoned: list[Node] = []
        self.dropped: list[Node] = []

    def send(self, node: Node, packed: bytes, deadline: Deadline, reply_count: int = 1) -> Node:  # noqa: ARG002
        self.sent.append((node, commands(packed)))
        self.connections[node] = None
        return node

    def receive(self, sent: Node, reply_count: int, deadline: Deadline) -> list[Any]:  # noqa: ARG002
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            del self.connections[sent]
            raise outcome
        found: list[Any] = outcome
        return found

    def abandon(self, sent: Node) -> None:
        self.abandoned.append(sent)

    def drop(self, node: Node) -> None:
        del self.connections[node]
        self.dropped.append(node)

    def close(self) -> None:
        """There is nothing to close."""


def ask(node: Node) -> Ask:
    return Ask(node, b"*1\r\n$4\r\nPING\r\n", 1, DEADLINE)


def test_each_step_is_done_and_what_came_of_it_is_sent():
    time = FakeTime()
    found = []

    def conversation() -> Conversation[str]:
        found.append((yield ask(FIRST)))
        found.append((yield ask(FIRST)))
        found.append((yield Sleep(0.5, time.clock)))
        found.append((yield Refresh(DEADLINE, SECOND)))
        found.append((yield Begin(*ask(SECOND))))
        found.append((yield End(SECOND, 1, DEADLINE)))
        return "over"

    client = ScriptedClient([b"PONG"], BROKEN, MAP, [b"PONG"])
    assert client.hold(conversation()) == "over"
    assert found == [[b"PONG"], BROKEN, None, None, None, [b"PONG"]]
    assert time.pauses == [0.5]
    assert [node for node, _ in client.sent] == [FIRST, FIRST, SECOND, SECOND]
    assert client.primaries() == [FIRST, SECOND]
    assert client.abandoned == []


def test_a_slot_map_that_nobody_returns_is_what_came_of_its_step():
    def conversation() -> Conversation[Any]:
        return (yield Refresh(DEADLINE))

    found = ScriptedClient(BROKEN).hold(conversation())
    assert isinstance(found, StateUnavailable)
    assert found.__cause__ is BROKEN


class Replies:
    """What a request has read: megabytes, perhaps."""


@pytest.mark.usefixtures("no_collector")
def test_an_error_that_a_conversation_goes_on_from_keeps_nothing_of_its_request():
    def conversation() -> Conversation[Any]:
        return repr((yield ask(FIRST)))

    def request(client: ScriptedClient) -> weakref.ref[Replies]:
        replies = Replies()
        assert "late" in client.hold(conversation())
        return weakref.ref(replies)

    assert request(ScriptedClient(RedisTimeoutError("late")))() is None


@pytest.mark.usefixtures("no_collector")
def test_a_read_that_goes_on_from_an_error_keeps_nothing_of_its_request():
    def request(client: ScriptedClient) -> weakref.ref[Replies]:
        replies = Replies()
        state = RedisState(client)
        state.read(5, [b"key"], a_deadline())
        assert state.read(5, [b"key"], a_deadline()) == [b"2"]
        return weakref.ref(replies)

    client = ScriptedClient(MAP, [[b"1"]], RedisTimeoutError("late"), [b"OK", [b"2"], b"OK"], MAP)
    assert request(client)() is None


def test_connections_to_nodes_that_the_slot_map_no_longer_has_are_closed():
    client = ScriptedClient(MAP, [SLOTS_REPLY[1:]])
    client.refresh(DEADLINE, FIRST)
    client.refresh(DEADLINE, FIRST)
    assert client.dropped == [FIRST]


def begin_two(error: Exception | None = None) -> Conversation[None]:
    """Send to two nodes, and read the replies of one."""
    yield Begin(*ask(FIRST))
    yield Begin(*ask(SECOND))
    yield End(FIRST, 1, DEADLINE)
    if error:
        raise error


@pytest.mark.parametrize(
    ("outcome", "error", "raised"),
    [
        ([b"PONG"], None, None),
        ([b"PONG"], ResponseError("ERR no"), StateUnavailable),
        ([b"PONG"], OSError("no"), StateUnavailable),
        (TooLarge("answer", 2, 1), None, TooLarge),
    ],
)
def test_replies_that_a_conversation_has_not_read_are_abandoned_however_it_ends(
    outcome: Any, error: Exception | None, raised: type[Exception] | None
):
    client = ScriptedClient(outcome)
    if raised is None:
        client.hold(begin_two())
    else:
        with pytest.raises(raised) as caught:
            client.hold(begin_two(error))
        assert caught.value.__cause__ is error
    assert client.abandoned == [SECOND]


def test_a_read_of_a_connected_primary_is_one_exchange():
    client = ScriptedClient(MAP, [[b"1"]], [[b"2"]])
    state = RedisState(client)
    assert state.read(5, [b"key"], a_deadline()) == [b"1"]
    assert state.read(5, [b"key"], a_deadline()) == [b"2"]
    assert client.sent[1:] == [(FIRST, [[b"MGET", b"key"]])] * 2


def test_an_answer_shows_that_the_node_is_healthy_though_another_request_had_doubts_meanwhile():
    client = ScriptedClient(MAP, [[b"1"]], [[b"2"]])
    state = RedisState(client)
    state.read(5, [b"key"], a_deadline())
    receive = client.receive

    def meanwhile(*arguments: Any) -> list[Any]:
        state._unhealthy[FIRST] = 1e9
        return receive(*arguments)

    client.receive = meanwhile  # type: ignore[method-assign]
    assert state.read(5, [b"key"], a_deadline()) == [b"2"]
    assert not state._unhealthy


@pytest.mark.parametrize("outcome", [RedisTimeoutError("late"), [error_reply(b"CLUSTERDOWN no")]])
def test_a_read_whose_primary_fails_goes_on_with_its_replica(outcome: Any):
    client = ScriptedClient(MAP, [[b"1"]], outcome, [b"OK", [b"2"], b"OK"], MAP)
    state = RedisState(client)
    state.read(5, [b"key"], a_deadline())
    assert state.read(5, [b"key"], a_deadline()) == [b"2"]
    as_replica = (FIRST_REPLICA, [[b"READONLY"], [b"MGET", b"key"], [b"READWRITE"]])
    assert client.sent[2:] == [
        (FIRST, [[b"MGET", b"key"]]),
        as_replica,
        (FIRST_REPLICA, [[b"CLUSTER", b"SLOTS"]]),
    ]


def test_a_read_that_can_not_succeed_is_unavailable_from_its_cause():
    wrong = error_reply(b"WRONGTYPE no")
    state = RedisState(ScriptedClient(MAP, [[b"1"]], [wrong]))
    state.read(5, [b"key"], a_deadline())
    with pytest.raises(StateUnavailable) as caught:
        state.read(5, [b"key"], a_deadline())
    assert caught.value.__cause__ is wrong


def test_a_name_whose_first_address_is_of_a_node_that_is_gone_is_connected_to_in_time(monkeypatch):
    """The first one accepts nothing: it must not take the time of the one that answers."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        socket.socket() as first,
        socket.create_server(("127.0.0.1", 0)) as live,
    ):
        first.connect(full.getsockname())
        addresses = [each.getsockname() for each in (full, live)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        node, deadline = Node("redis.test", 6379), Deadline.after_ms(1_000, Clock())
        wire = Connector(RedisSettings(nodes=(node,))).connect(node, deadline)
        assert wire.sock.getpeername() == live.getsockname()
        assert deadline.remaining_s > 0.2
        wire.disconnect()
