"""Rules of the code's structure that no linter has: names that are unique, functions that fit on a screen."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT = project_root()
SCREEN_LINES = 60
PACKAGES = (
    "layers/keylane/python/keylane",
    "spark/keylane_spark",
    "infra/local/keylane_local",
    "server/keylane_server",
    "infra/build/keylane_build",
    "functions",
)
CLIENT = ("clients/python/keylane_client",)
"""A package of its own, which names what users see as the API does: `Record`, `Position`, `KeyAbsent`."""


def modules(packages: tuple[str, ...] = PACKAGES) -> Iterator[tuple[Path, ast.Module]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def repeated_class_names(found: list[tuple[Path, ast.Module]]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for path, tree in found:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    return {name: lines for name, lines in places.items() if len(lines) > 1}


def long_functions(found: list[tuple[Path, ast.Module]]) -> list[str]:
    return [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in found
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= SCREEN_LINES
    ]


def test_a_class_name_is_used_once_in_the_whole_project():
    assert repeated_class_names(list(modules())) == {}
    assert repeated_class_names(list(modules(CLIENT))) == {}


def test_a_function_fits_on_a_screen():
    assert long_functions(list(modules(PACKAGES + CLIENT))) == []


@pytest.mark.parametrize(
    ("text", "repeated", "long"),
    [
        ("class A: ...\nclass B: ...\n", [], 0),
        ("class A: ...\ndef f():\n    class A: ...\n", ["A"], 0),
        ("def f():\n" + "    x = 1\n" * SCREEN_LINES, [], 1),
    ],
)
def test_the_checks_find_what_they_are_for(text: str, repeated: list[str], long: int):
    found = [(ROOT / "x.py", ast.parse(text))]
    assert list(repeated_class_names(found)) == repeated
    assert len(long_functions(found)) == long
