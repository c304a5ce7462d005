"""Bodies changed at random: as bytes, and as the JSON that they are, with the schemas in its strings."""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from tests.requests.words import NAMES, NUMBERS, SCALARS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

VERBATIM = "\x02{}\x03"
"""A string that is written as it is, without quotes: numbers that Python would write otherwise."""
MOST_NODES, DROPPED = 3_000, 0.15


def changed_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return bytes a little changed."""
    at, kind = chance.randrange(len(data) + 1), chance.random()
    if kind < 0.35 and data:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if kind < 0.5:
        return data[:at]
    if kind < 0.7:
        return data[:at] + data[at + chance.choice((1, 2, 9)) :]
    if kind < 0.9:
        return (
            data[:at]
            + chance.choice((b"\0", b"\xff", b'"', b"{", b"[", b",", chance.randbytes(4)))
            + data[at:]
        )
    other = chance.randrange(len(data) + 1)
    return data[:at] + data[other : other + 40] + data[at:]


def _places(holder: list[Any]) -> list[tuple[Any, Any]]:
    """Return each part of a document as its container and its key there."""
    places: list[tuple[Any, Any]] = [(holder, 0)]
    for container, key in places:
        found = container[key]
        if isinstance(found, dict):
            places += [(found, each) for each in found]
        elif isinstance(found, list):
            places += [(found, number) for number in range(min(len(found), 50))]
        if len(places) > MOST_NODES:
            break
    return places


class JsonChanges:
    """Changes documents. `changed_text`: for their strings."""

    def __init__(self, chance: random.Random, changed_text: Callable[[str], str]) -> None:
        self._chance, self._changed_text = chance, changed_text

    def changed_json(self, document: Any) -> bytes:
        """Return a document changed in one place or some, as JSON."""
        for _ in range(self._chance.choice((1, 1, 1, 2, 3))):
            document = self._node(document)
        text = json.dumps(document, ensure_ascii=self._chance.random() < 0.7)
        text = re.sub(r'"(?:\\u0002|\x02)(.*?)(?:\\u0003|\x03)"', r"\1", text)
        if self._chance.random() < 0.05 and "," in text:  # a member twice
            text = re.sub(r"\{([^{},]*),", r"{\1,\1,", text, count=1)
        return text.encode("utf-8", "surrogatepass")

    def _node(self, document: Any) -> Any:
        """Return the document with another part in one place."""
        holder: list[Any] = [document]
        places = _places(holder)
        container, key = self._chance.choice(places)
        if container is not holder and self._chance.random() < DROPPED:
            del container[key]
        else:
            container[key] = self._part(container[key], places)
        try:
            found: Any = json.loads(json.dumps(holder))
        except (ValueError, RecursionError):  # it has itself in it
            return None
        return found[0]

    def _part(self, found: Any, places: list[tuple[Any, Any]]) -> Any:
        """Return what stands in place of a part of a document."""
        chance = self._chance
        if isinstance(found, str) and chance.random() < 0.7:
            return self._string(found)
        ways: list[Callable[[], Any]] = [
            *[lambda: chance.choice(SCALARS)] * 6,
            *[lambda: VERBATIM.format(chance.choice(NUMBERS))] * 3,
            *[lambda: [found] * chance.choice((1, 2, 40, 1_000)), lambda: {"a": found}, lambda: str(found)],
            *[lambda: (place := chance.choice(places))[0][place[1]]] * 3,
            lambda: VERBATIM.format("[" * (depth := chance.choice((20, 500, 5_000))) + "]" * depth),
        ]
        if isinstance(found, dict):
            more = (*SCALARS, *found.values())
            ways += [lambda: found | {chance.choice(NAMES): chance.choice(more)}] * 6
        return chance.choice(ways)()

    def _string(self, text: str) -> Any:
        """Return a string changed: also the JSON that it may be, such as a schema."""
        chance = self._chance
        if text[:1] in {"{", "["} and chance.random() < 0.8:
            with contextlib.suppress(ValueError, RecursionError):
                return self.changed_json(json.loads(text)).decode("utf-8", "replace")
        if "{" in text and chance.random() < 0.8:
            words = re.findall(r"\w+|\s+|.", text)
            at, other = chance.randrange(len(words)), chance.randrange(len(words))
            words[at] = chance.choice(
                (
                    words[other],
                    "",
                    words[at] * 2,
                    *NUMBERS,
                    "optional",
                    "repeated",
                    "map<string, X>",
                    "oneof",
                    "import",
                )
            )
            return "".join(words)
        if chance.random() < 0.3:
            return chance.choice(SCALARS)
        with contextlib.suppress(UnicodeDecodeError):
            return unquote_to_bytes(self._changed_text(text)).decode()
        return text[: chance.randrange(len(text) + 1)]
