from __future__ import annotations

import importlib.util

import pytest

from keylane_local import tools

SCRIPT = tools.project_root() / "local" / "localstack_setup" / "backport.py"

SOURCE = """
from __future__ import annotations
import abc
from queue import PriorityQueue, Queue

class Named[T: int](abc.ABC):
    pass

class Line[T](Queue):
    pass

class Lines[T](PriorityQueue[T], Line[T]):
    pass

class Bare[First, Second]:
    first: First

    def method[Third](self, value: Third) -> Third:
        return value

def first[T](
    values: list[T]
) -> T:
    return values[0]

type Event = dict | str
ordinary = {"class Not[T]": [1][0]}
"""


@pytest.fixture
def backport():
    """The module of the script."""
    spec = importlib.util.spec_from_file_location("backport", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_type_parameters_are_rewritten_for_python_3_11(backport):
    made = {"__name__": "made"}
    exec(compile(backport.rewritten(SOURCE), "made", "exec", dont_inherit=True), made)  # noqa: S102
    assert made["first"]([3, 4]) == 3
    assert made["Bare"]().method(5) == 5
    assert made["Bare"][int, str].__origin__ is made["Bare"]
    assert issubclass(made["Lines"], made["Line"])
    assert made["Event"] == dict | str
    assert made["ordinary"] == {"class Not[T]": 1}


def test_a_second_rewrite_changes_nothing(backport):
    once = backport.rewritten(SOURCE)
    assert backport.rewritten(once) == once != SOURCE


def test_compatible_source_is_left_unchanged(backport):
    source = "class Plain(dict):\n    kept: dict[str, int]\n"
    assert backport.rewritten(source) == source


def test_names_of_newer_libraries_are_imported_from_backports(backport):
    assert backport.rewritten("from warnings import deprecated\n") == (
        "from typing_extensions import deprecated\n"
    )
