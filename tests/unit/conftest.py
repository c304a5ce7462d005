"""Tests that are coroutines, each in an event loop of its own, and those that look at what is freed."""

from __future__ import annotations

import asyncio
import gc
import inspect
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Objects in cycles stay: Python does not look for them."""
    gc.disable()
    yield
    gc.enable()
