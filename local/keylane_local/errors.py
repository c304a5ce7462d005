"""Errors of the local stack.

StackError
├── PortInUse         another process listens on a requested port
├── ToolMissing       a program or a folder of jars is not installed
├── PartFailed        a part did not start, stopped by itself, or failed at a request
└── BadInput          an option, a name or a file cannot be used as it is
"""

from pathlib import Path


class StackError(Exception):
    """Base of all errors of the local stack. The program shows the text, which says what to do."""

    exit_code = 1


class PortInUse(StackError):
    """A port that was requested by number is taken."""

    def __init__(self, port: int, part: str, owner: str | None, option: str | None) -> None:
        by = f" by {owner}" if owner else ""
        hint = f"; stop that process, or choose another port with {option}" if option else ""
        super().__init__(f"port {port}, requested for {part}, is in use{by}{hint}")
        self.port = port
        self.part = part


class ToolMissing(StackError):
    """A program that the stack needs is not installed; the text says how to install it."""


class PartFailed(StackError):
    """A part failed; `tail` is the end of its log, which the program shows above the text."""

    def __init__(self, part: str, reason: str, log: Path | None = None, tail: str = "") -> None:
        super().__init__(f"{part} failed: {reason}")
        self.part = part
        self.log = log
        self.tail = tail
        if tail:
            self.add_note(f"The end of {log}:\n{tail}")


class BadInput(StackError):
    """An option, a name or a file that the user gave cannot be used as it is."""

    exit_code = 2
