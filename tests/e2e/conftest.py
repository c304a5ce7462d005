from __future__ import annotations

import itertools

import pytest
from tests.e2e.client import Client

NUMBERS = itertools.count()


@pytest.fixture
def client(stack):
    client = Client(stack.http_url)
    yield client
    client.close()


@pytest.fixture
def key() -> bytes:
    """A key that no other test uses."""
    return b"e2e-%d" % next(NUMBERS)
