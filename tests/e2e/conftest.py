from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.e2e.client import Client
from tests.servers.own import eventually
from tests.servers.standing import standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from keylane_local.stack.stack import Stack

NUMBERS = itertools.count()


BY_BOTH = ("test_keys", "test_lists", "test_push")
"""Modules whose tests run against the front with its Lambda functions, and against the standing server."""


def pytest_generate_tests(metafunc):
    if "client" in metafunc.fixturenames and metafunc.module.__name__.rpartition(".")[2] in BY_BOTH:
        metafunc.parametrize("client", ["front", "server"], indirect=True)


@pytest.fixture(scope="session")
def server_url(stack, tmp_path_factory) -> Iterator[str]:
    """The address of the standing server, beside the front of the same stack."""
    with standing(tmp_path_factory.mktemp("serve") / "log", stack.environment()) as running:
        yield running.url


@pytest.fixture
def client(request, applied_stack):
    by_server = getattr(request, "param", "front") == "server"
    client = Client(request.getfixturevalue("server_url") if by_server else applied_stack.http_url)
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
