"""What the tests of writes write to."""

from __future__ import annotations

import pytest
from tests.support.fakes import FakeLog, FakeSchemaWriter

TOPICS = {"t": 1, "orders": 1, "good": 1, "limited": 1, "test": 3, "SOME_TOPIC": 9}


@pytest.fixture
def log() -> FakeLog:
    """A log with these topics, of so many partitions."""
    log = FakeLog()
    for topic, count in TOPICS.items():
        log.create(topic, count)
    return log


@pytest.fixture
def schemas() -> FakeSchemaWriter:
    return FakeSchemaWriter()
