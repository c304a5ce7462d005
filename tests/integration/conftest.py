"""What tests on real servers share."""

from __future__ import annotations

import pytest
from tests.servers.own import create_topic
from tests.support.builders import a_topic


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: str) -> str:
    """A new topic in Kafka, of as many partitions as `PARTITIONS` of the test's file says, or of one."""
    name = a_topic()
    create_topic(kafka, name, getattr(request.module, "PARTITIONS", 1))
    return name
