"""Checks of what console blocks show: make targets, subcommands, requests and their answers. Pure."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from tests.unit.docs.documents import Fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tests.unit.docs.documents import Document

ALSO_SERVED = {"/metrics": {"GET"}}
"""What the server serves beside the API."""

_ELIDED = re.compile(r"\.\.\.|…")
_STAGE = re.compile(r"^/v\d+(?=/)")  # of API Gateway
_BETWEEN = frozenset({"|", "||", "&&", ";", "&"})
_CURL_VALUES = frozenset("HdXoumTAebFw") | {"request", "header", "data", "data-raw", "data-binary", "json"}
_CURL_VALUES |= {"data-urlencode", "output", "user", "max-time", "write-out", "upload-file"}


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block and the lines that it printed."""

    line: int
    words: tuple[str, ...]
    output: tuple[str, ...] = ()


def commands(document: Document) -> Iterator[Command]:
    """Give the commands of all ```console blocks."""
    numbered = ((n, line) for n, line, language in document.lines() if language == "console")
    # Lines that follow one another are a block.
    for _, block in groupby(enumerate(numbered), key=lambda each: each[1][0] - each[0]):
        yield from _commands([line for _, line in block])


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
    if "conditions" in known:
        return []  # all others are fields of the topic
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
