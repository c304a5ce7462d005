"""Figures that stand on several pages are those of docs/benchmarks.md."""

from __future__ import annotations

import re

import pytest

from keylane_local.tools import project_root

ROOT = project_root()
SENTENCE = "readable {alone} ms (p50) after Kafka acknowledged it, {among} ms among 1,000 records/s"
LIKE_IT = re.compile(r"readable (?:about )?[\d.]+ (?:ms|s)\b")


def measured(name: str) -> int:
    """The median that the table of benchmarks has measured, to the millisecond."""
    table = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    [(median,)] = [
        re.findall(r"^([\d.]+) and [\d.]+ ms", cells[2])
        for line in table.splitlines()
        if line.startswith(f"| {name}")
        for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
    ]
    return round(float(median))


@pytest.mark.parametrize("page", ["README.md", "docs/migrate/README.md"])
def test_freshness_is_what_was_measured(page):
    sentence = SENTENCE.format(alone=measured("freshness alone"), among=measured("freshness among"))
    assert sentence in (ROOT / page).read_text(encoding="utf-8")


def test_no_other_page_says_how_fresh_reads_are():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {page.relative_to(ROOT).as_posix() for page in pages if LIKE_IT.search(page.read_text("utf-8"))}
    assert found - {"docs/benchmarks.md"} == {"README.md", "docs/migrate/README.md"}
