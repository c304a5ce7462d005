from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.e2e.client import Client
from tests.servers.own import eventually

if TYPE_CHECKING:
    from keylane_local.stack.stack import Stack

NUMBERS = itertools.count()


@pytest.fixture
def client(stack):
    client = Client(stack.http_url)
    yield client
    client.close()


@pytest.fixture(scope="session")
def applied_stack(stack) -> Stack:
    """The stack, once its job has applied a record: the first one takes long on a machine that is busy."""
    client = Client(stack.http_url)
    position = client.put("flights", b"e2e-first", b"1")
    wait = {"Keylane_Min_Position": position, "Prefer": "wait=20"}
    eventually(lambda: client.get("flights", b"e2e-first", **wait).status == 200, 240)
    client.close()
    return stack


@pytest.fixture
def key() -> bytes:
    """A key that no other test uses."""
    return b"e2e-%d" % next(NUMBERS)
