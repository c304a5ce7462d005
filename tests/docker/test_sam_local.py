"""Every event of `events/` in SAM's containers, every example through `sam local start-api`.

`sam local invoke` starts SAM and a container for each event, which takes up to a minute: one event of each
function goes through it, and all of them through `sam local start-lambda`.
"""

from __future__ import annotations

import pytest
from tests.docker import containers
from tests.e2e.client import Client, path_of
from tests.e2e.examples import EVENTS, EXAMPLES

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]


@pytest.fixture
def client(api):
    client = Client(api)
    yield client
    client.close()


@pytest.mark.parametrize("name", ["put_key", "get_key", "get_clusters"])
def test_event_is_answered_by_the_function_that_sam_invokes(functions, name):
    example = EXAMPLES[name]
    answer = containers.invoke(example.function, EVENTS / example.function / f"{name}.json")
    assert answer["statusCode"] == example.status, answer


def test_batch_of_the_write_ahead_log_is_drained(functions):
    answer = containers.invoke("drain", EVENTS / "drain" / "queued.json")
    assert answer == {"batchItemFailures": []}


@pytest.mark.parametrize("name", EXAMPLES)
def test_event_is_answered_by_its_function(lambdas, name):
    example = EXAMPLES[name]
    answer = containers.invoke_at(lambdas, example.function, EVENTS / example.function / f"{name}.json")
    assert answer["statusCode"] == example.status, answer


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_answered_by_the_local_api(client, name):
    example = EXAMPLES[name]
    answer = example.send(client)
    assert answer.status == example.status, answer.body


def test_what_was_written_is_read_and_deleted(client):
    position = client.put("flights", b"sam-local", b'{"dest": "BRN"}')
    read = client.get("flights", b"sam-local", Keylane_Min_Position=position, Prefer="wait=20")
    assert (read.status, read.json) == (200, {"dest": "BRN"})
    deleted = client.request("DELETE", path_of("flights", b"sam-local")).json["position"]
    gone = client.get("flights", b"sam-local", Keylane_Min_Position=deleted, Prefer="wait=20")
    assert gone.status == 404


def test_value_of_any_bytes_comes_back_unchanged(client):
    value = bytes(range(256))
    position = client.put("flights", b"sam-bytes", value, Content_Type="application/octet-stream")
    read = client.get(
        "flights",
        b"sam-bytes",
        Keylane_Min_Position=position,
        Prefer="wait=20",
        Accept="application/octet-stream",
    )
    assert (read.status, read.body) == (200, value)
