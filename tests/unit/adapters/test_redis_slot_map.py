"""The conversation that reads the slot map of a Redis Cluster, and what the map says."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.conversations import (
    FIRST,
    FIRST_REPLICA,
    SECOND,
    SECOND_REPLICA,
    SLOTS_REPLY,
    Talk,
    a_deadline,
    a_slot_map,
    error_reply,
)
from tests.support.fakes import FakeTime

from keylane.adapters.redis.connections import RedisSettings
from keylane.adapters.redis.error_replies import AuthenticationError, RedisConnectionError, RedisTimeoutError
from keylane.adapters.redis.slot_map import SlotMap
from keylane.errors import StateUnavailable

BROKEN = RedisConnectionError("the connection broke")
LATE = RedisTimeoutError("the server did not answer in time")


def test_the_slot_map_lists_each_slots_nodes_and_the_primaries_once():
    slot_map = a_slot_map()
    assert slot_map.slots[0] == slot_map.slots[8191] == (FIRST, FIRST_REPLICA)
    assert slot_map.slots[8192] == slot_map.slots[16383] == (SECOND, SECOND_REPLICA)
    assert slot_map.primaries() == [FIRST, SECOND]
    assert slot_map.shards == ((FIRST, FIRST_REPLICA), (SECOND, SECOND_REPLICA))
    assert slot_map.nodes == (FIRST, FIRST_REPLICA, SECOND, SECOND_REPLICA)


@pytest.mark.parametrize(
    ("reply", "missing"), [(SLOTS_REPLY[1:], 0), (SLOTS_REPLY[:1], 8192), ([[1, 16383, [b"h", 1]]], 0)]
)
def test_primaries_are_unavailable_where_a_slot_has_none(reply: list[Any], missing: int):
    with pytest.raises(StateUnavailable, match=f"slot {missing}$"):
        a_slot_map(reply=reply).primaries()


def test_a_slot_map_that_was_never_read_has_no_primary():
    with pytest.raises(StateUnavailable, match=r"slot 0$"):
        SlotMap(RedisSettings(nodes=(FIRST,))).primaries()


def test_nodes_are_asked_for_the_slot_map_in_turn_and_share_the_time():
    slot_map = a_slot_map()
    time = FakeTime()
    talk = Talk(slot_map.read_again(a_deadline(800, time), FIRST_REPLICA))
    asked = []
    for outcome in (LATE, BROKEN, [error_reply(b"LOADING")], [SLOTS_REPLY[:1]]):
        asked.append((talk.step.node, round((talk.step.deadline.at_s - time.seconds) * 1000)))
        talk.say(outcome)
    assert talk.step is None
    assert asked[0] == (FIRST_REPLICA, 200)
    assert {node for node, _ in asked} == set(a_slot_map().nodes)
    assert [left_ms for _, left_ms in asked] == [200, 267, 400, 800]
    assert slot_map.nodes == (FIRST, FIRST_REPLICA)


def test_each_time_another_node_is_asked_first():
    slot_map = a_slot_map()
    first = [Talk(slot_map.read_again(a_deadline())).step.node for _ in range(4)]
    assert set(first) == set(slot_map.nodes)


def test_the_old_slot_map_stays_where_no_node_returns_one():
    slot_map = a_slot_map()
    talk = Talk(slot_map.read_again(a_deadline()))
    for outcome in (BROKEN, [[]], LATE):
        talk.say(outcome)
    last = error_reply(b"LOADING")
    with pytest.raises(StateUnavailable) as caught:
        talk.say([last])
    assert caught.value.__cause__ is last
    assert slot_map.primaries() == [FIRST, SECOND]


def test_rejected_credentials_are_the_error_of_the_slot_map():
    talk = Talk(SlotMap(RedisSettings(nodes=(FIRST,))).read_again(a_deadline()))
    with pytest.raises(AuthenticationError):
        talk.say(AuthenticationError("WRONGPASS"))
