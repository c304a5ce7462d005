"""Copies the output of a function's process to its log, without the lines that a filter takes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

LINE_LIMIT_BYTES = 1024 * 1024
"""A longer line is written in pieces, without being offered to the filter: memory stays bounded."""
_READ_BYTES = 64 * 1024


async def copy_output(
    output: asyncio.StreamReader, log: Path, take_line: Callable[[bytes], bool] | None = None
) -> None:
    """Append `output` to `log` until it ends, except complete lines for which `take_line` returns True."""
    rest = b""
    with log.open("ab", buffering=0) as file:
        while data := await output.read(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            kept = (line for line in lines if take_line is None or not take_line(line))
            file.write(b"".join(line + b"\n" for line in kept))
            if len(rest) > LINE_LIMIT_BYTES:
                file.write(rest)
                rest = b""
        file.write(rest)
