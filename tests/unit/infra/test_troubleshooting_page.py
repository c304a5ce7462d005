"""docs/operate/troubleshooting.md has every alarm, exit code and 5xx problem, and quotes real log lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operate" / "troubleshooting.md").read_text(encoding="utf-8")
HEADINGS = " ".join(re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)).split()
ERRORS = (ROOT / "docs" / "http" / "errors.md").read_text(encoding="utf-8")
SOURCES = "".join(
    file.read_text(encoding="utf-8")
    for folder in ("spark", "layers", "cli", "local", "server")
    for file in sorted((ROOT / folder).rglob("*.py"))
)


def first_cells(heading: str) -> list[str]:
    """What stands in backticks in the first column of the table under a heading."""
    section = PAGE.partition(f"# {heading}\n")[2].partition("\n#")[0]
    return re.findall(r"^\| (?:other |`)([^`|]+)`? \|", section, re.MULTILINE)


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"^\| `([a-z-]+)` \| 5\d\d \|", ERRORS, re.MULTILINE)))
)
def test_page_has_a_section_for_each_problem_of_the_service(name):
    assert name in HEADINGS or f"`{name}` | 503 | - | Reserved" in ERRORS


def test_page_has_each_exit_code_of_the_job():
    source = (ROOT / "spark" / "keylane_spark" / "__main__.py").read_text(encoding="utf-8")
    codes = set(re.findall(r"^ +return (\d)$", source, re.MULTILINE))
    section = PAGE.partition("### Exit codes")[2].partition("\n###")[0]
    assert set(re.findall(r"^\| (\d) \|", section, re.MULTILINE)) == codes


@pytest.mark.parametrize("fragment", first_cells("Log lines"))
def test_job_logs_what_the_page_quotes(fragment):
    assert fragment in SOURCES


@pytest.mark.parametrize("fragment", first_cells("state-unavailable"))
def test_state_unavailable_says_what_the_page_quotes(fragment):
    assert all(part in SOURCES for part in fragment.split("`, `"))


@pytest.mark.parametrize("fragment", [*first_cells("log-unavailable"), *first_cells("The local stack")])
def test_messages_with_names_and_numbers_in_them_are_those_of_the_code(fragment):
    parts = [part.strip() for part in re.split(r"\.\.\.|\bN\b", fragment)]
    assert all(part in SOURCES for part in parts)


def test_the_quotes_are_found():
    assert len(first_cells("log-unavailable")) > 3
    assert len(first_cells("The local stack")) > 8
    assert len(first_cells("Log lines")) > 10
    assert len(first_cells("state-unavailable")) > 3


@pytest.mark.parametrize("reason", first_cells("Dead letters"))
def test_dead_letters_have_the_reasons_that_the_page_lists(reason):
    assert reason in SOURCES or reason == "names of Kafka"
