"""What is asked of Redis Cluster and what each reply means, without a server: the reads of one slot."""

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
    commands,
    error_reply,
)
from tests.support.fakes import FakeTime

from keylane.adapters.redis.connections import Node, RedisSettings
from keylane.adapters.redis.conversation import Answered, Ask, Refresh, Sleep
from keylane.adapters.redis.error_replies import (
    AuthenticationError,
    RedisConnectionError,
    RedisTimeoutError,
    ResponseError,
)
from keylane.adapters.redis.replicas import (
    MIGRATING_FOR_S,
    PAUSE_S,
    SETTLED_AFTER_S,
    UNHEALTHY_FOR_S,
    SlotReader,
)
from keylane.adapters.redis.slot_map import SlotMap
from keylane.errors import StateUnavailable
from keylane.ports import Call

SLOT = 5
OTHER = Node("other", 9)
READ = Call(SLOT, (b"MGET", b"value", b"mark"))
MGET = [b"MGET", b"value", b"mark"]
VALUES = [b"1", b"2"]
BROKEN = RedisConnectionError("the connection broke")
LATE = RedisTimeoutError("the server did not answer in time")


class Reading:
    """A read of READ by a reader with connections to some nodes."""

    def __init__(
        self, *connected: Node, milliseconds: float = 900, call: Call = READ, **options: Any
    ) -> None:
        self.time = FakeTime()
        self.slot_map = a_slot_map(*connected)
        self.reader = SlotReader(self.slot_map)
        self.deadline = a_deadline(milliseconds, self.time)
        self.talk = Talk(self.reader.read_slot([call], self.deadline, **options))

    def again(self, call: Call = READ, **options: Any) -> Talk:
        """Begin another read by the same reader."""
        return Talk(self.reader.read_slot([call], a_deadline(900, self.time), **options))


def sent(talk: Talk) -> tuple[Node, list[list[bytes]]]:
    """Where the step sends what."""
    assert isinstance(talk.step, Ask), talk.step
    return talk.step.node, commands(talk.step.packed)


def as_replica(*words: bytes) -> list[list[bytes]]:
    return [[b"READONLY"], list(words), [b"READWRITE"]]


# What is asked where nothing is wrong.


def test_a_connected_primary_is_asked_once_and_has_a_tenth_of_a_second():
    time = FakeTime()
    reader = SlotReader(a_slot_map(FIRST))
    asked = reader.ask_primary(SLOT, READ.words, a_deadline(900, time))
    assert asked is not None
    assert (asked.node, commands(asked.packed), asked.reply_count) == (FIRST, [MGET], 1)
    assert asked.deadline.at_s == pytest.approx(time.seconds + 0.1)


def test_a_primary_without_a_replica_has_a_third_of_the_time():
    time = FakeTime()
    reader = SlotReader(a_slot_map(FIRST, reply=[[0, 16383, [b"h", 1]]]))
    asked = reader.ask_primary(SLOT, READ.words, a_deadline(900, time))
    assert asked is not None
    assert asked.deadline.at_s == pytest.approx(time.seconds + 0.3)


def test_a_primary_that_is_not_connected_has_a_third_of_the_time_and_each_further_command_a_millisecond():
    assert Reading().talk.step.deadline.remaining_s == pytest.approx(0.3)
    reading = Reading(FIRST)
    talk = Talk(reading.reader.read_slot([READ] * 11, reading.deadline))
    assert talk.step.deadline.remaining_s == pytest.approx(0.11)


def test_nothing_is_asked_ahead_of_a_primary_that_is_unknown_unconnected_or_unhealthy():
    deadline = a_deadline()
    assert (
        SlotReader(a_slot_map(FIRST, reply=SLOTS_REPLY[1:])).ask_primary(SLOT, READ.words, deadline) is None
    )
    assert SlotReader(a_slot_map(SECOND)).ask_primary(SLOT, READ.words, deadline) is None
    reading = Reading(FIRST)
    reading.talk.say(LATE)
    assert reading.reader.ask_primary(SLOT, READ.words, deadline) is None


# One slot.


def test_the_first_nodes_reply_is_the_answer():
    reading = Reading(FIRST)
    assert sent(reading.talk) == (FIRST, [MGET])
    reading.talk.say([VALUES])
    assert reading.talk.result == [VALUES]
    assert reading.slot_map.meter.counts == {}


def test_a_reader_without_a_slot_map_reads_it_first_and_raises_why_it_can_not():
    reader = SlotReader(SlotMap(RedisSettings(nodes=(FIRST,))))
    deadline = a_deadline()
    talk = Talk(reader.read_slot([READ], deadline))
    assert talk.step == Refresh(deadline)
    with pytest.raises(StateUnavailable, match="no node"):
        talk.say(StateUnavailable("no node"))


@pytest.mark.parametrize("failure", [LATE, BROKEN, [error_reply(b"CLUSTERDOWN")], [error_reply(b"LOADING")]])
def test_a_primary_that_fails_is_unhealthy_and_its_replica_answers_as_one(failure: Any):
    reading = Reading(FIRST_REPLICA)
    talk = reading.talk
    talk.say(failure)
    assert sent(talk) == (FIRST_REPLICA, as_replica(*MGET))
    assert talk.step.reply_count == 3
    talk.say([b"OK", VALUES, b"OK"])
    assert isinstance(talk.step, Refresh)
    assert talk.step.ask_first == FIRST_REPLICA
    assert talk.step.deadline.remaining_s == pytest.approx(0.05)
    talk.say(StateUnavailable("this read does not depend on it"))
    assert talk.result == [VALUES]
    assert reading.slot_map.meter.counts == {"NodeFailures": 1}
    assert sent(reading.again())[0] == FIRST_REPLICA
    reading.time.move(UNHEALTHY_FOR_S)
    assert sent(reading.again())[0] == FIRST


def test_a_node_that_answers_is_healthy_again():
    reading = Reading(FIRST, FIRST_REPLICA)
    reading.talk.say(LATE)
    reading.time.move(UNHEALTHY_FOR_S)
    talk = reading.again()
    talk.say([VALUES])
    assert talk.result == [VALUES]
    assert reading.reader.ask_primary(SLOT, READ.words, a_deadline()) is not None


def test_an_unhealthy_node_has_little_time_while_another_one_is_healthy():
    reading = Reading(FIRST, FIRST_REPLICA)
    reading.talk.say(LATE)
    reading.time.move(UNHEALTHY_FOR_S)
    talk = reading.again()
    assert talk.step.node == FIRST
    assert talk.step.deadline.remaining_s == pytest.approx(0.05)


def test_an_open_connection_that_was_closed_is_made_again_at_once_and_the_node_stays_healthy():
    reading = Reading(FIRST)
    first = reading.talk.step
    reading.slot_map.connections.clear()
    reading.talk.say(BROKEN)
    assert reading.talk.step == first
    reading.talk.say([VALUES])
    assert reading.talk.result == [VALUES]
    assert reading.slot_map.meter.counts == {}


def test_a_connection_that_breaks_twice_or_was_new_counts_as_a_failure():
    twice = Reading(FIRST)
    twice.talk.say(BROKEN)
    twice.talk.say(BROKEN)
    new = Reading()
    new.talk.say(BROKEN)
    for reading in (twice, new):
        assert sent(reading.talk)[0] == FIRST_REPLICA
        assert reading.slot_map.meter.counts == {"NodeFailures": 1}


def test_moved_is_followed_with_a_new_slot_map_and_learned():
    reading = Reading(FIRST)
    talk = reading.talk
    attempt = talk.step.deadline
    talk.say([error_reply(b"MOVED 5 other:9")])
    assert isinstance(talk.step, Refresh)
    assert talk.step.ask_first == OTHER
    talk.say(None)
    assert sent(talk) == (OTHER, [MGET])
    assert talk.step.deadline == attempt
    talk.say([VALUES])
    assert talk.result == [VALUES]
    assert reading.slot_map.slots[SLOT] == (OTHER, FIRST, FIRST_REPLICA)
    assert sent(reading.again()) == (OTHER, [MGET])


def test_ask_is_followed_this_once_and_names_the_asked_host_where_it_names_none():
    reading = Reading(FIRST)
    talk = reading.talk
    talk.say([error_reply(b"ASK 5 :9")])
    assert sent(talk) == (Node("h", 9), [[b"ASKING"], MGET])
    talk.say([b"OK", VALUES])
    assert talk.result == [VALUES]
    assert sent(reading.again()) == (FIRST, [MGET])


def test_keys_on_both_sides_are_read_one_by_one_the_last_one_first_each_where_it_is():
    talk = Reading(FIRST).talk
    talk.say([error_reply(b"TRYAGAIN")])
    assert sent(talk) == (FIRST, [[b"MGET", b"mark"]])
    talk.say([[b"2"]])
    assert sent(talk) == (FIRST, [[b"MGET", b"value"]])
    talk.say([error_reply(b"ASK 5 other:9")])
    assert sent(talk) == (OTHER, [[b"ASKING"], [b"MGET", b"value"]])
    talk.say([b"OK", [b"1"]])
    assert talk.result == [VALUES]


@pytest.mark.parametrize("call", [READ._replace(atomic=True), Call(SLOT, (b"HMGET", b"value", b"field"))])
def test_a_command_that_must_not_be_split_is_tried_elsewhere_instead(call: Call):
    reading = Reading(FIRST, call=call)
    reading.talk.say([error_reply(b"TRYAGAIN")])
    assert sent(reading.talk) == (FIRST_REPLICA, as_replica(*call.words))


@pytest.mark.parametrize("line", [b"NOPERM no", b"WRONGTYPE no", b"ERR unknown command", b"NOSCRIPT no"])
def test_an_error_that_will_not_pass_is_raised_at_once(line: bytes):
    reading = Reading(FIRST)
    with pytest.raises(ResponseError):
        reading.talk.say([error_reply(line)])
    assert reading.slot_map.meter.counts == {}


def test_a_busy_primary_s_replica_is_asked_and_then_asked_first():
    reading = Reading(FIRST, FIRST_REPLICA)
    reading.talk.say([error_reply(b"BUSY Redis is busy running a script.")])
    assert sent(reading.talk) == (FIRST_REPLICA, as_replica(*MGET))
    assert sent(reading.again()) == (FIRST_REPLICA, as_replica(*MGET))


def test_rejected_credentials_are_raised_at_once():
    with pytest.raises(AuthenticationError):
        Reading().talk.say(AuthenticationError("WRONGPASS"))


def test_all_nodes_are_tried_again_after_a_pause_until_the_deadline_raises_the_last_error():
    reading = Reading(FIRST, FIRST_REPLICA, milliseconds=15)
    talk, time = reading.talk, reading.time
    last = RedisTimeoutError("the replica's")
    talk.say(LATE)
    talk.say(last)
    assert talk.step == Sleep(PAUSE_S, reading.deadline.clock)
    time.move(PAUSE_S)
    talk.say(None)
    assert talk.step == Refresh(reading.deadline)
    talk.say(StateUnavailable("nobody answers"))
    assert sent(talk)[0] == FIRST
    talk.say(LATE)
    talk.say(last)
    assert talk.step.seconds == pytest.approx(0.005)
    time.move(0.005)
    talk.say(None)
    with pytest.raises(RedisTimeoutError) as caught:
        talk.say(None)
    assert caught.value is last


def test_a_slot_that_no_node_serves_is_unavailable_at_the_deadline():
    time = FakeTime()
    reader = SlotReader(a_slot_map(reply=SLOTS_REPLY[1:]))
    talk = Talk(reader.read_slot([READ], a_deadline(10, time)))
    time.move(0.01)
    talk.say(None)
    with pytest.raises(StateUnavailable, match="slot 5"):
        talk.say(None)


def test_a_read_that_only_the_primary_may_answer_does_not_ask_its_replica():
    talk = Reading(FIRST, FIRST_REPLICA, primary_only=True).talk
    talk.say(LATE)
    assert isinstance(talk.step, Sleep)


# A replica that lacks a key.


def doubtful() -> Reading:
    """A read whose replica has answered that a key is absent."""
    reading = Reading(FIRST_REPLICA)
    reading.talk.say(LATE)
    reading.talk.say([b"OK", [None, b"2"], b"OK"])
    assert sent(reading.talk) == (SECOND, [[b"CLUSTER", b"COUNTKEYSINSLOT", b"5"]])
    assert reading.talk.step.deadline.remaining_s == pytest.approx(0.05)
    return reading


def is_believed(reading: Reading) -> bool:
    """Whether the read has the replica's answer, or goes on with the next node."""
    talk = reading.talk
    if isinstance(talk.step, Refresh):
        talk.say(None)
    return bool(talk.result == [[None, b"2"]])


def test_it_is_believed_where_no_other_shard_has_keys_of_the_slot():
    reading = doubtful()
    reading.talk.say([0])
    assert is_believed(reading)


def test_it_is_not_believed_where_another_shard_has_some():
    reading = doubtful()
    reading.talk.say([3])
    assert not is_believed(reading)


def test_a_replica_that_has_none_proves_nothing_and_one_that_has_some_does():
    for count in (0, 3):
        reading = doubtful()
        reading.talk.say(LATE)
        assert sent(reading.talk)[0] == SECOND_REPLICA
        reading.talk.say([count])
        assert is_believed(reading) == (count == 0)  # no migration was seen, so it need not be doubted


@pytest.mark.parametrize("sign", [b"ASK 5 other:9", b"TRYAGAIN", b""])
def test_asks_and_split_keys_and_keys_elsewhere_are_signs_of_a_migration(sign: bytes):
    reading = Reading(FIRST) if sign else doubtful()
    reading.talk.say([error_reply(sign)] if sign else [3])
    reading.slot_map.connections[FIRST_REPLICA] = None
    reading.talk = reading.again()
    if sign:
        reading.talk.say(LATE)
    reading.talk.say([b"OK", [None, b"2"], b"OK"])
    reading.talk.say([0])
    assert not is_believed(reading)


@pytest.mark.parametrize(
    ("outcomes", "doubted_s"),
    [
        ([[0]], SETTLED_AFTER_S),
        ([LATE, BROKEN], MIGRATING_FOR_S),
        ([[error_reply(b"ERR no")], [0]], MIGRATING_FOR_S),
    ],
)
def test_a_migration_that_was_seen_is_doubted_the_longer_if_a_shard_does_not_answer(
    outcomes: list[Any], doubted_s: float
):
    for after_s, believed in ((doubted_s - 0.01, False), (doubted_s + 0.01, True)):
        reading = Reading(FIRST)
        reading.talk.say([error_reply(b"ASK 5 other:9")])
        reading.time.move(after_s)
        reading.slot_map.connections[FIRST_REPLICA] = None
        reading.talk = reading.again()
        reading.talk.say(LATE)
        reading.talk.say([b"OK", [None, b"2"], b"OK"])
        for outcome in outcomes:
            reading.talk.say(outcome)
        assert is_believed(reading) == believed


def test_the_primarys_answer_is_never_doubted():
    talk = Reading(FIRST).talk
    talk.say([[None, None]])
    assert talk.result == [[None, None]]


# A read that goes on from what came of `ask_primary`.


def answered(outcome: Any) -> Reading:
    """A read whose primary was asked before, over an open connection."""
    reading = Reading(FIRST)
    asked = reading.reader.ask_primary(SLOT, READ.words, reading.deadline)
    assert asked is not None
    del reading.slot_map.connections[FIRST]
    reading.talk = reading.again(answered=Answered(asked, outcome))
    return reading


def test_it_does_not_ask_again_what_was_answered():
    reading = answered(LATE)
    assert reading.slot_map.meter.counts == {"NodeFailures": 1}
    assert sent(reading.talk)[0] == FIRST_REPLICA
    reading.talk.say([b"OK", VALUES, b"OK"])
    assert isinstance(reading.talk.step, Refresh)


def test_it_goes_on_from_its_own_answer_though_another_read_has_met_a_failure_meanwhile():
    reading = Reading(FIRST)
    asked = reading.reader.ask_primary(SLOT, READ.words, reading.deadline)
    assert asked is not None
    reading.talk.say(LATE)
    talk = reading.again(answered=Answered(asked, BROKEN))
    assert sent(talk) == (FIRST, [MGET])


def test_it_follows_the_redirect_that_was_the_answer():
    assert sent(answered([error_reply(b"ASK 5 other:9")]).talk) == (OTHER, [[b"ASKING"], MGET])


def test_it_asks_once_more_where_the_connection_was_closed():
    reading = answered(BROKEN)
    assert sent(reading.talk) == (FIRST, [MGET])
    reading.talk.say(BROKEN)
    assert sent(reading.talk)[0] == FIRST_REPLICA


def test_it_raises_the_error_that_will_not_pass():
    with pytest.raises(ResponseError):
        answered([error_reply(b"WRONGTYPE no")])
