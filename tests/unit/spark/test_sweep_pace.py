"""How fast what is no longer used is removed."""

import pytest
from tests.support.fakes import FakeTime

from keylane_spark.generations.sweeper import SweepPace


@pytest.mark.parametrize(
    ("took_s", "gone", "most_per_s", "pause_s"),
    [
        (0.002, 0, None, 0.008),
        (1.5, 0, None, 6),
        (0.002, 1000, 10_000, 0.1),
        (0.002, 0, 10_000, 0.01),
        (1.5, 10, 10_000, 6),
    ],
    ids=[
        "four fifths of the time for others",
        "a slow Redis",
        "a rate bounds what goes",
        "keys that stay count as a tenth",
        "a rate does not hurry a slow Redis",
    ],
)
def test_redis_is_left_alone_for_most_of_the_time(took_s, gone, most_per_s, pause_s):
    time = FakeTime()
    pace = SweepPace(time.clock, most_per_s)
    time.pause(took_s)
    assert pace.pause_s(1000, gone) == pytest.approx(pause_s)


def test_each_step_is_timed_by_itself():
    time = FakeTime()
    pace = SweepPace(time.clock, None)
    time.pause(10)
    pace.begin()
    time.pause(0.5)
    assert pace.pause_s(0, 0) == pytest.approx(2)
