"""Rules of the code's structure that no linter has: names that are unique, functions that fit on a screen."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

import pytest

from keylane_local.tools import project_root

if TYPE_CHECKING:
    from pathlib import Path

ROOT = project_root()
SCREEN_LINES = 60
PACKAGES = (
    "layers/keylane/python/keylane",
    "spark/keylane_spark",
    "cli/keylane_cli",
    "local/keylane_local",
    "server/keylane_server",
    "tools/keylane_build",
    "functions",
)
CLIENT = ("clients/python/keylane_client",)
"""A package of its own, which names what users see as the API does: `Record`, `Position`, `KeyAbsent`."""


@cache
def modules(package: str) -> list[tuple[Path, ast.Module]]:
    return [
        (path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


def modules_of(packages: tuple[str, ...]) -> list[tuple[Path, ast.Module]]:
    return [each for package in packages for each in modules(package)]


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


@pytest.mark.parametrize("package", PACKAGES + CLIENT)
def test_a_package_that_is_named_here_has_modules(package: str):
    assert modules(package)


def test_there_is_no_python_below_infra():
    """What ships, and what only a checkout needs, has folders of its own."""
    assert (ROOT / "infra").is_dir()
    assert not list((ROOT / "infra").rglob("*.py"))


def test_a_class_name_is_used_once_in_the_whole_project():
    assert repeated_class_names(modules_of(PACKAGES)) == {}
    assert repeated_class_names(modules_of(CLIENT)) == {}


def test_a_function_fits_on_a_screen():
    assert long_functions(modules_of(PACKAGES + CLIENT)) == []


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
