from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.e2e.client import Client
from tests.servers.lambda_api import lambda_api
from tests.servers.own import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keylane_local.stack.stack import Stack

NUMBERS = itertools.count()
_NOISE = "FAIL [rdkafka#"
"""A line for each attempt to connect to a broker that is away: hundreds."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Iterator[pytest.TestReport]:
    """Add what the stack's job last said to the report of a failure: no process of a test has seen it."""
    report = yield
    if report.failed and (running := item.funcargs.get("stack")):
        said = running.job.program.log.read_text(encoding="utf-8", errors="replace").splitlines()
        state = "runs" if running.job.running else "has ended"
        last = [line for line in said if not line.startswith(_NOISE)][-40:]
        report.sections.append((f"The job {state}. Its log", "\n".join(last)))
    return report


@pytest.fixture(scope="session")
def lambda_url(stack, tmp_path_factory) -> Iterator[str]:
    """The address of the Lambda functions, beside the server of the same stack."""
    with lambda_api(tmp_path_factory.mktemp("lambda"), stack.environment()) as url:
        yield url


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
def produce(stack) -> Callable[[str, bytes, bytes | None], str]:
    """Write a value to a topic unchanged, past the API, and return its position."""
    producer = Producer({"bootstrap.servers": stack.kafka_bootstrap, "partitioner": "murmur2_random"})

    def write(topic: str, key: bytes, value: bytes | None) -> str:
        told = []
        producer.produce(topic, value, key, on_delivery=lambda error, message: told.append((error, message)))
        producer.flush(20)
        ((error, message),) = told
        assert error is None
        return f"{message.partition()}:{message.offset()}"

    return write


@pytest.fixture
def client(applied_stack):
    client = Client(applied_stack.http_url)
    yield client
    client.close()


@pytest.fixture
def key() -> bytes:
    """A key that no other test uses."""
    return b"e2e-%d" % next(NUMBERS)
