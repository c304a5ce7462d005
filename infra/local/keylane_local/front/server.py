"""The HTTP front, a small API Gateway and Lambda: `python -m keylane_local.front.server`.

Each request becomes a proxy event for one of the functions, which run as on Lambda, in environments of
their own; what they answer becomes the response. Access lines go to standard error, one per request.
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
from keylane_local.front.environments import Function, TimedOut
from keylane_local.front.measures import Measures
from keylane_local.front.pool import Pool, Throttled
from keylane_local.front.proxy_events import Malformed, Request, Response, message, proxy_event, response_of
from keylane_local.front.runtime_api import InitError
from keylane_local.process.ports import HOST
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp.web_request import BaseRequest

_log = logging.getLogger("keylane.front")
# Lambda's bound of a synchronous event.
MAX_EVENT_BYTES = 6 * 1024 * 1024
# A key of 64 KiB, percent-encoded: that it is too long is the function's word (API Gateway cuts at 10 KiB).
LINE_LIMIT_BYTES = 256 * 1024
METRICS_PATH = "/metrics"
"""The front's own: API Gateway has no such thing, there CloudWatch has them."""
PASSED = (
    *("KEYLANE_", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
)
"""How variables begin that functions get of the front's own: where AWS is, and who asks there, too."""
FEW_ENVIRONMENTS = 2
"""At most so many of `explore`, which people ask, and monitors."""


class Front:
    """Serves HTTP on one port by the functions of `pools`, chosen by `route` (method, path -> name)."""

    def __init__(
        self, functions: Mapping[str, Function], route: Callable[[str, str], str] = function_for
    ) -> None:
        self.measures = Measures()
        self.pools = {name: Pool(function, self.measures.take) for name, function in functions.items()}
        self._route = route
        self._http = web.Server(
            self._serve, access_log=None, auto_decompress=False, max_line_size=LINE_LIMIT_BYTES
        )
        self._server: asyncio.Server | None = None

    async def open(self, port: int, host: str = HOST) -> int:
        """Warm one environment per function, then listen; return the port (any free one for 0).

        Raises InitError where a handler cannot be loaded, OSError where the port is taken.
        """
        warmed = await asyncio.gather(*(pool.warm() for pool in self.pools.values()), return_exceptions=True)
        if broken := [error for error in warmed if error]:
            await self.close()
            raise broken[0]
        self._server = await asyncio.get_running_loop().create_server(self._http, host, port)
        listening: int = self._server.sockets[0].getsockname()[1]
        return listening

    async def close(self) -> None:
        """Stop listening, let what is under way end within a second, and end the environments."""
        if self._server:
            self._server.close()
        await self._http.shutdown(1)
        await asyncio.gather(*(pool.close() for pool in self.pools.values()))

    async def _serve(self, request: BaseRequest) -> web.StreamResponse:
        if request.path == METRICS_PATH and request.method in {"GET", "HEAD"}:
            return self._metrics(request)
        started = time.perf_counter()
        request_id = str(uuid.uuid4())
        function = self._route(request.method, request.raw_path.partition("?")[0])
        response = await self._answer(request, request_id, function)
        http = web.Response(status=response.status, body=response.body)
        http.headers.popall("Content-Type", None)
        for name, value in response.headers:
            http.headers.add(name, value)
        http.headers["x-amzn-RequestId"] = request_id
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
        return http

    def _metrics(self, request: BaseRequest) -> web.Response:
        from keylane_local.front import openmetrics  # noqa: PLC0415 (a front that nobody asks starts without it)

        body, content_type = openmetrics.page(self.measures, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    def _refuse(self, status: int, text: str) -> Response:
        self.measures.refused(status)
        return message(status, text)

    async def _answer(self, request: BaseRequest, request_id: str, function: str) -> Response:
        body = await _bounded_body(request)
        if body is None:
            return self._refuse(413, "Request Too Long")
        event = json.dumps(
            proxy_event(
                Request(
                    method=request.method,
                    target=request.raw_path,
                    headers=tuple(request.headers.items()),
                    body=body,
                    source_ip=request.remote or HOST,
                ),
                request_id,
            )
        ).encode()
        if len(event) > MAX_EVENT_BYTES:
            return self._refuse(413, "Request Too Long")
        try:
            answer = await self.pools[function].invoke(event, request_id)
            if not answer.failed:
                return response_of(answer.payload)
            _log.error("%s failed: %s", function, answer.payload.decode("utf-8", "replace")[:500])
        except Malformed as error:
            _log.error("%s gave a malformed answer: %s", function, error)
        except Throttled as error:
            _log.warning("%s", error)
            return self._refuse(429, "Too Many Requests")
        except TimedOut as error:
            _log.error("%s", error)
            return self._refuse(504, "Endpoint request timed out")
        return self._refuse(502, "Internal server error")


async def _bounded_body(request: BaseRequest) -> bytes | None:
    """Return the request's body, or None where it is over MAX_EVENT_BYTES."""
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


def functions_of(folder: Path, log: Path, max_environments: int) -> dict[str, Function]:
    """Describe the functions in `folder`; their variables are this process's own: KEYLANE_'s and AWS's."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
    return {
        name: Function(
            name=f"keylane-{name}",
            code=folder / name,
            layer=project_root() / "layers" / "keylane" / "python",
            log=log,
            variables=variables,
            max_environments=min(max_environments, FEW_ENVIRONMENTS) if name == EXPLORE else max_environments,
        )
        for name in FUNCTIONS
    }


async def _run(port: int, host: str, functions: Mapping[str, Function]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    front = Front(functions)
    try:
        print(f"keylane: ready on http://{host}:{await front.open(port, host)}", flush=True)
    except InitError as error:
        sys.exit(f"a function cannot be loaded: {error}")
    await stopped.wait()
    await front.close()
    _log.info("stopped")


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="keylane_local.front.server")
    parser.add_argument("--host", default=HOST, help="default: this machine alone")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--functions", type=Path, default=project_root() / "functions")
    parser.add_argument("--function-log", type=Path, required=True)
    parser.add_argument("--max-environments", type=int, default=8)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    functions = functions_of(options.functions, options.function_log, options.max_environments)
    asyncio.run(_run(options.port, options.host, functions))


if __name__ == "__main__":
    main()
