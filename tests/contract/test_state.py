"""The port State: one suite for the fake and for Redis Cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.builders import a_topic
from tests.fakes import FakeState
from tests.servers import deadline, fill

from keylane import routing
from keylane.adapters.redis_cluster import Cluster
from keylane.adapters.redis_state import RedisState
from keylane.errors import StateUnavailable
from keylane.settings import redis_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane.ports import State

    Held = tuple[State, Callable[[dict[bytes, bytes]], None]]


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
