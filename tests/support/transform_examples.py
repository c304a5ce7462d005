"""The examples of docs/use/transforms.md: a table or a function, and values before and after."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from keylane_spark.config.topics import TopicConfig

PAGE = Path(__file__).parents[2] / "docs" / "use" / "transforms.md"
DELETED = "deleted"
_BLOCKS = re.compile(r"```(toml|python|text)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    """`pairs`: values in Kafka, and what is stored or DELETED. `topic`, `config`: of SQL; else `code`."""

    pairs: tuple[tuple[bytes, str], ...]
    topic: str = ""
    config: TopicConfig | None = None
    function: str = ""
    code: str = ""


def examples() -> list[Example]:
    """Those of the page that have values."""
    found, before = [], ("", "")
    for kind, text in _BLOCKS.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "text":
            found.append(_example(*before, _pairs(text)))
        before = kind, text
    return found


def _example(kind: str, text: str, pairs: tuple[tuple[bytes, str], ...]) -> Example:
    if kind == "python":
        (function,) = re.findall(r"^def (\w+)", text, re.MULTILINE)
        return Example(pairs, function=function, code=text)
    ((topic, table),) = tomllib.loads(text)["topics"].items()
    return Example(pairs, topic, TopicConfig(**table))


def _pairs(text: str) -> tuple[tuple[bytes, str], ...]:
    lines = (line.partition("->") for line in text.splitlines())
    return tuple((_bytes(before.strip()), after.strip()) for before, _, after in lines)


def _bytes(text: str) -> bytes:
    return (
        text.encode().decode("unicode_escape").encode("latin-1") if text.startswith("\\x") else text.encode()
    )
