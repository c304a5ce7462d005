"""The documents: links lead somewhere, commands and requests exist, tables and words can be read."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from tests.support.project_files import ROOT, project_files
from tests.unit.docs import console, documents
from tests.unit.docs.documents import Document

from keylane_client.cli.commands import keylane

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.docs.console import Command
    from tests.unit.docs.documents import Fault

README_LINES = 150
PAGES = sorted(project_files(".md"))
MAKE_TARGETS = console.makefile_targets((ROOT / "Makefile").read_text(encoding="utf-8"))
ROUTES = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]


@cache
def document(page: Path) -> Document:
    return Document(page.read_text(encoding="utf-8"))


@cache
def texts_of_tests() -> dict[str, str]:
    """The texts of all files of tests, by file name."""
    tests: dict[str, str] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        tests[path.name] = tests.get(path.name, "") + path.read_text(encoding="utf-8")
    return tests


def link_faults(page: Path) -> list[Fault]:
    def anchors_of(path: str) -> set[str]:
        return document(page.parent / path).anchors()

    return documents.link_faults(document(page), lambda path: (page.parent / path).exists(), anchors_of)


def file_faults(page: Path) -> list[Fault]:
    return documents.file_faults(
        document(page), lambda path: (ROOT / path).exists() or (page.parent / path).exists()
    )


CHECKS: dict[str, Callable[[Path], list[Fault]]] = {
    "links lead somewhere": link_faults,
    "files that are named exist": file_faults,
    "tests that are cited exist": lambda page: documents.citation_faults(document(page), texts_of_tests()),
    "commands and requests of console blocks exist": lambda page: [
        fault for command in console.commands(document(page)) for fault in command_faults(command)
    ],
    "cells of tables are not too long": lambda page: documents.cell_faults(document(page)),
    "words are those of the field": lambda page: documents.word_faults(document(page)),
}


def shown(page: Path, faults: list[Fault]) -> str:
    return "".join(f"\n{page.relative_to(ROOT)}:{fault.line}: {fault.text}" for fault in faults)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.parametrize("check", CHECKS)
def test_of_every_page(check: str, page: Path):
    faults = CHECKS[check](page)
    assert not faults, shown(page, faults)


def test_the_readme_is_short():
    readme = ROOT / "README.md"
    faults = documents.length_faults(readme.read_text(encoding="utf-8"), README_LINES)
    assert not faults, shown(readme, faults)


def test_the_index_of_decisions_names_each_of_them():
    pages = {
        each.name: each.read_text(encoding="utf-8") for each in (ROOT / "docs" / "decisions").glob("*.md")
    }
    faults = documents.index_faults(pages.pop("README.md"), pages)
    assert not faults, shown(ROOT / "docs" / "decisions" / "README.md", faults)


def command_faults(command: Command) -> list[Fault]:
    match Path(command.words[0]).name:
        case "make":
            return console.make_faults(command, MAKE_TARGETS)
        case "keylane":
            return console.keylane_faults(command, keylane.list_commands(click.Context(keylane)))
        case "curl":
            return console.curl_faults(command, ROUTES)
        case _:
            return []
