"""Requests that wait in an event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from greenlet import GreenletExit

from keylane_server import greenlets
from keylane_server.admission import WaitRefused
from keylane_server.greenlets import (
    RequestBounds,
    RequestCancelled,
    Suspension,
    begin,
    run_request,
)
from keylane_server.shared_calls import SharedCall

BOUND_S = 20


async def test_requests_wait_at_the_same_time_in_one_thread():
    order = []

    def request(name, seconds):
        order.append(f"{name} begins")
        greenlets.pause_s(seconds)
        order.append(f"{name} ends")
        return threading.get_ident()

    idents = await asyncio.gather(
        run_request(lambda: request("slow", 0.05)), run_request(lambda: request("fast", 0.01))
    )
    assert order == ["slow begins", "fast begins", "fast ends", "slow ends"]
    assert set(idents) == {threading.get_ident()}


async def test_one_of_those_that_give_way_goes_on_in_a_tick_and_all_others_run_between_them():
    order = []

    def takes_long(name):
        for part in range(3):
            order.append(f"{name}{part}")
            greenlets.give_way()

    async def reads_meanwhile():
        for _ in range(8):
            order.append("read")
            await asyncio.sleep(0)

    await asyncio.gather(
        *(run_request(lambda name=name: takes_long(name)) for name in "abc"), reads_meanwhile()
    )
    assert [each for each in order if each != "read"] == [
        *("a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2")
    ]
    later = order[order.index("read") :]
    assert all("read" in pair for pair in pairwise(later[:12]))


def test_who_gives_way_outside_of_a_request_goes_on():
    greenlets.give_way()
    assert not greenlets._giving_way


def test_an_error_of_a_request_is_raised_to_who_waits_for_it():
    def fails():
        greenlets.pause_s(0)
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        asyncio.run(run_request(fails))


def test_nothing_but_a_request_can_wait():
    async def run():
        Suspension().wait()

    with pytest.raises(TypeError, match="only a request"):
        asyncio.run(run())


def test_a_blocking_call_runs_in_a_thread_and_its_error_comes_back():
    def blocks(value):
        if value < 0:
            raise ValueError("negative")
        return value, threading.get_ident()

    async def run(value):
        with ThreadPoolExecutor(1) as pool:
            return await run_request(lambda: greenlets.call_in_thread(pool, blocks, value))

    value, ident = asyncio.run(run(3))
    assert value == 3
    assert ident != threading.get_ident()
    with pytest.raises(ValueError, match="negative"):
        asyncio.run(run(-1))


async def test_calls_at_the_same_time_return_in_their_order():
    def call(number):
        def pause():
            greenlets.pause_s(0.02 / (number + 1))
            return number

        return pause

    assert await run_request(lambda: greenlets.call_all([call(number) for number in range(3)])) == [0, 1, 2]


async def test_a_read_that_waits_ends_when_its_client_goes():
    ended = asyncio.get_running_loop().create_future()
    cleaned = []

    def polls():
        try:
            while True:
                greenlets.pause_s(10)
        except GreenletExit:
            cleaned.append(True)
            raise

    running = begin(polls, lambda _, error: ended.set_result(error), is_cancellable=True)
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(BOUND_S):
        error = await ended
    assert isinstance(error, RequestCancelled)
    assert cleaned == [True]


class CountedCall:
    """A call that takes a moment; `begun` is how often it was made."""

    def __init__(self):
        self.begun = 0

    def __call__(self):
        self.begun += 1
        number = self.begun
        greenlets.pause_s(0.02)
        return number


async def test_requests_that_join_a_running_call_share_its_result():
    call, shared = CountedCall(), SharedCall()
    joins = [run_request(lambda: shared.join(call, BOUND_S)) for _ in range(5)]
    assert (await asyncio.gather(*joins), call.begun, shared.is_idle) == ([1] * 5, 1, True)


async def test_who_needs_a_call_from_now_on_shares_the_next_one():
    call, shared = CountedCall(), SharedCall()
    first = asyncio.ensure_future(run_request(lambda: shared.join(call, BOUND_S)))
    await asyncio.sleep(0.005)
    later = [run_request(lambda: shared.join_next(call, BOUND_S)) for _ in range(3)]
    assert (await asyncio.gather(first, *later), call.begun) == ([1, 2, 2, 2], 2)


async def test_each_who_shares_a_failed_call_gets_an_error_of_its_own():
    def fails():
        greenlets.pause_s(0)
        raise LookupError("gone")

    shared = SharedCall()
    joins = [run_request(lambda: shared.join(fails, BOUND_S)) for _ in range(2)]
    first, second = await asyncio.gather(*joins, return_exceptions=True)
    assert type(first) is type(second) is LookupError
    assert first is not second
    assert first.args == ("gone",)


async def test_a_request_with_little_time_does_not_end_the_call_for_the_others():
    call, shared = CountedCall(), SharedCall()
    hasty = run_request(lambda: shared.join(call, 0.001))
    patient = run_request(lambda: shared.join(call, BOUND_S))
    (hasty, patient), begun = await asyncio.gather(hasty, patient, return_exceptions=True), call.begun
    assert isinstance(hasty, TimeoutError)
    assert (patient, begun) == (1, 1)


async def test_what_waits_for_others_asks_how_long_it_may():
    asked: list[float] = []

    def before_waiting(seconds: float) -> float:
        asked.append(seconds)
        if len(asked) == 2:
            raise WaitRefused("too many")
        return 0.0

    def request() -> None:
        greenlets.pause_s(0)
        greenlets.await_s(60)
        greenlets.await_s(30)

    with pytest.raises(WaitRefused, match="too many"):
        await greenlets.begin_awaited(request, bounds=RequestBounds(before_waiting))[1]
    # The next request of the same greenlet waits by itself.
    await run_request(lambda: greenlets.await_s(0))
    assert asked == [60, 30]
