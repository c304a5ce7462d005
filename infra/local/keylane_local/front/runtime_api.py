"""The Lambda Runtime API (2018-06-01) of one execution environment, on a loopback port of its own.

A runtime (`python -m awslambdaric`, or any other) with AWS_LAMBDA_RUNTIME_API=`address` polls it for
invocations and posts the responses, as on AWS. It gets one invocation at a time.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from keylane_local.process.ports import HOST

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

PREFIX = "/2018-06-01/runtime"
# Lambda's limit for a synchronous response: 6 MiB, and 100 bytes for what surrounds it.
MAX_RESPONSE_BYTES = 6 * 1024 * 1024 + 100
_OK = b'{"status":"OK"}'


@dataclass(frozen=True, slots=True)
class FunctionResponse:
    """The result of an invocation: the handler's JSON, or Lambda's error object if `failed`."""

    failed: bool
    payload: bytes


# A runtime exits when its response is rejected as too large, so its environment has to be replaced.
TOO_LARGE = FunctionResponse(
    failed=True,
    payload=b'{"errorType":"Function.ResponseSizeTooLarge","errorMessage":'
    b'"the response exceeds %d bytes"}' % MAX_RESPONSE_BYTES,
)


class InitFailed(Exception):
    """The runtime could not load the handler; the text is the error object that the runtime posted."""


class RuntimeApiServer:
    """Serves the Runtime API to one environment; the front calls `invoke`."""

    def __init__(self, function_arn: str = "arn:aws:lambda:local:000000000000:function:local") -> None:
        self.function_arn = function_arn
        self.address = ""
        # Done at the runtime's first request for an invocation; InitFailed if it reports an init error.
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()
        self._request_id: str | None = None
        self._answer: asyncio.Future[FunctionResponse] | None = None
        self._server: asyncio.Server | None = None
        self._http = web.Server(self._serve, access_log=None, handler_cancellation=True)

    async def open(self) -> str:
        """Listen on a free port; return the address for AWS_LAMBDA_RUNTIME_API, "host:port"."""
        self._server = await asyncio.get_running_loop().create_server(self._http, HOST, 0)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"
        return self.address

    async def invoke(self, event: bytes, timeout_s: float, request_id: str | None = None) -> FunctionResponse:
        """Hand `event` (JSON) to the runtime and return its response.

        Raises TimeoutError after `timeout_s`: the runtime is still busy then, and has to be killed.
        The caller ensures that there is one invocation at a time.
        """
        self._request_id = request_id or str(uuid.uuid4())
        answer: asyncio.Future[FunctionResponse] = asyncio.get_running_loop().create_future()
        self._answer = answer
        trace = f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]};Sampled=0"
        headers = {
            "Lambda-Runtime-Aws-Request-Id": self._request_id,
            "Lambda-Runtime-Deadline-Ms": str(int((time.time() + timeout_s) * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": self.function_arn,
            "Lambda-Runtime-Trace-Id": trace,
        }
        self._waiting.put_nowait((headers, event))
        async with asyncio.timeout(timeout_s):
            return await answer

    def fail(self, error: FunctionResponse, init_error: str) -> None:
        """Report that the process has ended: give `error` to the invocation, `init_error` to the start."""
        if self._answer and not self._answer.done():
            self._answer.set_result(error)
        if not self.ready.done():
            self.ready.set_exception(InitFailed(init_error))

    async def close(self) -> None:
        """Stop listening and drop the runtime's connection."""
        if self._server:
            self._server.close()
        await self._http.shutdown(0)
        if self.ready.done() and not self.ready.cancelled():
            self.ready.exception()  # marks it as retrieved, else asyncio logs it when nobody waited
        self.ready.cancel()

    async def _serve(self, request: BaseRequest) -> web.StreamResponse:
        match request.method, request.path.removeprefix(PREFIX).split("/")[1:]:
            case "GET", ["invocation", "next"]:
                return await self._next()
            case "POST", ["invocation", request_id, "response" | "error" as kind]:
                return self._take(request_id, failed=kind == "error", payload=await _body(request))
            case "POST", ["init", "error"]:
                text = (await _body(request)).decode("utf-8", "replace")
                if not self.ready.done():
                    self.ready.set_exception(InitFailed(text))
                return _json(202, _OK)
        return _json(404, b'{"errorType":"NotFound","errorMessage":"no such operation"}')

    async def _next(self) -> web.Response:
        if not self.ready.done():
            self.ready.set_result(None)
        headers, event = await self._waiting.get()
        return web.Response(body=event, headers={"Content-Type": "application/json", **headers})

    def _take(self, request_id: str, *, failed: bool, payload: bytes) -> web.Response:
        if request_id != self._request_id or self._answer is None or self._answer.done():
            return _json(400, b'{"errorType":"InvalidRequestID","errorMessage":"no such invocation"}')
        if len(payload) > MAX_RESPONSE_BYTES:
            self._answer.set_result(TOO_LARGE)
            return _json(413, b'{"errorType":"RequestEntityTooLarge"}')
        self._answer.set_result(FunctionResponse(failed, payload))
        return _json(202, _OK)


async def _body(request: BaseRequest) -> bytes:
    """Read the whole body, however large: the runtime reads the 413 only after it has sent everything."""
    return await request.content.read()


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")
