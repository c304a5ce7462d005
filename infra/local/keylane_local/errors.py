"""What can go wrong with the local stack.

StackError
├── PortInUse         somebody else listens on a port that was asked for
├── ToolMissing       a program or a folder of jars is not there
├── PartFailed        a part did not start, or ended by itself
└── BadRequest        the command cannot be done as asked (a part's unknown name, a broken file)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class StackError(Exception):
    """Base of all errors of the local stack; its text is fit to be shown to the user."""


class PortInUse(StackError):
    """A port that was asked for by number is taken."""

    def __init__(self, port: int, part: str, owner: str | None, option: str | None) -> None:
        by = f" by {owner}" if owner else ""
        hint = f"; free it, or choose another with {option}" if option else ""
        super().__init__(f"port {port}, asked for by {part}, is in use{by}{hint}")
        self.port = port
        self.part = part


class ToolMissing(StackError):
    """A program that the stack needs is not installed; the text says how to get it."""


class PartFailed(StackError):
    """A part failed; `tail` holds the end of its log."""

    def __init__(self, part: str, reason: str, log: Path | None = None, tail: str = "") -> None:
        super().__init__(f"{part} failed: {reason}")
        self.part = part
        self.log = log
        self.tail = tail


class BadRequest(StackError):
    """The command or a file of the user's is not usable as it is."""
