"""The applications of the layer, as one process of the server has them.

Those of `query` and `produce` are built once: their requests are greenlets. What would hold up or end the
process is answered by a child process: `explore`, and large bodies (child_process).
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from keylane.api.http.request import Request
from keylane.api.http.response import Response
from keylane.api.http.router import Application
from keylane.app import produce, query
from keylane.config.api import ApiSettings
from keylane.errors import SettingsError
from keylane.model.routes import PRODUCE, QUERY, Target
from keylane.wiring.application import read_api_settings
from keylane.wiring.runtime import Runtime
from keylane_server.child_process import ChildProcess
from keylane_server.greenlets import run_request

_log = logging.getLogger("keylane.serve")


class Applications:
    """The applications of a runtime and an environment. `settings`: what they serve, once they are open.

    `write_place`: what a request that runs as a read is in while it writes.
    `explore_process` answers the requests of `explore`, `body_parser` those with large bodies.
    """

    def __init__(self, runtime: Runtime, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.query = query.build(runtime, environment)
        self._in_loop: dict[str, Application[Any]] = {
            QUERY: self.query,
            PRODUCE: produce.build(runtime, environment),
        }
        self.write_place: Callable[[], AbstractContextManager[None]] = nullcontext
        runtime.write = self._write
        self.settings = ApiSettings()
        metrics = runtime.open_metrics("")
        self.explore_process = ChildProcess("asks Kafka", environment, metrics)
        self.body_parser = ChildProcess("takes large bodies", environment, metrics)

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

    def _write(self, request: Request) -> Response[Any]:
        with self.write_place():
            return self._in_loop[PRODUCE].respond_within(request)

    def flush_meters(self) -> None:
        """Have all meters of the loop's thread hand on what they have."""
        for application in self._in_loop.values():
            application.meter.flush()

    async def close(self) -> None:
        """End the processes beside this one."""
        await self.explore_process.close()
        await self.body_parser.close()
