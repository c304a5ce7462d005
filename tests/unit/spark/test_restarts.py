"""Pauses before restarts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.support.builders import a_session
from tests.support.fakes import FakeTime

from keylane.errors import EngineEnded, LaneBehind, StateUnavailable
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
    assert lines[-1] == "view 'v' restarts in 4 s: Redis can't be reached"
    for _ in range(5):
        pauses.begin()
        pauses.pause(away)
    assert waited[-1] == 10
    pauses.begin()
    time.move(31)
    pauses.pause(away)
    assert waited[-1] == 1
    assert len(renewals) == len(waited)
