"""Replies to reads of many records: how many are read at a time, and how much of them is held."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keylane_server import replies
from keylane_server.admission import WaitRefused
from keylane_server.greenlets import (
    RequestBounds,
    begin_awaited,
    bounds_of_request,
    call_all,
    pause_s,
    run_request,
)
from keylane_server.redis.shared_cluster import Sent, SharedCluster, _size_of
from keylane_server.redis.shared_connection import Exchange
from keylane_server.replies import READING, ReplyBudget, RequestReplies

MIB = 1024 * 1024


def read(budget: ReplyBudget, log: list[str], name: str, size_bytes: int = 1, pause: float = 0.01) -> None:
    found = RequestReplies(budget)
    found.begin()
    log.append(f"{name} reads")
    pause_s(pause)
    found.end(size_bytes)
    log.append(f"{name} has read")
    pause_s(pause)
    found.release()


async def test_a_few_requests_read_at_a_time_in_their_order():
    budget, log = ReplyBudget(), []
    await asyncio.gather(
        *(run_request(lambda name=str(name): read(budget, log, name)) for name in range(READING + 2))
    )
    assert (budget.held_bytes, budget._reading, len(budget._waiting)) == (0, 0, 0)
    assert log[:READING] == [f"{name} reads" for name in range(READING)]
    assert log[READING] == "0 has read"
    begun = [line for line in log if line.endswith("reads")]
    assert begun == [f"{name} reads" for name in range(READING + 2)]


def test_over_the_bytes_that_are_held_nobody_begins_but_who_holds_some(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replies, "HELD_BYTES", 100)

    async def run() -> list[str]:
        budget, log = ReplyBudget(), []

        def large() -> None:
            found = RequestReplies(budget)
            for step in range(2):
                found.begin()
                pause_s(0.02)
                log.append(f"large {step}")
                found.end(200)
                pause_s(0.02)
            found.release()

        await asyncio.gather(run_request(large), run_request(lambda: late(budget, log)))
        return log

    def late(budget: ReplyBudget, log: list[str]) -> None:
        pause_s(0.03)
        read(budget, log, "small")

    assert asyncio.run(run()) == ["large 0", "large 1", "small reads", "small has read"]


async def test_who_waits_too_long_is_refused_and_leaves_the_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replies, "PATIENCE_S", 0.01)

    budget = ReplyBudget()
    budget._reading = READING
    found = RequestReplies(budget)
    with pytest.raises(WaitRefused, match="read many records"):
        await run_request(found.begin)
    assert not budget._waiting


async def test_parts_of_a_request_share_its_place():
    budget = ReplyBudget()
    budget._reading = READING - 1
    found = RequestReplies(budget)

    def part() -> None:
        mine: RequestReplies = bounds_of_request().replies
        assert mine is found
        mine.begin()
        pause_s(0.01)
        mine.end(10)

    await begin_awaited(lambda: call_all([part] * 5), bounds=RequestBounds(None, found))[1]
    assert (budget._reading, found.size_bytes, budget.held_bytes) == (READING - 1, 50, 50)
    found.release()
    assert budget.held_bytes == 0


def test_a_node_that_hangs_keeps_nobody_from_the_others():
    """Replies that are given up are dropped as they come, and others read meanwhile."""
    budget = ReplyBudget()
    found = RequestReplies(budget)
    exchange = Exchange(1, 0.0)
    found.begin()
    cluster: Any = object.__new__(SharedCluster)
    cluster.abandon(Sent(("h", 1), exchange, found))
    assert budget._reading == 0
    assert exchange.error is not None


async def test_an_attempt_begins_once_it_has_a_place(monkeypatch: pytest.MonkeyPatch):
    budget = ReplyBudget()
    budget._reading = READING
    asyncio.get_running_loop().call_later(0.05, budget.leave)
    waited_s: float = await run_request(RequestReplies(budget).begin)
    assert waited_s >= 0.05


def test_sizes_of_replies_are_those_of_their_bytes():
    assert MIB < _size_of([[b"x" * MIB, None, [b"y", 5]]]) < MIB + 1_000
