"""What a function's process prints: its log, but for the lines that somebody takes out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

LINE_LIMIT_BYTES = 1024 * 1024
"""More without an end of line is written as it is: nothing is held for ever."""
_READ_BYTES = 64 * 1024


async def copy(printed: asyncio.StreamReader, log: Path, take: Callable[[bytes], bool] | None = None) -> None:
    """Append to `log` what is printed, until its end, but for whole lines that `take` says it has taken."""
    rest = b""
    with log.open("ab", buffering=0) as file:
        while data := await printed.read(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            file.write(b"".join(line + b"\n" for line in lines if take is None or not take(line)))
            if len(rest) > LINE_LIMIT_BYTES:
                file.write(rest)
                rest = b""
        file.write(rest)
