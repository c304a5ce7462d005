"""The site's sources: each page has its place, and nothing is changed but by addition."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from keylane_build import api_reference, site
from keylane_build.openapi import document

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "source"
    site.write_sources(ROOT, folder)
    return folder


def entries(page: Path) -> list[Path]:
    found = re.findall(r"```{toctree}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names = [line for block in found for line in block.splitlines() if line and not line.startswith(":")]
    return [page.parent / f"{name}.md" for name in names]


def test_each_page_is_in_one_table_of_contents(sources):
    named = [entry for page in sources.rglob("*.md") for entry in entries(page)]
    assert sorted(named) == sorted(set(sources.rglob("*.md")) - {sources / "README.md"})


def test_pages_are_those_of_the_repository_with_a_table_of_contents_behind_some(sources):
    for page in sources.rglob("*.md"):
        original = ROOT / page.relative_to(sources)
        if "reference" in page.parts:
            continue
        text = page.read_text(encoding="utf-8")
        assert text.startswith(original.read_text(encoding="utf-8"))
        assert not re.sub(
            r"\n```{toctree}\n.*?```\n", "", text[len(original.read_text("utf-8")) :], flags=re.DOTALL
        )


def test_the_reference_has_each_operation_and_each_document(sources):
    page = (sources / f"{site.HTTP_PAGE}.md").read_text(encoding="utf-8")
    spec = document()
    for path, methods in spec["paths"].items():
        for method in methods.keys() - {"head"}:
            assert f"### `{method.upper()} {path}`\n" in page
    for name in spec["components"]["schemas"]:
        assert f"### {name}\n" in page
    assert set(re.findall(r"\]\(#([a-z0-9]+)\)", page)) <= {
        each.lower() for each in spec["components"]["schemas"]
    }


def test_a_schema_is_said_in_a_few_words():
    kind_of = api_reference.kind_of
    assert kind_of({"$ref": "#/components/schemas/Row"}) == "[Row](#row)"
    assert (
        kind_of({"type": "array", "items": {"type": "string"}, "maxItems": 3})
        == "array of string (3 at most)"
    )
    assert kind_of({"type": ["integer", "null"], "minimum": 0}) == "integer or null (from 0)"
    assert kind_of({"enum": ["a", None]}) == '`"a"` or `null`'
    assert kind_of({"type": "boolean", "default": False}) == "boolean (default `false`)"
    assert kind_of({}) == "any JSON"
