from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.order import shuffle_within_files

NAMES = [f"test_{file}.py::test_{number}" for file in "ba" for number in range(8)]


def in_order_of(seed: int, names: list[str]) -> list[str]:
    items: list[Any] = [SimpleNamespace(nodeid=name, path=Path(name.partition("::")[0])) for name in names]
    shuffle_within_files(items, seed)
    return [item.nodeid for item in items]


def test_a_seed_shuffles_the_tests_of_each_file_and_leaves_the_files_where_they_are():
    found = in_order_of(1, NAMES)
    assert set(found[:8]) == set(NAMES[:8])
    assert found[:8] != NAMES[:8]
    assert set(found[8:]) == set(NAMES[8:])
    assert [name[-1] for name in found[:8]] != [name[-1] for name in found[8:]]


def test_a_seed_brings_its_order_back_for_some_of_the_tests_too():
    whole = in_order_of(1, NAMES)
    assert in_order_of(1, NAMES) == whole
    assert in_order_of(2, NAMES) != whole
    assert in_order_of(1, NAMES[2:6]) == [name for name in whole if name in NAMES[2:6]]
