"""The applications of the layer, as one process of the server has them.

Those of `query` and `produce` are built once: their requests are greenlets. `explore` is called by people and
monitors, and its clients block: each of a few threads has its own, as each environment of Lambda has.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.api.http.router import Application
from keylane.app import explore, produce, query
from keylane.config.api import ApiSettings
from keylane.errors import SettingsError
from keylane.model.routes import PRODUCE, QUERY, Target
from keylane.wiring.application import read_api_settings
from keylane.wiring.runtime import Runtime
from keylane_server.admission import Overloaded
from keylane_server.greenlets import run_request

EXPLORE_THREADS = 4
EXPLORE_REQUESTS = 32
"""Requests of `explore` that run and wait: they are slow, and must not take the places of all others."""
_log = logging.getLogger("keylane.serve")


class Applications:
    """The applications of a runtime and an environment. `settings`: what they serve, once they are open."""

    def __init__(self, runtime: Runtime, environment: Mapping[str, str]) -> None:
        self._runtime = runtime
        self._environment = environment
        self._in_loop: dict[str, Application[Any]] = {
            QUERY: query.build(runtime, environment),
            PRODUCE: produce.build(runtime, environment),
        }
        self.settings = ApiSettings()
        self._threads = ThreadPoolExecutor(EXPLORE_THREADS, "keylane-explore")
        self._local = threading.local()
        self._exploring = 0

    async def open(self) -> None:
        """Read what is served, and build what the applications in the loop work with.

        One whose settings are wrong answers as on Lambda: with a problem document. Raises SettingsError where
        that is both of them.
        """
        self.settings = read_api_settings(self._environment)
        faults: list[SettingsError] = []
        for name, application in self._in_loop.items():
            try:
                await run_request(application.parts)
            except SettingsError as error:
                faults.append(error)
                _log.error("%s: %s", name, error)
        if len(faults) == len(self._in_loop):
            raise faults[0]

    def respond(self, request: Request, target: Target) -> Response[Any]:
        """Answer a request of `query` or `produce`, in a greenlet."""
        return self._in_loop[target.function].respond(request, target)

    async def respond_in_thread(self, request: Request, target: Target) -> Response[Any]:
        """Answer a request of `explore`. Raises Overloaded."""
        if self._exploring >= EXPLORE_REQUESTS:
            raise Overloaded(f"{self._exploring} requests ask Kafka")
        self._exploring += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._explore, request, target)
        finally:
            self._exploring -= 1

    def flush_meters(self) -> None:
        """Have all meters of the loop's thread hand on what they have."""
        for application in self._in_loop.values():
            application.meter.flush()

    def close(self) -> None:
        """End the threads of `explore`; those that are busy are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _explore(self, request: Request, target: Target) -> Response[Any]:
        if not hasattr(self._local, "application"):
            self._local.application = explore.build(self._runtime, self._environment)
        response: Response[Any] = self._local.application.respond(request, target)
        return response
