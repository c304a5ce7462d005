"""A database with its connectors: these tests have a target of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.order import leave_out

if TYPE_CHECKING:
    import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests out unless `-m` names them."""
    leave_out("databases", config, items)
