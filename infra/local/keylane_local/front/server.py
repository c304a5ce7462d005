"""The HTTP front, a small API Gateway and Lambda: `python -m keylane_local.front.server`.

Each request becomes a proxy event for one of the functions, and the function's response the HTTP response.
Functions run in execution environments, as on Lambda. The access log goes to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from keylane.model.routes import EXPLORE, FUNCTIONS, function_for
from keylane_local.front.connections import FrontListener, to_web_response
from keylane_local.front.environments import Function, TimedOut
from keylane_local.front.pool import Pool, Throttled
from keylane_local.front.refusals import unknown_coding
from keylane_local.front.runtime_api import InitFailed
from keylane_local.process.ports import HOST
from keylane_local.tools import console_dir, project_root
from keylane_serve.console import is_console, serve_console
from keylane_serve.function_metrics import FunctionMetrics
from keylane_serve.proxy_events import (
    HttpRequest,
    HttpResponse,
    MalformedResponse,
    build_proxy_event,
    parse_function_response,
    render_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp.web_request import BaseRequest

_log = logging.getLogger("keylane.front")
# Lambda's limit for a synchronous event.
MAX_EVENT_BYTES = 6 * 1024 * 1024
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
METRICS_PATH = "/metrics"
"""Served by the front itself. On AWS the metrics go to CloudWatch."""
PASSED_PREFIXES = (
    *("KEYLANE_", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
)
"""Prefixes of the front's own variables that functions get: settings, AWS endpoints and credentials."""
MAX_EXPLORE_ENVIRONMENTS = 2
"""People and monitors call `explore`: it needs few environments."""


class FrontServer:
    """Serves HTTP on one port. `route` maps a method and a path to a function's name."""

    def __init__(
        self, functions: Mapping[str, Function], route: Callable[[str, str], str] = function_for
    ) -> None:
        self.metrics = FunctionMetrics()
        self.pools = {name: Pool(function, self.metrics.take_line) for name, function in functions.items()}
        self._route = route
        self._http = FrontListener(self._serve, self.metrics.count_refusal)
        self._server: asyncio.Server | None = None

    async def open(self, port: int, host: str = HOST) -> int:
        """Warm one environment per function, then listen; return the port (a free one if `port` is 0).

        Raises InitFailed if a handler cannot be loaded, OSError if the port is taken.
        """
        warmed = await asyncio.gather(*(pool.warm() for pool in self.pools.values()), return_exceptions=True)
        if broken := [error for error in warmed if error]:
            await self.close()
            raise broken[0]
        self._server = await asyncio.get_running_loop().create_server(self._http, host, port)
        listening: int = self._server.sockets[0].getsockname()[1]
        return listening

    async def close(self) -> None:
        """Stop listening, give requests a second to finish, then kill the environments."""
        if self._server:
            self._server.close()
        await self._http.shutdown(1)
        await asyncio.gather(*(pool.close() for pool in self.pools.values()))

    async def _serve(self, request: BaseRequest) -> web.StreamResponse:
        if request.path == METRICS_PATH and request.method in {"GET", "HEAD"}:
            return self._metrics(request)
        if is_console(request.path) and request.method in {"GET", "HEAD"}:
            page = serve_console(console_dir(), request.path)
            return web.Response(status=page.status, body=page.body, headers=page.headers)
        started = time.perf_counter()
        request_id = str(uuid.uuid4())
        function = self._route(request.method, request.raw_path.partition("?")[0])
        response = await self._answer(request, request_id, function)
        _log.info(
            "%s %s %s %d %d B %.1f ms %s %s",
            request.remote,
            request.method,
            request.raw_path,
            response.status,
            len(response.body),
            (time.perf_counter() - started) * 1000,
            function,
            request_id,
        )
        return to_web_response(response, request_id)

    def _metrics(self, request: BaseRequest) -> web.Response:
        from keylane_serve import openmetrics  # noqa: PLC0415 (the front starts faster without it)

        body, content_type = openmetrics.render_page(self.metrics, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    def _refuse(self, status: int, text: str) -> HttpResponse:
        self.metrics.count_refusal(status)
        return render_message(status, text)

    async def _answer(self, request: BaseRequest, request_id: str, function: str) -> HttpResponse:
        if refusal := unknown_coding(request.headers.get("Transfer-Encoding", "")):
            self.metrics.count_refusal(refusal.kind.status)
            return refusal.render(request_id)
        event = await _build_event(request, request_id)
        if event is None:
            return self._refuse(413, "Request Too Long")
        try:
            answer = await self.pools[function].invoke(event, request_id)
            if not answer.failed:
                return parse_function_response(answer.payload)
            _log.error("%s failed: %s", function, answer.payload.decode("utf-8", "replace")[:500])
        except MalformedResponse as error:
            _log.error("%s returned a malformed response: %s", function, error)
        except Throttled as error:
            _log.warning("%s", error)
            return self._refuse(429, "Too Many Requests")
        except TimedOut as error:
            _log.error("%s", error)
            return self._refuse(504, "Endpoint request timed out")
        return self._refuse(502, "Internal server error")


async def _build_event(request: BaseRequest, request_id: str) -> bytes | None:
    """Return the request's proxy event as JSON, or None if body or event exceeds MAX_EVENT_BYTES."""
    body = await _read_body(request)
    if body is None:
        return None
    received = HttpRequest(
        method=request.method,
        target=request.raw_path,
        headers=tuple(request.headers.items()),
        body=body,
        source_ip=request.remote or HOST,
    )
    event = json.dumps(build_proxy_event(received, request_id)).encode()
    return event if len(event) <= MAX_EVENT_BYTES else None


async def _read_body(request: BaseRequest) -> bytes | None:
    """Return the request's body, or None if it exceeds MAX_EVENT_BYTES."""
    if (request.content_length or 0) > MAX_EVENT_BYTES:
        return None
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > MAX_EVENT_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def describe_functions(folder: Path, log: Path, max_environments: int) -> dict[str, Function]:
    """Describe the functions in `folder`. They get this process's KEYLANE_ and AWS variables."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(PASSED_PREFIXES)}
    return {
        name: Function(
            name=f"keylane-{name}",
            code=folder / name,
            layer=project_root() / "layers" / "keylane" / "python",
            log=log,
            variables=variables,
            max_environments=(
                min(max_environments, MAX_EXPLORE_ENVIRONMENTS) if name == EXPLORE else max_environments
            ),
        )
        for name in FUNCTIONS
    }


async def _run(port: int, host: str, functions: Mapping[str, Function]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    front = FrontServer(functions)
    try:
        print(f"keylane: ready on http://{host}:{await front.open(port, host)}", flush=True)
    except InitFailed as error:
        sys.exit(f"a function could not be loaded: {error}")
    await stopped.wait()
    await front.close()
    _log.info("stopped")


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="keylane_local.front.server")
    parser.add_argument("--host", default=HOST, help="default: loopback, this machine only")
    parser.add_argument("--port", type=int, required=True, help="port to listen on; 0: any free port")
    parser.add_argument(
        "--functions", type=Path, default=project_root() / "functions", help="folder of the functions"
    )
    parser.add_argument("--function-log", type=Path, required=True, help="file for the functions' output")
    parser.add_argument("--max-environments", type=int, default=8, help="of each function; default: 8")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    functions = describe_functions(options.functions, options.function_log, options.max_environments)
    asyncio.run(_run(options.port, options.host, functions))


if __name__ == "__main__":
    main()
