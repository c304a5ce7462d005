"""The port State: one suite for the fake and for Redis Cluster."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import a_topic
from tests.fakes import FakeState
from tests.servers import SlotMove, deadline, fill

from keylane import routing
from keylane.adapters.redis_cluster import Cluster
from keylane.adapters.redis_state import RedisState
from keylane.errors import StateUnavailable
from keylane.settings import redis_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane.ports import State

    Put = Callable[[dict[bytes, bytes]], None]
    Held = tuple[State, Put]


@dataclass
class Moving:
    """A state of which one slot moves from `begin` on: `leave` takes keys to the other side.

    `between` makes something happen after the first of several keys that are read one by one.
    """

    state: State
    put: Put
    begin: Callable[[], None]
    leave: Callable[..., None]
    between: Callable[[Callable[[], None]], None]


@pytest.fixture(params=["fake", pytest.param("redis", marks=pytest.mark.integration)])
def held(request: pytest.FixtureRequest) -> Iterator[Held]:
    """A state, and how to put something into it."""
    if request.param == "fake":
        fake = FakeState()
        yield fake, fake.entries.update
        return
    addresses = request.getfixturevalue("redis_cluster")
    state = RedisState(Cluster(redis_settings({"KEYLANE_REDIS_NODES": addresses})))
    yield state, lambda entries: fill(addresses, entries)
    state.close()


@pytest.fixture
def tag() -> bytes:
    """A hash tag of the test's own, between its braces."""
    return b"{%b}" % a_topic().encode()


@pytest.fixture(params=["fake", pytest.param("redis", marks=pytest.mark.integration)])
def in_motion(request: pytest.FixtureRequest, tag: bytes) -> Iterator[Moving]:
    """The slot of `tag`, which can be made to move."""
    slot = routing.key_slot(tag)
    if request.param == "fake":
        fake = FakeState()
        begin = partial(fake.moving.add, slot)
        yield Moving(fake, fake.entries.update, begin, lambda *_: None, partial(setattr, fake, "between"))
        return
    addresses = request.getfixturevalue("redis_cluster")
    cluster = Cluster(redis_settings({"KEYLANE_REDIS_NODES": addresses}))
    state = RedisState(cluster)
    move = SlotMove(request.getfixturevalue("cluster"), slot)
    yield Moving(
        state, partial(fill, addresses), move.begin, move.move, partial(after_the_first_value, cluster)
    )
    move.undo()
    state.close()


def after_the_first_value(cluster: Cluster, happens: Callable[[], None]) -> None:
    """Make it happen once, as soon as the client has read one key alone."""
    roundtrip = cluster.roundtrip

    def watched(*arguments: Any) -> list[Any]:
        replies = roundtrip(*arguments)
        if isinstance(replies[-1], list) and len(replies[-1]) == 1:
            cluster.roundtrip = roundtrip
            happens()
        return replies

    cluster.roundtrip = watched


def read(state: State, *keys: bytes, milliseconds: float = 2_000) -> list[bytes | None]:
    return state.read(routing.key_slot(keys[0]), keys, deadline(milliseconds))


def test_values_come_in_the_order_asked_for(held: Held, tag: bytes):
    state, put = held
    put({tag + b"1": b"one", tag + b"2": b"two", tag + b"3": b"three"})
    assert read(state, tag + b"3", tag + b"1", tag + b"2", tag + b"1") == [b"three", b"one", b"two", b"one"]


def test_absent_is_none_and_empty_is_empty(held: Held, tag: bytes):
    state, put = held
    put({tag + b"empty": b""})
    assert read(state, tag + b"absent", tag + b"empty") == [None, b""]


def test_any_bytes_are_keys_and_values(held: Held, tag: bytes):
    state, put = held
    every = bytes(range(256))
    put({tag + every: every[::-1]})
    assert read(state, tag + every) == [every[::-1]]


def test_large_values_come_whole(held: Held, tag: bytes):
    state, put = held
    value = bytes(range(256)) * 4_096
    put({tag + b"1": value, tag + b"2": value[1:]})
    assert read(state, tag + b"1", tag + b"2") == [value, value[1:]]


def test_every_slot_can_be_read(held: Held):
    state, put = held
    keys = [b"{%b}%b" % (routing.hash_tag(slot), a_topic().encode()) for slot in range(0, 16_384, 1_365)]
    put({key: key for key in keys})
    assert [read(state, key) for key in keys] == [[key] for key in keys]


def test_deadline_that_is_over_is_state_unavailable(held: Held, tag: bytes):
    state, _ = held
    with pytest.raises(StateUnavailable):
        read(state, tag + b"1", milliseconds=0)
    assert read(state, tag + b"1") == [None]


def test_keys_on_both_sides_of_a_moving_slot_come_in_the_order_asked_for(in_motion: Moving, tag: bytes):
    stays, leaves, absent = tag + b"stays", tag + b"leaves", tag + b"absent"
    in_motion.put({stays: b"here", leaves: b"there"})
    in_motion.begin()
    in_motion.leave(leaves)
    assert read(in_motion.state, stays, absent, leaves) == [b"here", None, b"there"]
    assert read(in_motion.state, leaves, stays) == [b"there", b"here"]
    in_motion.leave(stays)
    assert read(in_motion.state, stays, absent, leaves) == [b"here", None, b"there"]


def test_absent_key_of_a_moving_slot_is_none_at_once(in_motion: Moving, tag: bytes):
    in_motion.put({tag + b"mark": b"5"})
    in_motion.begin()
    assert read(in_motion.state, tag + b"absent", tag + b"mark", milliseconds=300) == [None, b"5"]
    assert read(in_motion.state, tag + b"absent", milliseconds=300) == [None]
    in_motion.leave(tag + b"mark")
    assert read(in_motion.state, tag + b"absent", tag + b"mark", milliseconds=300) == [None, b"5"]


def test_last_key_of_a_moving_slot_is_read_before_the_others(in_motion: Moving, tag: bytes):
    """So what is written in between is in the value, and not yet in the watermark that tells of it."""
    value, mark = tag + b"value", tag + b"mark"
    in_motion.put({value: b"old", mark: b"5"})
    in_motion.begin()
    in_motion.leave(value)
    in_motion.between(lambda: in_motion.put({value: b"new", mark: b"6"}))
    assert read(in_motion.state, value, mark) == [b"new", b"5"]
