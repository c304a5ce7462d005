"""The example requests over HTTP, and their events in `events/` with `keylane invoke`."""

from __future__ import annotations

import contextlib
import http.client
import json
from urllib.parse import urlsplit

import pytest
from tests.e2e.client import Client
from tests.e2e.examples import EVENTS, EXAMPLES, write_records
from tests.support.builders import load_handler

from keylane.model.routes import STREAMS
from keylane_cli import invoke

EVENT_STREAM = "text/event-stream", (b":", b"id:", b"event:", b"retry:")
LINES = "application/x-ndjson", b'{"begin": '


@pytest.fixture(scope="module")
def filled(stack, registry):
    """The stack, with the records that the examples read."""
    client = Client(stack.http_url)
    write_records(client)
    yield stack
    client.close()


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in STREAMS])
def test_example_is_answered_over_http(filled, client, name):
    example = EXAMPLES[name]
    answer = example.send(client)
    assert answer.status == example.status, answer.body


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_example_of_a_stream_begins(filled, name):
    with contextlib.closing(http.client.HTTPConnection(urlsplit(filled.http_url).netloc, timeout=60)) as sent:
        sent.request("GET", EXAMPLES[name].path)
        answer = sent.getresponse()
        expected, first = LINES if name == "get_snapshot" else EVENT_STREAM
        assert (answer.status, answer.headers["Content-Type"]) == (200, expected)
        assert answer.readline().startswith(first)


@pytest.fixture(scope="module")
def functions(filled):
    """The functions in this process: one for each event would be fifty interpreters."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in filled.environment().items():
            patch.setenv(name, value)
        yield {name: load_handler(name) for name in {each.function for each in EXAMPLES.values()}}


@pytest.mark.parametrize("name", EXAMPLES)
def test_event_is_answered_by_its_function(functions, name):
    example = EXAMPLES[name]
    event = invoke.read_event(EVENTS / example.function / f"{name}.json")
    answer = functions[example.function].lambda_handler(json.loads(event), None)
    assert answer["statusCode"] == example.status, answer


@pytest.mark.parametrize("name", ["get_key", "push", "get_topics"])
def test_event_is_answered_by_its_function_in_a_process_of_its_own(filled, tmp_path, name):
    example = EXAMPLES[name]
    log = tmp_path / "function.log"
    function = invoke.describe_function(example.function, None, log, filled.environment())
    done = invoke.invoke(function, invoke.read_event(EVENTS / example.function / f"{name}.json"))
    assert not done.response.failed, log.read_text()
    answer = json.loads(done.response.payload)
    assert answer["statusCode"] == example.status, answer
    assert done.init_ms > 0


def test_batch_of_the_write_ahead_log_is_drained(filled, client, tmp_path):
    log = tmp_path / "function.log"
    variables = {**filled.environment(), "KEYLANE_DLQ_URL": "http://127.0.0.1:1/000000000000/dead.fifo"}
    function = invoke.describe_function("drain", None, log, variables)
    before = client.request("GET", "/topics/flights/partitions/2/offsets?at=latest").json["offset"]
    done = invoke.invoke(function, invoke.read_event(EVENTS / "drain" / "queued.json"))
    assert json.loads(done.response.payload) == {"batchItemFailures": []}, log.read_text()
    found = client.request("GET", f"/topics/flights/partitions/2/records?offset={before}").json["records"]
    assert [each["key"] for each in found] == ["N14228"]
