"""docs/configuration/settings.md names what the code reads, and nothing else."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from keylane.config import kafka

ROOT = Path(__file__).parents[3]
CODE = ("functions", "layers", "spark", "infra")
VARIABLE = re.compile(r"KEYLANE_[A-Z0-9_]*[A-Z0-9]\b(?!_)")
DOCUMENT = (ROOT / "docs" / "configuration" / "settings.md").read_text()


def rows() -> list[str]:
    """Variables in a table's first column."""
    return re.findall(r"^\| `(KEYLANE_[A-Z0-9_]+)` \|", DOCUMENT, re.MULTILINE)


def test_every_variable_that_is_read_has_one_row_and_every_row_is_read():
    files = chain.from_iterable((ROOT / folder).rglob("*.py") for folder in CODE)
    read = {name for file in files for name in VARIABLE.findall(file.read_text())}
    listed = rows()
    assert read - {"KEYLANE_KAFKA"} == set(listed)
    assert len(listed) == len(set(listed))


def test_all_that_a_cluster_may_have_is_listed():
    assert set(kafka.CONNECTION) | set(kafka.OPTIONS) < set(rows())
