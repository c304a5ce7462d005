"""What documents and comments name exists: modules, identifiers, settings, and values of options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.project_files import ROOT, project_files
from tests.unit.docs import pointers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CODE = [path for path in project_files(".py") if str(path.relative_to(ROOT)).startswith(pointers.PRODUCT)]
PAGES = [path for path in project_files(".md") if path.name != "CHANGELOG.md"]
OF_CODE = (
    pointers.unknown_names,
    pointers.unknown_modules,
    pointers.unknown_settings,
    pointers.unknown_choices,
)
OF_PAGES = (pointers.unknown_modules, pointers.unknown_settings, pointers.unknown_choices)


def shown(path: Path, found: list[tuple[int, str]]) -> str:
    return "".join(
        f"\n{path.relative_to(ROOT)}:{line}: {name}: there is no such thing" for line, name in found
    )


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_comments_name_exists(path: Path):
    found = [
        (line, name) for line, text in pointers.comments(path) for check in OF_CODE for name in check(text)
    ]
    assert not found, shown(path, found)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_pages_name_exists(path: Path):
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    found = [(line, name) for line, text in lines for check in OF_PAGES for name in check(text)]
    assert not found, shown(path, found)


def test_what_pyproject_s_comments_name_exists():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    comments = [line.partition(" # ")[2] for line in text.splitlines()]
    assert [name for each in comments for check in OF_PAGES for name in check(each)] == []


@pytest.mark.parametrize(
    ("check", "text", "found"),
    [
        (
            pointers.unknown_names,
            "What is counted: `reporting_of_old` says where it goes.",
            ["reporting_of_old"],
        ),
        (pointers.unknown_modules, "see keylane_spark.columns.fields", ["keylane_spark.columns.fields"]),
        (pointers.unknown_modules, "as `keylane.query.lookups.Lookup`", ["keylane.query.lookups.Lookup"]),
        (pointers.unknown_modules, "as `keylane.query.lookup.Look`", ["keylane.query.lookup.Look"]),
        (pointers.unknown_settings, "`KEYLANE_TOPICKS` names them", ["KEYLANE_TOPICKS"]),
        (pointers.unknown_choices, 'connections of reader = "tasks"', ['reader = "tasks"']),
        (pointers.unknown_choices, '`value_format = "avro"`', ['value_format = "avro"']),
    ],
)
def test_what_does_not_exist_is_found(check: Callable[[str], list[str]], text: str, found: list[str]):
    assert check(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "`plan_lookup` of keylane.query.lookup, and `keylane.query.lookup.plan_lookup`",
        "the logger keylane.serve, and keylane.topic('orders')",
        "KEYLANE_TOPICS, and all of KEYLANE_KAFKA_*",
        'reader = "spark", value_format = "registry", n = 3',
    ],
)
def test_what_exists_is_not(text: str):
    assert [name for check in OF_CODE for name in check(text)] == []
