"""Time limits of many waits, looked at by one timer."""

from __future__ import annotations

import asyncio

from keylane_server.time_limits import TimeLimits

BOUND_S = 20


class Wait:
    """A wait that notes that it was given up."""

    def __init__(self):
        self.given_up = asyncio.Event()

    def give_up(self):
        self.given_up.set()


async def test_a_wait_that_takes_too_long_is_given_up_and_one_that_has_ended_is_not():
    limits = TimeLimits(0.001)
    late, ended, patient = Wait(), Wait(), Wait()
    for wait in (late, ended):
        limits.begin(wait, 0.001)
    limits.begin(patient, BOUND_S)
    limits.end(ended)
    async with asyncio.timeout(BOUND_S):
        await late.given_up.wait()
    assert (ended.given_up.is_set(), patient.given_up.is_set()) == (False, False)


async def test_a_wait_that_begins_again_has_its_time_from_then_on():
    limits = TimeLimits(0.001)
    again, late = Wait(), Wait()
    limits.begin(again, 0.001)
    limits.begin(again, BOUND_S)
    limits.begin(late, 0.002)
    async with asyncio.timeout(BOUND_S):
        await late.given_up.wait()
    assert again.given_up.is_set() is False


async def test_nothing_is_looked_at_when_nothing_waits(monkeypatch):
    loop, looks = asyncio.get_running_loop(), []
    call_later = loop.call_later

    def counted(delay_s, look):
        looks.append(look)
        return call_later(delay_s, look)

    monkeypatch.setattr(loop, "call_later", counted)
    limits = TimeLimits(0)
    for _ in range(2):
        wait = Wait()
        limits.begin(wait, 0)
        async with asyncio.timeout(BOUND_S):
            await wait.given_up.wait()
        for _ in range(10):
            await asyncio.sleep(0)
    assert len(looks) == 2
