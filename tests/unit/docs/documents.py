"""Checks of Markdown: links, console blocks, tables, file names and words. Pure: text in, faults out.

A fault is one sentence with the line it is about. Each check has a broken example in `test_documents.py`.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

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
    r"(not )?let in|lets? \w+ in(?= |[.,;:])(?! \w)": "authenticated, rejected",
    r"in force": "valid as of",
    r"on its way": "migrating",
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
    "keylane_local": "infra/local/keylane_local",
    "keylane_build": "infra/build/keylane_build",
}
"""Packages by the names that documents use -> their folders."""

MADE = (".keylane", ".venv", "build/")
"""How paths begin of files that are made, and in no repository."""

ALSO_SERVED = {"/metrics": {"GET"}}
"""What the local front serves beside the API."""

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
_ELIDED = re.compile(r"\.\.\.|…")
_STAGE = re.compile(r"^/v\d+(?=/)")  # of API Gateway
_BETWEEN = frozenset({"|", "||", "&&", ";", "&"})
_CURL_VALUES = frozenset("HdXoumTAebFw") | {"request", "header", "data", "data-raw", "data-binary", "json"}
_CURL_VALUES |= {"data-urlencode", "output", "user", "max-time", "write-out", "upload-file"}


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and in which line."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block and the lines that it printed."""

    line: int
    words: tuple[str, ...]
    output: tuple[str, ...] = field(default=())


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

    def commands(self) -> Iterator[Command]:
        """Give the commands of all ```console blocks."""
        numbered = ((n, line) for n, line, language in self.lines() if language == "console")
        blocks = groupby(enumerate(numbered), key=lambda each: each[1][0] - each[0])
        for _, block in blocks:
            yield from _commands([line for _, line in block])


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
            if not exists(span) and not (root in FILE_ROOTS and exists(f"{FILE_ROOTS[root]}/{rest}")):
                faults.append(Fault(number, f"{span}: there is no such file"))
    return faults


def make_faults(command: Command, targets: Collection[str]) -> list[Fault]:
    """Targets that the Makefile does not have."""
    wanted = [word for word in command.words[1:] if "=" not in word and not word.startswith("-")]
    return [
        Fault(command.line, f"make {word}: there is no such target") for word in wanted if word not in targets
    ]


def keylane_faults(command: Command, subcommands: Collection[str]) -> list[Fault]:
    """Subcommands that `keylane` does not have."""
    name = command.words[1] if len(command.words) > 1 else ""
    if name in subcommands or name.startswith("-"):
        return []
    return [Fault(command.line, f"keylane {name}: there is no such command")]


def curl_faults(command: Command, paths: Mapping[str, Mapping[str, Any]]) -> list[Fault]:
    """Requests that no route takes, query parameters that the route does not have, answers that don't parse.

    `paths`: those of the OpenAPI document. Only requests to Keylane are judged: port 8080 or a variable.
    """
    method, url = _request(command.words)
    target = _keylane_target(url)
    faults = [] if target is None else _route_faults(command.line, method, target, paths)
    answer = _answer(command.output)
    if answer and not _ELIDED.search(answer):
        try:
            _parse_all(answer)
        except json.JSONDecodeError as error:
            faults.append(Fault(command.line, f"the answer is not valid JSON: {error.msg} at {error.pos}"))
    return faults


def makefile_targets(text: str) -> set[str]:
    """Give the targets of a Makefile."""
    lines = (line for line in text.splitlines() if re.match(r"[a-z][\w -]*:(?!=)", line))
    return {name for line in lines for name in line.partition(":")[0].split()}


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _commands(lines: list[tuple[int, str]]) -> Iterator[Command]:
    index = 0
    while index < len(lines):
        number, line = lines[index]
        index += 1
        if not line.startswith("$ "):
            continue
        text, words = line[2:], None
        while words is None:
            words = _words(text)
            if words is None and index < len(lines) and not lines[index][1].startswith("$ "):
                text += "\n" + lines[index][1]
                index += 1
            elif words is None:
                words = text.split()
        output = []
        while index < len(lines) and not lines[index][1].startswith("$ "):
            output.append(lines[index][1])
            index += 1
        stages = [list(stage) for between, stage in groupby(words, _BETWEEN.__contains__) if not between]
        for stage in stages:
            is_plain = len(stages) == 1
            yield Command(number, tuple(stage), tuple(output) if is_plain else ())


def _words(text: str) -> list[str] | None:
    """Split as a shell does; None where the command goes on in the next line."""
    if text.endswith("\\"):
        return None
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:
        return None


def _request(words: tuple[str, ...]) -> tuple[str, str]:
    method, url, has_body = "", "", False
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            url = url or word
            continue
        name, letters = word.lstrip("-"), not word.startswith("--")
        last = name[-1] if letters and name else name
        if last in ("I", "head"):
            method = method or "HEAD"
        if letters and name[0] == "X" and len(name) > 1:
            method = name[1:]
        elif last in _CURL_VALUES and not (letters and name[0] in "HX" and len(name) > 1):
            value = next(rest, "")
            method = value if last in ("X", "request") else method
            has_body |= last in ("d", "T") or last.startswith(("data", "json"))
    return method or ("POST" if has_body else "GET"), url


def _keylane_target(url: str) -> str | None:
    """Path and query where the URL is Keylane's, else None."""
    if variable := re.match(r"\$\{?\w+\}?(?=/)", url):
        return _STAGE.sub("", url[variable.end() :])
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        is_keylane = parts.hostname in ("localhost", "127.0.0.1") and parts.port == 8080
    except ValueError:
        return None
    if is_keylane or ".execute-api." in (parts.hostname or ""):
        return f"{parts.path if is_keylane else _STAGE.sub('', parts.path)}?{parts.query}"
    return None


def _route_faults(line: int, method: str, target: str, paths: Mapping[str, Mapping[str, Any]]) -> list[Fault]:
    path, _, query = target.partition("?")
    if path in ALSO_SERVED:
        return (
            [] if method in ALSO_SERVED[path] else [Fault(line, f"{method} {path}: there is no such route")]
        )
    names = [each for each in paths if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(each)), path)]
    # The path with the fewest parameters is meant: /topics/{topic}/keys:read is no key.
    name = min(names, key=lambda each: each.count("{"), default=None)
    operation = paths[name].get(method.lower()) if name else None
    if name is None or operation is None:
        return [Fault(line, f"{method} {path}: there is no such route")]
    described = [*paths[name].get("parameters", []), *operation.get("parameters", [])]
    known = {each["name"] for each in described if each.get("in") == "query"}
    given = [parameter for parameter, _ in parse_qsl(query, keep_blank_values=True)]
    return [Fault(line, f"{name} has no parameter {each!r}") for each in given if each not in known]


def _answer(output: tuple[str, ...]) -> str:
    """Give the JSON that was printed, from the first line that looks like it."""
    for index, line in enumerate(output):
        if line.startswith(("{", "[")):
            return "\n".join(output[index:]).strip()
    return ""


def _parse_all(text: str) -> None:
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        _, position = decoder.raw_decode(text, position)
        while position < len(text) and text[position].isspace():
            position += 1
