"""Waits of coroutines for what has no event."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


async def becomes(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, 20 s at most."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.001)
