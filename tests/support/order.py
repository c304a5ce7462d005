"""Which tests run, and in which order.

`--order-seed`: the tests of each file in a random order, which the seed brings back. No plugin:
pytest-randomly and pytest-random-order shuffle files, too, which undoes the order of shared servers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def shuffle_within_files(items: list[pytest.Item], seed: int) -> None:
    """Sort the tests of each file by the seed; files stay where they are.

    A test's turn depends on its id alone: those that `-k` or the command line choose keep their order. One
    that is marked `last` comes after the others: it destroys what its file shares.
    """
    files = {path: number for number, path in enumerate(dict.fromkeys(item.path for item in items))}

    def turn(item: pytest.Item) -> tuple[int, bool, bytes]:
        is_last = item.get_closest_marker("last") is not None
        return files[item.path], is_last, hashlib.sha256(f"{seed} {item.nodeid}".encode()).digest()

    items.sort(key=turn)


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
