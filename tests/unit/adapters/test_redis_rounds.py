"""What is asked of many nodes at once, and what their replies mean, without a server: slots, and scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.conversations import (
    FIRST,
    FIRST_REPLICA,
    SECOND,
    Talk,
    a_deadline,
    a_slot_map,
    commands,
    error_reply,
)
from tests.support.fakes import FakeTime

from keylane.adapters.redis.connections import Node
from keylane.adapters.redis.conversation import Ask, Begin, End, Refresh, Sleep
from keylane.adapters.redis.error_replies import (
    AuthenticationError,
    RedisConnectionError,
    RedisTimeoutError,
    ResponseError,
)
from keylane.adapters.redis.scripts import LATE_MS, PAUSE_S, Run, Script, Scripts
from keylane.adapters.redis.state import RoundReader
from keylane.errors import StateUnavailable
from keylane.ports import Call
from keylane.routing import key_slot

if TYPE_CHECKING:
    from keylane.adapters.redis.slot_map import SlotMap

LOW, HIGH = 5, 9_000
GET_A, GET_B, GET_C = (Call(slot, (b"GET", key)) for slot, key in ((LOW, b"a"), (HIGH, b"b"), (LOW, b"c")))
BROKEN = RedisConnectionError("the connection broke")
LATE = RedisTimeoutError("the server did not answer in time")


def begun(talk: Talk) -> dict[Node, list[list[bytes]]]:
    """What is sent to which node until replies are read; sending succeeds."""
    found = {}
    while isinstance(talk.step, Begin):
        found[talk.step.node] = commands(talk.step.packed)
        assert len(found[talk.step.node]) == talk.step.reply_count
        talk.say(None)
    return found


def a_read(*calls: Call, slot_map: SlotMap | None = None) -> tuple[RoundReader, Talk]:
    reader = RoundReader(slot_map or a_slot_map(FIRST, SECOND))
    return reader, Talk(reader.read_slots(calls, a_deadline()))


def test_all_nodes_are_sent_to_before_one_is_read_and_replies_come_in_the_calls_order():
    _, talk = a_read(GET_A, GET_B, GET_C)
    assert begun(talk) == {FIRST: [[b"GET", b"a"], [b"GET", b"c"]], SECOND: [[b"GET", b"b"]]}
    assert (talk.step.node, talk.step.reply_count) == (FIRST, 2)
    talk.say([b"1", None])
    assert talk.step.node == SECOND
    talk.say([b"2"])
    assert talk.result == [b"1", b"2", None]


def test_no_calls_ask_nothing():
    _, talk = a_read()
    assert talk.result == []


def test_what_a_node_owes_is_asked_of_its_replica_which_answers_its_own_slots_as_one():
    _, talk = a_read(GET_A, GET_B)
    begun(talk)
    talk.say(LATE)
    talk.say([b"2"])
    assert begun(talk) == {FIRST_REPLICA: [[b"READONLY"], [b"GET", b"a"], [b"READWRITE"]]}
    talk.say([b"OK", b"1", b"OK"])
    assert talk.result == [b"1", b"2"]


def test_what_only_primaries_may_answer_is_not_asked_of_a_replica():
    reader = RoundReader(a_slot_map(FIRST, SECOND))
    talk = Talk(reader.read_slots([GET_A, GET_B], a_deadline(), primary_only=True))
    begun(talk)
    talk.say(LATE)
    talk.say([b"2"])
    assert begun(talk) == {FIRST: [[b"GET", b"a"]]}
    talk.say([b"1"])
    assert talk.result == [b"1", b"2"]


def test_a_node_that_is_primary_and_replica_is_read_only_for_the_replicas_slots_alone():
    rows = [[0, 8191, [b"h", 1], [b"h", 2]], [8192, 16383, [b"h", 2]]]
    reader, talk = a_read(GET_A, slot_map=a_slot_map(FIRST, SECOND, reply=rows))
    begun(talk)
    talk.say(LATE)
    begun(talk)
    talk.say([b"OK", b"1", b"OK"])
    talk = Talk(reader.read_slots([GET_A, GET_B, GET_C], a_deadline()))
    own, others = [b"GET", b"b"], [[b"GET", b"a"], [b"GET", b"c"]]
    assert begun(talk) == {SECOND: [own, [b"READONLY"], *others, [b"READWRITE"]]}
    talk.say([b"2", b"OK", b"1", b"3", b"OK"])
    assert talk.result == [b"1", b"2", b"3"]


def test_a_node_that_can_not_be_sent_to_owes_nothing_and_is_unhealthy():
    reader, talk = a_read(GET_A, GET_B, slot_map=a_slot_map(SECOND))
    talk.say(BROKEN)
    assert begun(talk).keys() == {SECOND}
    talk.say([b"2"])
    assert begun(talk).keys() == {FIRST_REPLICA}
    assert reader._unhealthy.keys() == {FIRST}


def test_a_node_that_answers_is_healthy_again():
    reader, talk = a_read(GET_A)
    begun(talk)
    reader._unhealthy[FIRST] = 0.0
    talk.say([b"1"])
    assert not reader._unhealthy


def test_an_old_connection_that_was_closed_is_made_again_in_the_next_round():
    reader, talk = a_read(GET_A)
    begun(talk)
    talk.say(BROKEN)
    assert begun(talk) == {FIRST: [[b"GET", b"a"]]}
    talk.say([b"1"])
    assert talk.result == [b"1"]
    assert not reader._unhealthy


def test_a_slots_replies_count_together_and_after_two_rounds_it_is_read_alone():
    _, talk = a_read(GET_A, GET_B, GET_C)
    begun(talk)
    talk.say([b"1", error_reply(b"ASK 5 other:9")])
    talk.say([b"2"])
    for _ in range(2):
        assert begun(talk) in ({}, {FIRST: [[b"GET", b"a"], [b"GET", b"c"]]})
        if isinstance(talk.step, End):
            talk.say([b"1", error_reply(b"ASK 5 other:9")])
    assert commands(talk.step.packed) == [[b"GET", b"a"]]
    talk.say([b"1"])
    talk.say([error_reply(b"ASK 5 other:9")])
    assert commands(talk.step.packed) == [[b"ASKING"], [b"GET", b"c"]]
    talk.say([b"OK", b"3"])
    assert talk.result == [b"1", b"2", b"3"]


FOUND_A, FOUND_B = (
    Call(slot, (b"EVALSHA_RO", b"digest", b"1", key), script=b"return 1")
    for slot, key in ((LOW, b"a"), (HIGH, b"b"))
)
NO_SCRIPT = error_reply(b"NOSCRIPT no")


def test_a_node_that_lacks_a_script_is_sent_its_text_in_the_next_round():
    _, talk = a_read(FOUND_A, FOUND_B, GET_C)
    assert begun(talk)[SECOND] == [[b"EVALSHA_RO", b"digest", b"1", b"b"]]
    talk.say([NO_SCRIPT, b"3"])
    talk.say([b"2"])
    assert begun(talk) == {FIRST: [[b"EVAL_RO", b"return 1", b"1", b"a"], [b"GET", b"c"]]}
    talk.say([b"1", b"3"])
    assert talk.result == [b"1", b"2", b"3"]


def test_a_slot_that_is_read_alone_is_sent_the_text_of_a_script_too():
    reader = RoundReader(a_slot_map(FIRST, SECOND))
    talk = Talk(reader.read_slot([FOUND_A], a_deadline()))
    assert commands(talk.step.packed) == [[b"EVALSHA_RO", b"digest", b"1", b"a"]]
    talk.say([NO_SCRIPT])
    assert commands(talk.step.packed) == [[b"EVAL_RO", b"return 1", b"1", b"a"]]
    talk.say([b"1"])
    assert talk.result == [b"1"]


def test_an_error_that_will_not_pass_ends_the_read():
    _, talk = a_read(GET_A, GET_B)
    begun(talk)
    with pytest.raises(ResponseError):
        talk.say([error_reply(b"WRONGTYPE no")])


def test_a_slot_that_a_busy_primary_does_not_answer_is_asked_for_elsewhere():
    _, talk = a_read(GET_A, GET_B)
    for _ in range(2):
        begun(talk)
        talk.say([error_reply(b"BUSY Redis is busy running a script.")] * 2)
    assert isinstance(talk.step, Ask)


def test_rejected_credentials_end_the_read():
    _, talk = a_read(GET_A, GET_B)
    with pytest.raises(AuthenticationError):
        talk.say(AuthenticationError("WRONGPASS"))


def test_a_replicas_lack_of_a_key_is_doubted_once_all_replies_are_read():
    _, talk = a_read(GET_A, GET_B, slot_map=a_slot_map(SECOND))
    talk.say(BROKEN)
    begun(talk)
    talk.say([b"2"])
    begun(talk)
    talk.say([b"OK", None, b"OK"])
    assert (talk.step.node, type(talk.step)) == (SECOND, Ask)
    assert commands(talk.step.packed) == [[b"CLUSTER", b"COUNTKEYSINSLOT", b"5"]]
    talk.say([4])
    assert commands(talk.step.packed) == [[b"READONLY"], [b"GET", b"a"], [b"READWRITE"]]


# Scripts.

SCRIPT = Script(b"return 1", b"digest")
RUN = Run(SCRIPT, b"key", (b"word",))
CALL = [b"EVALSHA", b"digest", b"1", b"key", b"word"]


class Running:
    """A run of scripts, after the slot map was read."""

    def __init__(self, *runs: Run, milliseconds: float = 900) -> None:
        self.time = FakeTime()
        self.slot_map = a_slot_map(FIRST, SECOND)
        scripts = Scripts(self.slot_map)  # type: ignore[arg-type]
        self.deadline = a_deadline(milliseconds, self.time)
        self.talk = Talk(scripts.conversation(runs or [RUN], self.deadline))
        assert self.talk.step == Refresh(self.deadline)
        self.talk.say(None)
        self.node = self.slot_map.primary(key_slot(b"key"))


def test_scripts_are_sent_to_the_primaries_of_their_keys_by_their_digests():
    other = RUN._replace(key=b"{b}")  # of the other primary
    running = Running(RUN, other, RUN)
    asked = begun(running.talk)
    assert asked.keys() == {FIRST, SECOND}
    assert asked[running.node] == [CALL, CALL]
    for _ in range(2):
        running.talk.say([1, 3] if running.talk.step.node == running.node else [2])
    assert running.talk.result == [1, 2, 3]


def test_a_node_that_lacks_the_script_is_sent_its_text_without_a_pause():
    running = Running()
    begun(running.talk)
    running.talk.say([error_reply(b"NOSCRIPT no")])
    assert begun(running.talk) == {running.node: [[b"EVAL", b"return 1", b"1", b"key", b"word"]]}
    running.talk.say([b"done"])
    assert running.talk.result == [b"done"]


def test_a_script_follows_redirects():
    running = Running()
    begun(running.talk)
    running.talk.say([error_reply(b"ASK 1 other:9")])
    assert begun(running.talk) == {Node("other", 9): [[b"ASKING"], CALL]}
    running.talk.say([b"OK", error_reply(b"MOVED 1 other:8")])
    assert begun(running.talk) == {Node("other", 8): [CALL]}
    assert running.slot_map.primary(key_slot(b"key")) == Node("other", 8)


def test_a_script_is_run_again_with_a_new_slot_map_first_at_once_then_after_pauses():
    running = Running()
    talk, clock = running.talk, running.deadline.clock
    for failure, pause_s in ((BROKEN, 0.0), ([error_reply(b"CLUSTERDOWN")], PAUSE_S), (LATE, PAUSE_S)):
        begun(talk)
        talk.say(failure)
        assert talk.step == Sleep(pause_s, clock)
        talk.say(None)
        assert talk.step == Refresh(running.deadline)
        talk.say(None)
    begun(talk)
    talk.say([b"done"])
    assert talk.result == [b"done"]


def test_a_reply_that_may_have_arrived_is_read_though_another_node_has_used_up_the_time():
    running = Running(RUN, RUN._replace(key=b"{b}"), milliseconds=100)
    begun(running.talk)
    slow = running.talk.step.node
    running.time.move(0.1)
    running.talk.say(LATE)
    assert running.talk.step.deadline.remaining_s == pytest.approx(LATE_MS / 1000)
    running.talk.say([b"done"])
    replies = running.talk.result if slow == running.node else running.talk.result[::-1]
    assert isinstance(replies[0], StateUnavailable)
    assert replies[0].__cause__ is LATE
    assert replies[1] == b"done"


def test_an_error_that_will_not_pass_is_the_reply_of_its_script():
    running = Running()
    begun(running.talk)
    refused = error_reply(b"NOPERM no")
    running.talk.say([refused])
    [reply] = running.talk.result
    assert isinstance(reply, StateUnavailable)
    assert reply.__cause__ is refused


def test_rejected_credentials_end_the_run_of_scripts_that_can_not_be_sent():
    running = Running()
    running.talk.say(BROKEN)
    running.talk.say(None)  # a pause
    rejected = StateUnavailable("Redis refused our credentials")
    rejected.__cause__ = error_reply(b"NOPERM no")
    running.talk.say(rejected)
    assert running.talk.result == [rejected]
