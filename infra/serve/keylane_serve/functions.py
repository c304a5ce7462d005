"""The handlers of the Lambda functions, loaded from their own folders.

`query` and `produce` are loaded once: their requests are greenlets. `explore` is called by people and
monitors, and its clients block: it is loaded for each of a few threads, as Lambda does for each environment.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from keylane.api import router
from keylane.errors import SettingsError
from keylane.model.routes import EXPLORE, PRODUCE, QUERY
from keylane_serve.admission import Overloaded
from keylane_serve.greenlets import run_request
from keylane_serve.handlers import load_handler

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from keylane.api.response import Response

    Event = dict[str, Any]

EXPLORE_THREADS = 4
EXPLORE_REQUESTS = 32
"""Requests of `explore` that run and wait: they are slow, and must not take the places of all others."""
_log = logging.getLogger("keylane.serve")


class Functions:
    """The functions in a folder. `open` loads them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, ModuleType] = {}
        self._threads = ThreadPoolExecutor(EXPLORE_THREADS, "keylane-explore")
        self._local = threading.local()
        self._exploring = 0

    async def open(self) -> None:
        """Load the handlers and build what they work with.

        A function whose settings are wrong answers as on Lambda: with a problem document. Raises
        SettingsError where that is all of them.
        """
        faults: list[SettingsError] = []
        for name in (QUERY, PRODUCE):
            self._modules[name] = load_handler(self._folder, name)
            try:
                await run_request(self._modules[name].parts)
            except SettingsError as error:
                faults.append(error)
                _log.error("%s: %s", name, error)
        if len(faults) == len(self._modules):
            raise faults[0]

    def answer(self, function: str, event: Event) -> Response[Any]:
        """Answer an event of `query` or `produce`, in a greenlet."""
        return router.respond(self._modules[function].app, event)

    async def answer_in_thread(self, event: Event) -> Response[Any]:
        """Answer an event of `explore`. Raises Overloaded."""
        if self._exploring >= EXPLORE_REQUESTS:
            raise Overloaded(f"{self._exploring} requests ask Kafka")
        self._exploring += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._explore, event)
        finally:
            self._exploring -= 1

    def flush_meters(self) -> None:
        """Have all meters of the loop's thread write what they have."""
        for module in self._modules.values():
            module.meter.flush()

    def close(self) -> None:
        """End the threads of `explore`; those that are busy are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _explore(self, event: Event) -> Response[Any]:
        if not hasattr(self._local, "app"):
            self._local.app = load_handler(self._folder, EXPLORE).app
        return router.respond(self._local.app, event)
