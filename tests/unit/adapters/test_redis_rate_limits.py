"""The rate limiter over Redis: how long it waits. What it counts is tested on a real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.fakes import FakeTime

from keylane.adapters.redis.rate_limits import FIRST_MS, RedisRateLimiter
from keylane.produce.rate_limits import TOPIC, Rate, RateLimitSubject, RequestLoad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keylane.adapters.redis.scripts import Run
    from keylane.ports import Deadline

ONE = RateLimitSubject(TOPIC, "orders", (Rate("requests", 6, 3),), RequestLoad(1, 1, 1))


class TimedScripts:
    """Notes how long each run may take, in milliseconds. Two of three requests are left."""

    def __init__(self) -> None:
        self.timeouts_ms: list[float] = []

    def node_of(self, _key: bytes) -> None:
        return None

    def run(self, runs: Sequence[Run], until: Deadline) -> list[list[int]]:
        self.timeouts_ms.append(until.remaining_s * 1000)
        return [[2, 0, 0]] * len(runs)


@pytest.mark.parametrize(("setting_ms", "first_ms"), [(50.0, FIRST_MS), (5_000.0, 5_000.0)])
def test_the_first_count_may_take_as_long_as_connecting_does_and_never_less_than_the_setting(
    setting_ms: float, first_ms: float
):
    scripts = TimedScripts()
    limiter = RedisRateLimiter(scripts, FakeTime().clock, setting_ms)  # type: ignore[arg-type]
    assert [counted[0].left for counted in limiter.take([ONE]) + limiter.take([ONE]) if counted] == [2, 2]
    assert scripts.timeouts_ms == pytest.approx([first_ms, setting_ms])
