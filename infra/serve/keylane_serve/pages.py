"""Pages of the server itself: whether it lives, whether it is ready, its metrics.

    /health/live     200: the process answers
    /health/ready    200: it serves requests; 503: it is being stopped
    /metrics         for Prometheus, as the local front's; of all processes of the server
    /console/        the console, where its files are there

They need no token and are not counted. `/health` is the API's: it asks Kafka and Redis.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from keylane_serve.console import is_console, serve_console
from keylane_serve.own_page import OwnPage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from keylane_serve.function_metrics import FunctionMetrics
    from keylane_serve.metric_files import MetricFiles

MakePage: TypeAlias = "Callable[[str], Awaitable[OwnPage]]"
LIVE, READY, METRICS = "/health/live", "/health/ready", "/metrics"
_OK, _UNAVAILABLE = 200, 503


class OwnPages:
    """The pages of one process. `flush` has all meters write what they have to `metrics`.

    `files`: None if there is one process. `console`: the folder of the console, None without it.
    """

    def __init__(
        self,
        metrics: FunctionMetrics,
        flush: Callable[[], None],
        files: MetricFiles | None,
        console: Path | None = None,
    ) -> None:
        self.metrics = metrics
        self._files = files
        self.is_ready = True
        self._flush = flush
        self._console = console
        self._pages: dict[str, MakePage] = {
            LIVE: self._live,
            READY: self._ready,
            METRICS: self._render_metrics,
        }

    def find(self, path: str) -> MakePage | None:
        """Return what makes the page at a path from an Accept header; None where there is none."""
        page = self._pages.get(path)
        if page is None and self._console and is_console(path):
            return partial(_console_page, self._console, path)
        return page

    async def _live(self, _: str) -> OwnPage:
        return _status_page(_OK, "live")

    async def _ready(self, _: str) -> OwnPage:
        return _status_page(_OK, "ready") if self.is_ready else _status_page(_UNAVAILABLE, "stopping")

    async def _render_metrics(self, accept: str) -> OwnPage:
        from keylane_serve import openmetrics  # noqa: PLC0415 (the server starts faster without it)

        self._flush()
        shown = self._files.total() if self._files else self.metrics
        body, content_type = openmetrics.render_page(shown, accept)
        return OwnPage(_OK, {"Content-Type": content_type}, body)


async def _console_page(console: Path, path: str, _: str) -> OwnPage:
    return serve_console(console, path)


def _status_page(status: int, text: str) -> OwnPage:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    return OwnPage(status, headers, json.dumps({"status": text}).encode())
