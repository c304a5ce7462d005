"""Tests in containers run only if asked for: they build images and take many minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.docker import containers
from tests.docker.containers import Compose
from tests.e2e.client import Client
from tests.e2e.examples import write_records
from tests.support.order import leave_out

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests out unless `-m` names them."""
    leave_out("docker", config, items)


@pytest.fixture(scope="session")
def compose() -> Iterator[Compose]:
    """The stack of compose.yaml, up and healthy, with the tests' topics."""
    if reason := containers.missing():
        pytest.skip(reason)
    made = Compose()
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="session")
def filled(compose: Compose) -> Compose:
    """The stack, with the records that the examples read."""
    client = Client(compose.url)
    write_records(client)
    client.close()
    return compose


@pytest.fixture(scope="session")
def functions(filled: Compose) -> Compose:
    """The filled stack, and the built functions."""
    containers.build_functions()
    return filled


@pytest.fixture(scope="session")
def lambdas(functions: Compose) -> Iterator[str]:
    """The URL of `sam local start-lambda`."""
    with containers.start_lambda() as url:
        yield url


@pytest.fixture(scope="session")
def api(functions: Compose) -> Iterator[str]:
    """The URL of `sam local start-api`."""
    with containers.start_api() as url:
        yield url
