"""Pauses before restarts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.support.builders import a_session
from tests.support.fakes import FakeTime

from keylane.errors import EngineEnded, LaneBehind, StateUnavailable, Unavailable
from keylane_spark.stream.restarts import RestartPauses


def refuse() -> bool:
    raise ConnectionRefusedError("no JVM")


@pytest.mark.parametrize(
    ("is_stopped", "said"), [(lambda: True, "Spark has ended"), (refuse, "JVM does not answer")]
)
def test_nothing_is_tried_again_where_spark_has_ended(is_stopped, said):
    context = SimpleNamespace(spark=a_session(isStopped=is_stopped), clock=FakeTime().clock)
    with pytest.raises(EngineEnded, match=said):
        RestartPauses(context, SimpleNamespace()).begin()


def test_pauses_grow_while_restarts_fail_and_a_lane_that_is_behind_is_repaired_at_once():
    time, waited, lines, renewals = FakeTime(), [], [], []
    broker = SimpleNamespace(renew=lambda: renewals.append(1))
    context = SimpleNamespace(clock=time.clock, say=lines.append, broker=broker, spark=a_session())
    pauses = RestartPauses(context, SimpleNamespace(wait=waited.append), "view 'v' ")
    away = StateUnavailable("Redis can't be reached")
    for error in (LaneBehind("t/0.0", 1, 2), away, away, away):
        pauses.begin()
        pauses.pause(error)
    assert waited == [0, 1, 2, 4]
    assert lines[-1] == "view 'v' restarts in 1 s: Redis can't be reached"
    assert len(lines) == 2
    for _ in range(5):
        pauses.begin()
        pauses.pause(away)
    assert waited[-1] == 10
    pauses.begin()
    time.move(61)
    pauses.pause(away)
    assert waited[-1] == 1
    assert lines[2:] == [
        "view 'v' restarts in 1 s, after 7 restarts for known reasons: Redis can't be reached"
    ]
    assert len(renewals) == len(waited)


def test_lines_of_attempts_that_fail_for_a_known_reason_come_once_a_minute():
    time, lines = FakeTime(), []
    broker = SimpleNamespace(renew=lambda: None)
    context = SimpleNamespace(clock=time.clock, say=lines.append, broker=broker, spark=a_session())
    pauses = RestartPauses(context, SimpleNamespace(wait=time.move))
    for epoch in range(20):
        pauses.begin()
        pauses.say(f"ready: epoch {epoch}")
        pauses.pause(Unavailable(f"Task {epoch} in stage 7.{epoch} failed"))
    attempts = [line for line in lines if line.startswith("ready")]
    minutes = (time.seconds - 1_000) / 60
    # Twice in the first minute: a reason is known once it has come.
    assert len(attempts) <= minutes + 2
    assert len(lines) - len(attempts) <= minutes + 1


def test_an_attempt_that_gets_further_than_the_one_before_or_lasts_says_each_line():
    time, lines = FakeTime(), []
    broker = SimpleNamespace(renew=lambda: None)
    context = SimpleNamespace(clock=time.clock, say=lines.append, broker=broker, spark=a_session())
    pauses = RestartPauses(context, SimpleNamespace(wait=lambda _: None))
    for number in range(3):
        pauses.begin()
        pauses.say(f"ready: epoch {number}")
        pauses.pause(Unavailable("away"))
    pauses.begin()
    pauses.pause(Unavailable("away"))
    pauses.begin()
    pauses.say("ready: epoch 3")
    pauses.pause(Unavailable("away"))
    pauses.begin()
    pauses.say("ready: epoch 4")
    time.move(61)
    pauses.say("ready: epoch 5")
    assert lines.count("restarts in 1 s: away") == 1
    assert [int(line[-1]) for line in lines if "ready" in line] == [0, 1, 3, 5]
