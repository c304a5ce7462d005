"""Turns of clients whose bodies are made while they read them."""

from __future__ import annotations

import asyncio

from keylane_server.streamed_bodies import Turns


async def test_so_many_have_their_turn_in_one_tick_and_others_in_their_order():
    turns, had = Turns(of_tick=2), list[int]()

    async def take(number: int) -> None:
        await turns.take()
        had.append(number)

    tasks = [asyncio.create_task(take(number)) for number in range(7)]
    await asyncio.sleep(0)
    assert had == [0, 1]
    tasks[3].cancel()
    ticks = 0
    while len(had) < 6:
        before = len(had)
        await asyncio.sleep(0)
        assert len(had) - before <= 2
        ticks += 1
        assert ticks < 20
    assert had == [0, 1, 2, 4, 5, 6]


async def test_who_comes_alone_has_its_turn_at_once():
    turns, had = Turns(of_tick=1), list[int]()
    for number in range(3):
        await turns.take()
        had.append(number)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert had == [0, 1, 2]
    assert not turns._waiting
