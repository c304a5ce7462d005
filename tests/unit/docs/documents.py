"""Checks of Markdown: links, tables, file names, words and lengths. Pure: text in, faults out.

A fault is one sentence with the line it is about. Each check has a broken example in `test_checks.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CELL_LIMIT = 220
"""Characters of a table's cell, as a browser shows it."""

WORDS = {
    r"anew": "again, re-read, rebuilt",
    r"told|tells": "reported, returns, says",
    r"(is|are) none of|none of (ours|theirs)": "is not one of",
    r"(is|are) no (JSON|TOML|Avro|text|object|list|number|duration|position|name|column|topic)": "is not",
    r"gravest": "most severe",
    r"made up(?! of)": "unknown, generated",
    r"fates?": "result",
    r"parcels?": "message batch",
    r"whole numbers?": "integer",
    r"(not )?let in|lets? (us|it|them) in": "authenticated, rejected",
    r"in force": "valid as of",
    r"slots? on (its|their) way": "migrating",
    r"straight (to|from|into)": "directly",
    r"bury|buried": "send to the dead-letter queue",
    r"(key|record)'s home|(no|a) home (for|in)": "lane",
    r"patience": "retry budget",
    r"Entrance|NotLetIn": "RejectionListener, ConnectionRejected",
}
"""Words of the old texts -> those of the field. Code spans, code blocks and comments are exempt."""

FILE_ROOTS = {
    "keylane": "layers/keylane/python/keylane",
    "keylane_spark": "spark/keylane_spark",
    "keylane_cli": "cli/keylane_cli",
    "keylane_local": "local/keylane_local",
    "keylane_server": "server/keylane_server",
    "keylane_build": "tools/keylane_build",
    "keylane_client": "clients/python/keylane_client",
}
"""Packages by the names that documents use -> their folders. Paths may also be those in a package."""

MADE = (".keylane", ".venv", "build/")
"""How paths begin of files that are made, and in no repository."""

_FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\S*)")
_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_LINK = re.compile(
    r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^()\s>]*(?:\([^()\s]*\)[^()\s]*)*)>?(?:\s+\"[^\"]*\")?\)"
)
_LINK_TEXT = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_NAMED_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
_FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:py|lua|toml|yaml|yml|md|json|Dockerfile)")
_TEST = re.compile(r"`(?:(?P<file>test_\w+\.py)(?:::(?P<name>test_\w+))?|::(?P<more>test_\w+))`")
_LISTED = re.compile(r"- (\d{4}-\d\d-\d\d) \[.*\]\(([\w-]+\.md#[\w-]+)\)")
_DECISION = re.compile(r"^## (.*)\n\n_(\d{4}-\d\d-\d\d)_$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and in which line."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """A Markdown text, its lines divided into prose and code blocks."""

    text: str

    def lines(self) -> Iterator[tuple[int, str, str | None]]:
        """Give each line's number, the line, and the language of the code block it is in (None: prose)."""
        fence, language = "", ""
        for number, line in enumerate(_COMMENT.sub(_blank, self.text).splitlines(), 1):
            mark = _FENCE.match(line)
            if not fence and mark:
                fence, language = mark[1], mark[2]
            elif fence and mark and mark[1].startswith(fence) and not mark[2]:
                fence = ""
            else:
                yield number, line, language if fence else None

    def prose(self) -> Iterator[tuple[int, str]]:
        """Give the lines outside of code blocks."""
        return ((number, line) for number, line, language in self.lines() if language is None)

    def anchors(self) -> set[str]:
        """Give the anchors of the headings, as GitHub makes them, and those that are named."""
        found: dict[str, int] = {}
        anchors = set(_NAMED_ANCHOR.findall(self.text))
        for _, line in self.prose():
            if heading := _HEADING.match(line):
                name = slug(heading[1])
                count = found[name] = found.get(name, -1) + 1
                anchors.add(f"{name}-{count}" if count else name)
        return anchors


def slug(heading: str) -> str:
    """GitHub's anchor of a heading."""
    text = _LINK_TEXT.sub(r"\1", heading).replace("`", "").replace("*", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def link_faults(
    document: Document, exists: Callable[[str], bool], anchors_of: Callable[[str], set[str]]
) -> list[Fault]:
    """Relative links that lead nowhere. `exists` and `anchors_of` get the path as the link has it."""
    faults = []
    for number, line in document.prose():
        for target in _LINK.findall(_SPAN.sub("`", line)):
            if re.match(r"[a-z][a-z+.-]*:", target):
                continue
            path, _, anchor = target.partition("#")
            path = unquote(path)
            if path and not exists(path):
                faults.append(Fault(number, f"{target}: there is no such file"))
            elif anchor and (not path or path.endswith(".md")):
                anchors = anchors_of(path) if path else document.anchors()
                if anchor not in anchors:
                    faults.append(Fault(number, f"{target}: there is no such heading"))
    return faults


def citation_faults(document: Document, tests: Mapping[str, str]) -> list[Fault]:
    """Tests that are named and do not exist. `tests`: file name -> the text of the files of that name.

    `::test_x` is another test of the file that was named before.
    """
    faults = []
    file = ""
    for number, line in document.prose():
        for cited in _TEST.finditer(line):
            file = cited["file"] or file
            name = cited["name"] or cited["more"]
            if file not in tests:
                faults.append(Fault(number, f"{file}: there is no such file of tests"))
            elif name and f"def {name}(" not in tests[file]:
                faults.append(Fault(number, f"{file} has no {name}"))
    return faults


def word_faults(document: Document) -> list[Fault]:
    """Words that Keylane's documents don't use."""
    faults = []
    for number, line in document.prose():
        shown = _LINK_TEXT.sub(r"\1", _SPAN.sub("`", line))
        faults += [
            Fault(number, f"{found[0]!r}: say {better}")
            for word, better in WORDS.items()
            if (found := re.search(rf"\b(?:{word})\b", shown, re.IGNORECASE))
        ]
    return faults


def cell_faults(document: Document) -> list[Fault]:
    """Cells of tables that are too long to read."""
    faults = []
    for number, line in document.prose():
        if not line.lstrip().startswith("|"):
            continue
        for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
            shown = _LINK_TEXT.sub(r"\1", cell.strip())
            if len(shown) > CELL_LIMIT:
                faults.append(Fault(number, f"a cell has {len(shown)} characters: {shown[:40]} ..."))
    return faults


def file_faults(document: Document, exists: Callable[[str], bool]) -> list[Fault]:
    """Files named in code spans that are not in the repository."""
    faults = []
    for number, line in document.prose():
        for _, span in _SPAN.findall(line):
            if not _FILE.fullmatch(span) or span.startswith(MADE):
                continue
            root, _, rest = span.partition("/")
            in_packages = [f"{folder}/{span}" for folder in FILE_ROOTS.values()]
            if not any(map(exists, (span, f"{FILE_ROOTS.get(root, root)}/{rest}", *in_packages))):
                faults.append(Fault(number, f"{span}: there is no such file"))
    return faults


def length_faults(text: str, limit: int) -> list[Fault]:
    """A text of more lines than it may have."""
    count = len(text.splitlines())
    return [Fault(count, f"{count} lines are more than {limit}")] if count > limit else []


def index_faults(index: str, pages: Mapping[str, str]) -> list[Fault]:
    """Decisions that the index lacks, or lists under another date. `pages`: texts by file name.

    A decision is a heading of the second level with its date in the line below.
    """
    listed = {
        (found[1], found[2]): number
        for number, line in enumerate(index.splitlines(), 1)
        if (found := _LISTED.fullmatch(line))
    }
    dated = {
        (date, f"{name}#{slug(title)}")
        for name, text in pages.items()
        for title, date in _DECISION.findall(text)
    }
    undated = [name for name, text in pages.items() if len(_DECISION.findall(text)) != text.count("\n## ")]
    return [
        *(Fault(1, f"{target} of {date} is not listed") for date, target in sorted(dated - listed.keys())),
        *(
            Fault(number, f"{each[1]} of {each[0]} is no decision")
            for each, number in listed.items()
            if each not in dated
        ),
        *(Fault(1, f"{name} has a decision without a date") for name in undated),
    ]


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")
