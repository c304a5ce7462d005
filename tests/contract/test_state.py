"""The port State: one suite for the fake and for Redis Cluster."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.own import SlotMove, deadline, fill
from tests.support.builders import a_topic
from tests.support.fakes import FakeState

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.resp import encode_command
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.errors import StateUnavailable, TooLarge
from keylane.ports import Call

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


def add_members(held: Held, key: bytes, members: dict[bytes, float]) -> None:
    """Make a sorted set, in the fake or in Redis."""
    state, _ = held
    if isinstance(state, FakeState):
        state.sorted_sets[key] = members
        return
    slot = routing.key_slot(key)
    words = [word for member, score in members.items() for word in (b"%d" % score, member)]
    node = state.cluster.primary(slot) if state.cluster.nodes else None
    if node is None:
        state.hosts([slot], deadline())
        node = state.cluster.primary(slot)
    state.cluster.roundtrip(node, encode_command(b"ZADD", key, *words), 1, deadline())


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


def read(state: State, *keys: bytes, milliseconds: float = 5_000) -> list[bytes | None]:
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


def test_large_values_come_complete(held: Held, tag: bytes):
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


def test_keys_on_both_sides_of_a_migrating_slot_come_in_the_order_asked_for(in_motion: Moving, tag: bytes):
    stays, leaves, absent = tag + b"stays", tag + b"leaves", tag + b"absent"
    in_motion.put({stays: b"here", leaves: b"there"})
    in_motion.begin()
    in_motion.leave(leaves)
    assert read(in_motion.state, stays, absent, leaves) == [b"here", None, b"there"]
    assert read(in_motion.state, leaves, stays) == [b"there", b"here"]
    in_motion.leave(stays)
    assert read(in_motion.state, stays, absent, leaves) == [b"here", None, b"there"]


def test_absent_key_of_a_migrating_slot_is_none_at_once(in_motion: Moving, tag: bytes):
    in_motion.put({tag + b"mark": b"5"})
    in_motion.begin()
    assert read(in_motion.state, tag + b"absent", tag + b"mark") == [None, b"5"]
    assert read(in_motion.state, tag + b"absent") == [None]
    in_motion.leave(tag + b"mark")
    assert read(in_motion.state, tag + b"absent", tag + b"mark") == [None, b"5"]


def test_last_key_of_a_migrating_slot_is_read_before_the_others(in_motion: Moving, tag: bytes):
    """So a record written in between is in the value, and not yet below the watermark."""
    value, mark = tag + b"value", tag + b"mark"
    in_motion.put({value: b"old", mark: b"5"})
    in_motion.begin()
    in_motion.leave(value)
    in_motion.between(lambda: in_motion.put({value: b"new", mark: b"6"}))
    # On a busy machine the first attempt may be repeated: then both are of after the write.
    assert read(in_motion.state, value, mark) in ([b"new", b"5"], [b"new", b"6"])


def run(state: State, *calls: tuple[bytes, ...], milliseconds: float = 5_000) -> list[Any]:
    return state.run([Call(routing.key_slot(words[1]), words) for words in calls], deadline(milliseconds))


def test_replies_of_all_shards_come_in_the_calls_order(held: Held):
    state, put = held
    keys = [b"{%b}%b" % (routing.hash_tag(slot), a_topic().encode()) for slot in range(0, 16_384, 1_365)]
    put({key: key for key in keys})
    calls = [(b"GET", key) for key in keys] + [(b"MGET", key, key + b"absent") for key in reversed(keys)]
    assert run(state, *calls) == [*keys, *([key, None] for key in reversed(keys))]
    assert run(state) == []


def test_a_sorted_set_is_read_by_name_by_score_and_by_rank(held: Held, tag: bytes):
    state, _ = held
    add_members(held, tag, {b"a": 0, b"b": 0, b"c": 0})
    add_members(held, tag + b"h", {b"x": 1, b"y": 5, b"z": 5})
    limit = (b"LIMIT", b"0", b"2")
    assert run(
        state,
        (b"ZRANGEBYLEX", tag, b"[b", b"+", *limit),
        (b"ZRANGEBYLEX", tag, b"-", b"(c", b"LIMIT", b"1", b"9"),
        (b"ZRANGEBYLEX", tag + b"none", b"-", b"+", *limit),
        (b"ZREVRANGEBYSCORE", tag + b"h", b"5", b"-inf", *limit),
        (b"ZREVRANGEBYSCORE", tag + b"h", b"(5", b"1", *limit),
        (b"ZCARD", tag + b"h"),
        (b"ZCARD", tag + b"none"),
        (b"ZCOUNT", tag + b"h", b"5", b"+inf"),
        (b"ZCOUNT", tag + b"none", b"5", b"+inf"),
        (b"ZRANGE", tag + b"h", b"0", b"0"),
        (b"ZRANDMEMBER", tag + b"none", b"2"),
    ) == [[b"b", b"c"], [b"b"], [], [b"z", b"y"], [b"x"], 3, 0, 2, 0, [b"x"], []]


def test_some_members_of_a_sorted_set_and_the_memory_of_keys(held: Held, tag: bytes):
    state, put = held
    put({tag + b"1": b"value"})
    add_members(held, tag, {b"a": 0, b"b": 0})
    asked = [
        (b"ZRANDMEMBER", tag, b"5"),
        *((b"MEMORY", b"USAGE", tag + each) for each in (b"1", b"", b"none")),
    ]
    calls = [Call(routing.key_slot(tag), words) for words in asked]
    some, value, members, absent = state.run(calls, deadline())
    assert (sorted(some), absent) == ([b"a", b"b"], None)
    assert min(value, members) > 40


def test_part_of_a_value_and_a_hash_that_is_not_there_are_empty(held: Held, tag: bytes):
    state, put = held
    put({tag + b"1": b"value"})
    parts = run(
        state,
        *((b"GETRANGE", tag + number, b"0", b"1") for number in (b"1", b"2")),
        *((b"HGETALL", tag), (b"HMGET", tag, b"a", b"b")),
    )
    assert parts == [b"va", b"", [], [None, None]]


def test_calls_of_a_migrating_slot_are_answered_in_their_order(in_motion: Moving, tag: bytes):
    mark, value = tag + b"mark", tag + b"value"
    in_motion.put({mark: b"5", value: b"new"})
    in_motion.begin()
    in_motion.leave(mark)
    calls = ((b"GET", mark), (b"MGET", value, mark, tag + b"absent"), (b"GET", value), (b"GET", tag + b"no"))
    expected = [b"5", [b"new", b"5", None], b"new", None]
    assert run(in_motion.state, *calls) == expected
    in_motion.leave(value)
    assert run(in_motion.state, *calls) == expected


def test_an_atomic_call_is_not_answered_key_by_key(in_motion: Moving, tag: bytes):
    first, second = tag + b"1", tag + b"2"
    in_motion.put({first: b"one", second: b"two"})
    in_motion.begin()
    in_motion.leave(first)
    call = Call(routing.key_slot(tag), (b"MGET", first, second))
    assert in_motion.state.run([call], deadline()) == [[b"one", b"two"]]
    with pytest.raises(StateUnavailable):
        in_motion.state.run([call._replace(atomic=True)], deadline(300))


def test_run_after_its_deadline_is_state_unavailable(held: Held, tag: bytes):
    state, _ = held
    with pytest.raises(StateUnavailable):
        run(state, (b"GET", tag), milliseconds=0)
    assert run(state, (b"GET", tag)) == [None]


def test_every_slot_has_a_host(held: Held):
    state, _ = held
    hosts = state.hosts(range(0, 16_384, 1_365), deadline())
    assert len(set(hosts)) == 3
    assert all(host.rpartition(":")[2].isdigit() for host in hosts)


def test_more_than_can_be_held_is_too_large_and_no_harm_is_left(held: Held, tag: bytes):
    state, put = held
    put({tag + b"%d" % number: bytes(9 * 1024 * 1024) for number in range(4)})
    with pytest.raises(TooLarge):
        run(state, (b"MGET", *(tag + b"%d" % number for number in range(4))), milliseconds=10_000)
    assert run(state, (b"GET", tag)) == [None]
