from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.order import shuffle_within_files

NAMES = [f"test_{file}.py::test_{number}" for file in "ba" for number in range(8)]


def item(name: str, marked: str) -> Any:
    def marker_of(marker: str) -> str | None:
        return marker if marker == "last" and name == marked else None

    path = Path(name.partition("::")[0])
    return SimpleNamespace(nodeid=name, path=path, get_closest_marker=marker_of)


def in_order_of(seed: int, names: list[str], marked: str = "") -> list[str]:
    items = [item(name, marked) for name in names]
    shuffle_within_files(items, seed)
    return [each.nodeid for each in items]


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


def test_a_test_that_destroys_what_its_file_shares_comes_last_in_it():
    for seed in range(20):
        found = in_order_of(seed, NAMES, "test_b.py::test_3")
        assert found.index("test_b.py::test_3") == 7
        assert set(found[:8]) == set(NAMES[:8])
