"""The Lambda functions behind a stand-in for API Gateway: each invocation in a process of AWS's runtime."""

from __future__ import annotations

import contextlib
import functools
import json
import queue
import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.support.http_doubles import Exchange, HttpDouble
from tests.support.proxy_events import (
    HttpRequest,
    build_proxy_event,
    parse_function_response,
    render_message,
)

from keylane.model.routes import FUNCTIONS, find
from keylane_cli.invoke import describe_function
from keylane_local.process.lambda_process import LambdaProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from keylane_local.process.lambda_process import Function


class _Environments:
    """The environments of one function: as many as there are invocations at once, kept warm."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._idle: queue.LifoQueue[LambdaProcess] = queue.LifoQueue()
        self._all: list[LambdaProcess] = []

    def invoke(self, event: bytes, request_id: str) -> bytes | None:
        """Return the function's response; None if it failed."""
        try:
            environment = self._idle.get_nowait()
        except queue.Empty:
            environment = LambdaProcess(self._function).__enter__()
            self._all.append(environment)
        response = environment.call(event, request_id)
        self._idle.put(environment)
        return None if response.failed else response.payload

    def stop(self) -> None:
        for environment in self._all:
            environment.stop()


def _reply(functions: Mapping[str, _Environments], asked: Exchange) -> None:
    headers, caller = tuple(asked.headers.items()), asked.client_address[0]
    request = HttpRequest(asked.command, asked.path, headers, asked.body(), caller)
    request_id = str(uuid.uuid4())
    event = json.dumps(build_proxy_event(request, request_id)).encode()
    payload = functions[find(request.method, urlsplit(request.target).path).function].invoke(
        event, request_id
    )
    answer = (
        render_message(502, "Internal server error") if payload is None else parse_function_response(payload)
    )
    asked.answer(answer.status, answer.body, answer.headers)


@contextlib.contextmanager
def lambda_api(folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the URL of an API whose functions have these variables; each logs into a file of `folder`."""
    functions = {
        name: _Environments(describe_function(name, None, folder / f"{name}.log", variables))
        for name in FUNCTIONS
    }
    try:
        with HttpDouble(functools.partial(_reply, functions), protocol="HTTP/1.1") as gateway:
            yield gateway.url
    finally:
        for each in functions.values():
            each.stop()
