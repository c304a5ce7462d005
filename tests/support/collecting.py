"""A plugin of pytest: `-p tests.support.collecting --collected-to FILE` writes as JSON what was collected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_left_out: list[pytest.Item] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--collected-to", required=True, type=Path)


def pytest_deselected(items: list[pytest.Item]) -> None:
    _left_out.extend(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the tests that would run, in their order, those that are left out, and all tests' markers."""
    every = [*session.items, *_left_out]
    found = {
        "chosen": [item.nodeid for item in session.items],
        "left_out": [item.nodeid for item in _left_out],
        "markers": {item.nodeid: sorted({each.name for each in item.iter_markers()}) for item in every},
    }
    session.config.getoption("collected_to").write_text(json.dumps(found), encoding="utf-8")
