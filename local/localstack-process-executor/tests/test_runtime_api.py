"""The Runtime API of the LocalStack executor, as a runtime sees it: over HTTP."""

from __future__ import annotations

import http.client
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from localstack_process_executor.runtime_api import (
    MAX_ANSWER_BYTES,
    TOO_LARGE,
    Answer,
    InitError,
    RuntimeApi,
    RuntimeGone,
)

PREFIX = "/2018-06-01/runtime"
HEADERS = {"Lambda-Runtime-Aws-Request-Id": "r1"}


@pytest.fixture
def api():
    served = RuntimeApi()
    yield served
    served.end("the test is over")


@pytest.fixture
def caller():
    """Who invokes, while the test plays the runtime."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def runtime(api):
    """Ask as a runtime does: over one connection that is kept."""
    connection = http.client.HTTPConnection(api.address, timeout=20)

    def ask(method, path, body=None):
        connection.request(method, f"{PREFIX}/{path}", body)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()

    yield ask
    connection.close()


@pytest.fixture
def waiting(api, caller, runtime):
    """A call that waits for the answer of its runtime, which has received it."""
    called = caller.submit(api.invoke, "r1", HEADERS, b"{}", 20)
    runtime("GET", "invocation/next")
    return called


def test_a_runtime_gets_an_event_with_headers_and_its_answer_is_returned(api, caller, runtime):
    waiting = caller.submit(api.invoke, "r1", HEADERS, b'{"a": 1}', 20)
    status, headers, body = runtime("GET", "invocation/next")
    assert (status, body) == (200, b'{"a": 1}')
    assert headers["Lambda-Runtime-Aws-Request-Id"] == "r1"
    assert api.ready.done()
    assert runtime("POST", "invocation/r1/response", b'"done"')[0] == 202
    assert waiting.result(20) == Answer(failed=False, payload=b'"done"')


def test_an_error_of_the_handler_is_a_failed_answer(waiting, runtime):
    runtime("POST", "invocation/r1/error", b'{"errorType": "KeyError"}')
    assert waiting.result(20) == Answer(failed=True, payload=b'{"errorType": "KeyError"}')


def test_a_runtimes_report_of_an_unloadable_handler_is_an_init_error(api, runtime):
    assert runtime("POST", "init/error", b'{"errorType": "ImportError"}')[0] == 202
    with pytest.raises(InitError, match="ImportError"):
        api.ready.result(20)


def test_an_answer_over_six_mebibytes_is_rejected_and_the_caller_gets_an_error(waiting, runtime):
    assert runtime("POST", "invocation/r1/response", b"x" * (MAX_ANSWER_BYTES + 1))[0] == 413
    assert waiting.result(20) is TOO_LARGE


@pytest.mark.parametrize("path", ["invocation/r2/response", "invocation/r2/error"])
def test_an_answer_to_an_unknown_invocation_is_rejected(waiting, runtime, path):
    assert runtime("POST", path, b"{}")[0] == 400
    assert not waiting.done()
    runtime("POST", "invocation/r1/response", b"1")
    assert runtime("POST", "invocation/r1/response", b"2")[0] == 400
    assert waiting.result(20).payload == b"1"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "invocation/r1/response"), ("POST", "invocation/next"), ("GET", "else")]
)
def test_an_unknown_path_is_404(runtime, method, path):
    assert runtime(method, path)[0] == 404


def test_a_runtime_that_ends_during_an_invocation_fails_it(api, waiting):
    api.end("exit status 3")
    answer = waiting.result(20)
    assert answer.failed
    assert b"Runtime.ExitError" in answer.payload
    assert b"RequestId: r1 Error: exit status 3" in answer.payload


@pytest.mark.parametrize("sent", [b"", b'"do'], ids=["nothing", "its beginning"])
def test_an_answer_that_a_killed_runtime_has_sent_in_part_is_none(api, waiting, sent):
    host, port = api.address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as killed:
        head = f"POST {PREFIX}/invocation/r1/response HTTP/1.1\r\nContent-Length: 6\r\n\r\n"
        killed.sendall(head.encode() + sent)
        killed.shutdown(socket.SHUT_WR)
        assert killed.recv(1) == b""
    assert not waiting.done()
    api.end("the process was killed")
    answer = waiting.result(20)
    assert answer.failed
    assert b"the process was killed" in answer.payload


def test_an_invocation_that_no_runtime_received_can_be_retried(api, caller):
    waiting = caller.submit(api.invoke, "r1", HEADERS, b"{}", 20)
    end_s = time.monotonic() + 20
    while api._queue.empty():
        assert time.monotonic() < end_s, "the call is not queued"
    api.end("exit status 3")
    with pytest.raises(RuntimeGone):
        waiting.result(20)
    with pytest.raises(RuntimeGone):
        api.invoke("r2", HEADERS, b"{}", 20)


def test_a_runtime_that_ends_before_it_asks_for_work_is_an_init_error(api):
    api.end("exit status 1")
    with pytest.raises(InitError, match="exit status 1"):
        api.ready.result(20)


def test_a_slow_runtime_is_a_timeout(api):
    with pytest.raises(TimeoutError):
        api.invoke("r1", HEADERS, b"{}", 0.01)
