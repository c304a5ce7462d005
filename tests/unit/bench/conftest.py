"""The benchmarks are scripts beside each other: their folder is on the path while a test uses them."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench_module(monkeypatch):
    """Return a function that imports a module of the benchmarks; all of them are forgotten at the end."""
    monkeypatch.syspath_prepend(BENCH)
    before = set(sys.modules)
    yield import_module
    for name in set(sys.modules) - before:
        if str(BENCH) in str(getattr(sys.modules[name], "__file__", "")):
            sys.modules.pop(name)
