"""Reads while a real cluster breaks: killed and hanging nodes, slots on the move, answers that come late."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import redis
from tests.servers.own import (
    SlotMove,
    busy,
    deadline,
    eventually,
    fill,
    hanging,
    primary_and_replica,
)
from tests.support.builders import a_topic
from tests.support.stopwatch import takes_about

from keylane import routing
from keylane.adapters.redis.cluster import Cluster
from keylane.adapters.redis.connections import Node
from keylane.adapters.redis.state import RedisState
from keylane.config.functions import redis_settings
from keylane.errors import StateUnavailable
from keylane.ports import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane_local.servers.redis_cluster import RedisCluster


@pytest.fixture
def state(breaking: RedisCluster) -> Iterator[RedisState]:
    state = a_state(breaking)
    yield state
    state.close()


def a_state(breaking: RedisCluster) -> RedisState:
    """A reader that has seen nothing yet but the slot map."""
    cluster = Cluster(redis_settings({"KEYLANE_REDIS_NODES": breaking.addresses}))
    eventually(lambda: cluster.refresh(deadline()) is None and len(cluster.nodes) == 6)
    return RedisState(cluster)


def filled(cluster: RedisCluster, count: int = 1) -> list[bytes]:
    """Keys of one slot; each holds its own name."""
    tag = a_topic()
    keys = [f"{{{tag}}}{number}".encode() for number in range(count)]
    fill(cluster.addresses, {key: key for key in keys})
    return keys


def ports_asked(state: RedisState, read: Callable[[], object], wanted: object) -> set[int]:
    """The nodes, by their ports, that a read asks which finds what is wanted."""
    asked: set[int] = set()
    send = state.cluster.send

    def watched(node: Node, *arguments: Any, **named: Any) -> Any:
        asked.add(node.port)
        return send(node, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state.cluster, "send", watched)
        assert read() == wanted
    return asked


def half_moved(cluster: RedisCluster) -> tuple[bytes, bytes, SlotMove]:
    """Two keys of a slot that migrates: one that is still here, one that has left; and the migration."""
    here, there = filled(cluster, 2)
    move = SlotMove(cluster, routing.key_slot(here))
    move.begin()
    move.move(there)
    return here, there, move


def test_two_primaries_that_are_lost_at_once_leave_every_shard_readable(
    breaking: RedisCluster, state: RedisState
):
    """No majority is left, so no replica is promoted, and the cluster counts as down."""
    slots = (0, 8_000, 16_000)
    keys = {slot: b"{%b}%b" % (routing.hash_tag(slot), a_topic().encode()) for slot in slots}
    fill(breaking.addresses, {key: key for key in keys.values()})
    # One after the other, without a look at the cluster between: a replica of the first could be promoted.
    for primary in [primary_and_replica(breaking, slot)[0] for slot in slots[:2]]:
        primary.kill()
    survivor = state.cluster.primary(slots[2])
    with redis.Redis(survivor.host, survivor.port) as client:
        eventually(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "fail")
    for slot, key in keys.items():
        assert state.read(slot, [key], deadline()) == [key]


def test_a_primary_that_is_busy_with_a_script_is_read_from_its_replica(
    breaking: RedisCluster, state: RedisState
):
    (key,) = filled(breaking)
    slot = routing.key_slot(key)
    calls = [Call(slot, (b"GET", key))]
    assert state.read(slot, [key], deadline()) == [key]
    primary, _ = primary_and_replica(breaking, slot)
    with busy(primary):
        assert state.read(slot, [key], deadline()) == [key]
        assert state.run(calls, deadline()) == [key]
    assert state.read(slot, [key], deadline(), primary_only=True) == [key]


def test_a_read_that_only_the_primary_may_answer_is_not_answered_by_its_replica(
    breaking: RedisCluster, state: RedisState
):
    (key,) = filled(breaking)
    slot = routing.key_slot(key)
    assert state.read(slot, [key], deadline(), primary_only=True) == [key]
    primary, _ = primary_and_replica(breaking, slot)
    with hanging(primary):
        with pytest.raises(StateUnavailable):
            state.read(slot, [key], deadline(300), primary_only=True)
        assert state.read(slot, [key], deadline()) == [key]
    assert state.read(slot, [key], deadline(), primary_only=True) == [key]


def test_calls_of_all_shards_are_answered_while_a_primary_hangs_or_is_dead(
    breaking: RedisCluster, state: RedisState
):
    keys = [filled(breaking)[0] for _ in range(12)]
    calls = [Call(routing.key_slot(key), (b"GET", key)) for key in keys]
    assert state.run(calls, deadline()) == keys
    primary, _ = primary_and_replica(breaking, calls[0].slot)
    with hanging(primary):
        assert state.run(calls, deadline()) == keys
        again = partial(ports_asked, state, lambda: state.run(calls, deadline()), keys)
        eventually(lambda: primary.port not in again())
    assert state.run(calls, deadline()) == keys
    primary.kill()
    assert state.run(calls, deadline()) == keys


def test_replies_of_a_call_that_failed_are_never_taken_for_the_next(
    breaking: RedisCluster, state: RedisState
):
    keys = [filled(breaking)[0] for _ in range(12)]
    calls = [Call(routing.key_slot(key), (b"GET", key)) for key in keys]
    state.run(calls, deadline())
    with pytest.raises(StateUnavailable):
        state.run([*calls, Call(calls[0].slot, (b"ZCARD", keys[0]))], deadline(2_000))
    assert state.run(calls, deadline()) == keys


def test_replica_without_its_primary_that_refuses_is_asked_until_it_is_promoted(
    breaking: RedisCluster, state: RedisState
):
    (key,) = filled(breaking)
    slot = routing.key_slot(key)
    primary, replica = primary_and_replica(breaking, slot)
    replica.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    try:
        primary.kill()
        assert state.read(slot, [key], deadline(20_000)) == [key]
    finally:
        replica.command("CONFIG", "SET", "replica-serve-stale-data", "yes")


def test_hanging_shard_is_state_unavailable_in_time_and_answers_never_cross(
    breaking: RedisCluster, state: RedisState
):
    keys = filled(breaking, 20)
    slot = routing.key_slot(keys[0])
    shard = primary_and_replica(breaking, slot)
    elsewhere = next(
        key
        for key in (filled(breaking)[0] for _ in range(50))
        if primary_and_replica(breaking, routing.key_slot(key)) != shard
    )
    assert state.read(slot, keys, deadline()) == keys
    with hanging(*shard):
        for key in keys[:3]:
            with takes_about(0.5), pytest.raises(StateUnavailable):
                state.read(slot, [key], deadline(500))
        assert state.read(routing.key_slot(elsewhere), [elsewhere], deadline()) == [elsewhere]
    for key in keys[3:]:
        assert state.read(slot, [key], deadline(5_000)) == [key]


def test_calls_of_many_slots_are_answered_while_one_moves_and_has_moved(
    breaking: RedisCluster, state: RedisState
):
    here, there = filled(breaking, 2)
    others = [filled(breaking)[0] for _ in range(6)]
    slot = routing.key_slot(here)
    calls = [Call(routing.key_slot(key), (b"GET", key)) for key in others]
    calls += [Call(slot, (b"GET", there)), Call(slot, (b"MGET", here, there)), Call(slot, (b"GET", here))]
    expected = [*others, there, [here, there], here]
    move = SlotMove(breaking, slot)
    assert state.run(calls, deadline()) == expected
    move.begin()
    move.move(there)
    assert state.run(calls, deadline()) == expected
    move.move(here)
    assert state.run(calls, deadline()) == expected
    move.finish()
    assert state.run(calls, deadline()) == expected
    assert _port(state, slot) == move.target.port
    assert state.run(calls, deadline()) == expected


def is_right_or_unavailable(read: Callable[[], list[bytes | None]], expected: list[bytes]) -> None:
    """Check a read that the hanging primary would have answered with a redirection.

    A replica of Valkey 8 knows of the migration, and redirects the reader itself.
    """
    with suppress(StateUnavailable):
        assert read() == expected


def test_replica_is_not_trusted_about_an_absent_key_by_a_reader_that_has_not_seen_the_migration(
    breaking: RedisCluster, state: RedisState
):
    """The primary hangs from the first read on, so nobody answers ASK."""
    here, there, move = half_moved(breaking)
    slot = move.slot
    absent = here + b"-absent"
    try:
        with hanging(move.source):
            for read in (lambda: state.read(slot, [there], deadline(500)), lambda: mget(state, there, 500)):
                is_right_or_unavailable(read, [there])
            assert state.read(slot, [here], deadline()) == [here]
    finally:
        move.undo()
    with closing(a_state(breaking)) as another, hanging(move.source):
        eventually(lambda: another.read(slot, [there, absent], deadline()) == [there, None])


def test_replica_is_believed_again_soon_after_a_migration_that_the_reader_has_met(
    breaking: RedisCluster, state: RedisState
):
    """All other shards say that they have no key of the slot: it need not be doubted for long."""
    here, there, move = half_moved(breaking)
    slot = move.slot
    absent = here + b"-absent"
    assert state.read(slot, [there], deadline()) == [there]
    move.undo()
    with hanging(move.source):
        for read in (lambda: state.read(slot, [absent], deadline()), lambda: mget(state, absent)):
            assert read() == [None]


@pytest.mark.parametrize("read", ["one", "many"])
def test_a_replica_that_was_asked_as_one_redirects_a_reader_that_takes_it_for_the_primary(
    breaking: RedisCluster, state: RedisState, read: str
):
    """As after a failover and back: its answer would count as the primary's, though it may lag behind."""
    (key,) = filled(breaking)
    slot = routing.key_slot(key)
    primary, replica = primary_and_replica(breaking, slot)
    values = (lambda: state.read(slot, [key], deadline())) if read == "one" else (lambda: mget(state, key))
    with hanging(primary):
        assert values() == [key]
    state.cluster.learn(slot, Node("127.0.0.1", replica.port))
    assert values() == [key]
    assert _port(state, slot) == primary.port


def test_absent_keys_of_many_slots_are_absent_while_a_primary_hangs(
    breaking: RedisCluster, state: RedisState
):
    """Other shards are asked whether they have keys of its slots, but not while they still owe replies."""
    keys = [filled(breaking)[0] for _ in range(12)]
    slots = [routing.key_slot(key) for key in keys]
    calls = [Call(slot, (b"MGET", key, key + b"-absent")) for slot, key in zip(slots, keys, strict=True)]
    expected = [[key, None] for key in keys]
    assert state.run(calls, deadline()) == expected
    for shard in range(3):
        with hanging(breaking.nodes[shard]):
            assert state.run(calls, deadline()) == expected
            assert state.run(calls, deadline()) == expected


def test_an_absent_key_is_absent_though_the_roles_have_changed_since_the_slot_map_was_read(
    breaking: RedisCluster, state: RedisState
):
    (key,) = filled(breaking)
    slot = routing.key_slot(key)
    primary, _ = primary_and_replica(breaking, slot)
    state.cluster.shards = tuple(shard[::-1] for shard in state.cluster.shards)
    with hanging(primary):
        assert state.read(slot, [key, key + b"-absent"], deadline()) == [key, None]


def mget(state: RedisState, key: bytes, timeout_ms: float = 5_000) -> list[bytes | None]:
    (values,) = state.run([Call(routing.key_slot(key), (b"MGET", key))], deadline(timeout_ms))
    return values


def test_key_that_has_left_to_a_node_that_hangs_is_unavailable_not_absent(
    breaking: RedisCluster, state: RedisState
):
    here, there, move = half_moved(breaking)
    slot = move.slot
    try:
        with hanging(move.target):
            with pytest.raises(StateUnavailable):
                state.read(slot, [there, here], deadline(500))
            again = partial(ports_asked, state, lambda: state.read(slot, [here], deadline()), [here])
            eventually(lambda: move.target.port not in again())
        assert state.read(slot, [there, here], deadline()) == [there, here]
    finally:
        move.undo()


def _port(state: RedisState, slot: int) -> int:
    return state.cluster.primary(slot).port
