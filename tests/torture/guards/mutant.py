"""One mutant: the project without one of its guards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Replacement:
    """Replaces `old`, which occurs once in a file, by `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """The project without one guard."""

    name: str
    replacements: tuple[Replacement, ...]
    focus: str | None = None
    topics: tuple[str, ...] = ()
    configuration: str = "standard"
    test: str = ""
    """A test that must notice what no schedule has."""
    is_rare: bool = False
    """Whether no event brings its need about, or one of hundreds: then there is the test alone."""

    @property
    def arguments(self) -> list[str]:
        """What the torture is called with."""
        focus = ["--focus", self.focus] if self.focus else []
        topics = ["--topics", *self.topics] if self.topics else []
        return ["--configuration", self.configuration, *topics, *focus]


def mutant(name: str, path: str, old: str, new: str, **more: Any) -> Mutant:
    """A mutant of one replacement. `more`: as of `Mutant`."""
    return Mutant(name, (Replacement(path, old, new),), **more)


def rare_mutant(name: str, path: str, old: str, new: str, *, test: str) -> Mutant:
    """A mutant of one replacement that has its test alone."""
    return mutant(name, path, old, new, test=test, is_rare=True)
