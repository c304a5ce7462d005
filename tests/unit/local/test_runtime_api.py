"""The Runtime API of the local Lambda: what a runtime that dies leaves behind."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
from localstack_process_executor.runtime_api import RuntimeApi

if TYPE_CHECKING:
    from collections.abc import Iterator

INVOCATION = "/2018-06-01/runtime/invocation"
ANSWER = b'{"batchItemFailures": []}'
WITHIN_S = 10


@pytest.fixture
def api() -> Iterator[RuntimeApi]:
    opened = RuntimeApi()
    yield opened
    opened.end("the test is over")


@pytest.mark.parametrize("sent", [b"", ANSWER[:5]], ids=["nothing", "its beginning"])
def test_an_answer_that_a_killed_runtime_has_sent_in_part_is_none(api, sent):
    with ThreadPoolExecutor(1) as callers:
        called = callers.submit(api.invoke, "request-1", {}, b"{}", WITHIN_S)
        _take(api)
        host, port = api.address.split(":")
        with socket.create_connection((host, int(port)), timeout=WITHIN_S) as runtime:
            head = f"POST {INVOCATION}/request-1/response HTTP/1.1\r\nContent-Length: {len(ANSWER)}\r\n\r\n"
            runtime.sendall(head.encode() + sent)
            runtime.shutdown(socket.SHUT_WR)
            assert runtime.recv(1) == b""
        assert not called.done()
        api.end("its process was killed")
        answer = called.result(WITHIN_S)
    assert answer.failed
    assert b"its process was killed" in answer.payload


def test_an_answer_that_came_as_a_whole_is_the_invocation_s(api):
    with ThreadPoolExecutor(1) as callers:
        called = callers.submit(api.invoke, "request-1", {}, b"{}", WITHIN_S)
        _take(api)
        with contextlib.closing(HTTPConnection(api.address, timeout=WITHIN_S)) as runtime:
            runtime.request("POST", f"{INVOCATION}/request-1/response", ANSWER)
            assert runtime.getresponse().status == 202
        answer = called.result(WITHIN_S)
    assert not answer.failed
    assert answer.payload == ANSWER


def _take(api: RuntimeApi) -> None:
    with contextlib.closing(HTTPConnection(api.address, timeout=WITHIN_S)) as runtime:
        runtime.request("GET", f"{INVOCATION}/next")
        assert runtime.getresponse().read() == b"{}"
