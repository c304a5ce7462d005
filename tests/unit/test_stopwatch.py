from __future__ import annotations

import time

import pytest
from tests.support.stopwatch import GRACE_S, TICK_S, Stalls, Stopwatch, takes_about


def test_a_thread_that_was_resumed_late_takes_its_time_from_what_overlaps_with_it():
    stalls = Stalls()
    stalls.note(10.0, 10.0 + TICK_S + GRACE_S / 2)  # not late enough to count
    assert stalls.between(0, 100) == 0
    stalls.note(20.0, 23.0)
    assert stalls.between(0, 100) == pytest.approx(3 - TICK_S)
    assert stalls.between(22, 100) == pytest.approx(1)
    assert stalls.between(21, 21.5) == pytest.approx(0.5)
    assert stalls.between(23, 100) == 0


def test_what_a_block_waits_for_counts():
    begin_s = time.monotonic()
    with Stopwatch() as watch:
        time.sleep(0.1)
    assert 0 < watch.seconds <= time.monotonic() - begin_s


def test_a_block_that_takes_much_longer_than_usual_fails():
    with takes_about(0.1):
        time.sleep(0.1)
    with pytest.raises(AssertionError, match="usual"), takes_about(0.01):
        time.sleep(0.1)
