"""A request of the corpus, and what was answered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LAMBDA, SERVER = "lambda", "server"
HOSTS = (LAMBDA, SERVER)
SHOWN_CHARACTERS = 160
TAG = "RUN"
"""What stands for a run's tag in what is compared."""

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A request. `target`: path and query as sent; bytes that are not UTF-8 are surrogates (PEP 383).

    `hosts`: where it goes. `cursor_of`: the title of an earlier request, whose `next` is this one's cursor.
    `events`: how many events of a stream are read before the connection is closed. `floats`: its records
    have no key, so their partitions are random. `overlaps`: it is sent while another one like it runs.
    `raw`: what is sent instead of all this, to the server alone. `event`: the event that a function gets
    instead, to Lambda alone, with the function's name. `note`: what its title says instead of its body;
    `label`: its title.
    """

    method: str
    target: str
    headers: Headers = ()
    body: bytes = b""
    hosts: tuple[str, ...] = HOSTS
    cursor_of: str = ""
    events: int = 0
    floats: bool = False
    overlaps: bool = False
    raw: bytes = b""
    event: tuple[str, Mapping[str, Any]] | None = None
    note: str = ""
    label: str = ""
    title: str = field(default="", compare=False)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def describe(self, tag: str) -> str:
        """The request in one line, the same in every run."""
        if self.label:
            return self.label

        def shown(text: str) -> str:
            # The tag may be cut: it is replaced before.
            start = text[: 2 * SHOWN_CHARACTERS].replace(tag, TAG)[:SHOWN_CHARACTERS]
            return start if len(text) <= SHOWN_CHARACTERS else f"{start}... ({len(text)})"

        parts = [f"{self.method} {shown(self.target)}"]
        parts += [f"[{name}: {shown(value)}]" for name, value in self.headers]
        if self.note or self.body:
            parts.append(f"<{self.note or shown(self.body.decode('latin-1'))}>")
        return " ".join(parts).encode("utf-8", "backslashreplace").decode()


def titled(cases: Iterable[Case], tag: str) -> list[Case]:
    """The cases with titles, all different: a request that is sent again has its number behind it."""
    counts: Counter[str] = Counter()
    found = []
    for case in cases:
        title = case.describe(tag)
        counts[title] += 1
        number = f" #{counts[title]}" if counts[title] > 1 else ""
        found.append(replace(case, title=f"{title}{number}"))
    return found


class Answer(NamedTuple):
    """A response. `status` 0: the connection was closed without one. Headers' names are as they were sent."""

    status: int
    headers: Headers = ()
    body: bytes = b""

    def header(self, name: str) -> str:
        """The value of a header, "" without it."""
        return next((value for each, value in self.headers if each.lower() == name.lower()), "")


@dataclass(frozen=True, slots=True)
class Names:
    """What requests name: the run's own topics, and what the servers call things.

    `tag`: is in no other text; a run writes to topics with it in their names, so that offsets begin at 0.
    `cluster`: the id that Kafka gave itself. `register`: registers a schema for a subject; returns its id.
    """

    tag: str
    cluster: str
    register: Callable[[str, str, str], int]

    def out(self, kind: str) -> str:
        """A topic of this run."""
        return f"hosts-{self.tag}-{kind}"
