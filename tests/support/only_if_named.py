"""Tests that take many minutes run only if `-m` names their marker, as a target of the Makefile does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def leave_out(marker: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests with this marker out, unless `-m` names it; for `pytest_collection_modifyitems`."""
    if marker in config.option.markexpr:
        return
    kept, left_out = [], []
    for item in items:
        (left_out if item.get_closest_marker(marker) else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
