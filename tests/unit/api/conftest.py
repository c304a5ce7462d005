"""What the tests of REST Proxy's routes write to."""

from __future__ import annotations

import pytest
from tests.support.fakes import FakeLog, FakeSchemaWriter


@pytest.fixture
def log() -> FakeLog:
    """A log with the topic `test`, of three partitions."""
    log = FakeLog()
    log.create("test", 3)
    return log


@pytest.fixture
def schemas() -> FakeSchemaWriter:
    return FakeSchemaWriter()
