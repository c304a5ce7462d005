"""Compares two recordings, and knows which differences are meant: those in a table, each with its reason."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tests.contract.hosts.case import Answer
    from tests.contract.hosts.recording import Recording

SHOWN_CHARACTERS = 300
SHOWN_TITLES = 3
MISSING = "(none)"
FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "date", "server", "keep-alive"})
"""Headers of the connection, which Lambda's answers can't have."""


class Difference(NamedTuple):
    """A part of an answer that is not the same: status, body, "header NAME"; MISSING where there is none."""

    world: str
    operation: str
    title: str
    part: str
    one: str
    other: str
    answers: tuple[str, str] = ("", "")
    """The two answers as a whole: the status and, behind a space, the body."""

    @property
    def shown(self) -> str:
        one, other = (each.replace("\n", "\\n") for each in _excerpts(self.one, self.other))
        return f"    {self.part}\n      - {one}\n      + {other}"


@dataclass(frozen=True, slots=True)
class Meant:
    """Differences that are meant: all that fit every field.

    `world`, `operation`: with *. The others are patterns: `title` is found in the request's, all others match
    as a whole. `one`, `other`: the two values; `one_is`, `other_is`: the answers, as `Difference` has them.
    """

    reason: str
    world: str = "*"
    operation: str = "*"
    title: str = ""
    part: str = ".*"
    one: str = "(?s).*"
    other: str = "(?s).*"
    one_is: str = "(?s).*"
    other_is: str = "(?s).*"

    def fits(self, found: Difference) -> bool:
        return (
            fnmatchcase(found.world, self.world)
            and fnmatchcase(found.operation, self.operation)
            and re.search(self.title, found.title) is not None
            and re.fullmatch(self.part, found.part) is not None
            and re.fullmatch(self.one, found.one) is not None
            and re.fullmatch(self.other, found.other) is not None
            and re.fullmatch(self.one_is, found.answers[0]) is not None
            and re.fullmatch(self.other_is, found.answers[1]) is not None
        )


def read_table(path: Path) -> list[Meant]:
    """The entries of a table, in `[[meant]]`."""
    return [Meant(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("meant", [])]


def differences(
    world: str, one: Recording, other: Recording, *, between_hosts: bool = False
) -> Iterator[Difference]:
    """What differs between two recordings of a world. `between_hosts`: of its hosts, not of two checkouts.

    Then requests that go to one of them alone do not count, nor does how headers are written.
    """
    for title in {**one, **other}:
        if title not in one or title not in other:
            if between_hosts and title not in _AFTERWARDS:
                continue
            found = (one.get(title) or other[title]).operation
            where = ("no", "yes") if title in other else ("yes", "no")
            yield Difference(world, found, title, "recorded", *where)
            continue
        answers = one[title].answer, other[title].answer
        for part, first, second in _parts(*answers, between_hosts=between_hosts):
            shown = (_whole(answers[0]), _whole(answers[1]))
            yield Difference(world, one[title].operation, title, part, first, second, shown)


_AFTERWARDS = ("the drain function", "dead letters")


def _parts(one: Answer, other: Answer, *, between_hosts: bool) -> Iterator[tuple[str, str, str]]:
    if one.status != other.status:
        yield "status", str(one.status), str(other.status)
    if between_hosts:
        one, other = _without_framing(one), _without_framing(other)
    first, second = _by_name(one), _by_name(other)
    for name in sorted({*first, *second}):
        if first.get(name) != second.get(name):
            yield f"header {name}", first.get(name, MISSING), second.get(name, MISSING)
    if one.body != other.body:
        yield "body", _text(one.body), _text(other.body)


def _without_framing(answer: Answer) -> Answer:
    kept = ((name.lower(), value) for name, value in answer.headers)
    return answer._replace(headers=tuple(pair for pair in kept if pair[0] not in FRAMING))


def _by_name(answer: Answer) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in answer.headers:
        found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


def _whole(answer: Answer) -> str:
    return f"{answer.status} {_text(answer.body)}"


def _text(body: bytes) -> str:
    return body.decode("utf-8", "backslashreplace")


def _excerpts(one: str, other: str) -> tuple[str, str]:
    """Both texts around where they begin to differ."""
    same = next(
        (index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
    begin = max(0, same - SHOWN_CHARACTERS // 3)
    dots = "..." if begin else ""
    return (
        f"{dots}{one[begin : begin + SHOWN_CHARACTERS]}",
        f"{dots}{other[begin : begin + SHOWN_CHARACTERS]}",
    )


class Verdict:
    """Sorts differences into those that are meant and all others."""

    def __init__(self, table: Iterable[Meant]) -> None:
        self.table = list(table)
        self.unmeant: list[Difference] = []
        self.counts: Counter[int] = Counter()

    def add(self, found: Iterable[Difference]) -> None:
        for each in found:
            fitting = [index for index, entry in enumerate(self.table) if entry.fits(each)]
            self.counts.update(fitting)
            if not fitting:
                self.unmeant.append(each)

    @property
    def unused(self) -> list[Meant]:
        """Entries of differences that do not occur."""
        return [entry for index, entry in enumerate(self.table) if not self.counts[index]]

    def render(self) -> Iterator[str]:
        """Lines: unmeant differences by world and route, then unused entries, then how often others occur.

        Requests that differ alike are shown once, with some of their titles.
        """
        for (world, operation), by_title in sorted(_grouped(self.unmeant).items()):
            yield f"{world}: {operation}: {len(by_title)} requests differ"
            alike: dict[str, list[str]] = {}
            for title, found in by_title.items():
                alike.setdefault("\n".join(each.shown for each in found), []).append(title)
            for shown, titles in alike.items():
                yield from (f"  {title}" for title in titles[:SHOWN_TITLES])
                if len(titles) > SHOWN_TITLES:
                    yield f"  and {len(titles) - SHOWN_TITLES} like them"
                yield shown
        for entry in self.unused:
            yield f"this difference does not occur any more: {entry}"
        for index, entry in enumerate(self.table):
            if self.counts[index]:
                yield f"meant, {self.counts[index]} times: {entry.reason}"


def _grouped(found: Iterable[Difference]) -> dict[tuple[str, str], dict[str, list[Difference]]]:
    groups: dict[tuple[str, str], dict[str, list[Difference]]] = {}
    for each in found:
        groups.setdefault((each.world, each.operation), {}).setdefault(each.title, []).append(each)
    return groups


def compared(
    table: Iterable[Meant],
    one: Mapping[str, Recording],
    other: Mapping[str, Recording],
    *,
    between_hosts: bool = False,
) -> Verdict:
    """Compare recordings of the same worlds, by their names."""
    verdict = Verdict(table)
    for world in {**one, **other}:
        verdict.add(differences(world, one.get(world, {}), other.get(world, {})))
    return verdict
