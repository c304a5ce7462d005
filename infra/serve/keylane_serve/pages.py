"""Pages of the server itself: whether it lives, whether it is ready, its metrics.

    /health/live     200: the process answers
    /health/ready    200: it serves requests; 503: it is being stopped
    /metrics         for Prometheus, as the local front's; of all processes of the server

They need no token and are not counted. `/health` is the API's: it asks Kafka and Redis.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from keylane_serve.function_metrics import FunctionMetrics
    from keylane_serve.metric_files import MetricFiles

LIVE, READY, METRICS = "/health/live", "/health/ready", "/metrics"
_OK, _UNAVAILABLE = 200, 503


class OwnPage(NamedTuple):
    """A page."""

    status: int
    headers: dict[str, str]
    body: bytes


class OwnPages:
    """The pages of one process. `flush` has all meters write what they have to `metrics`.

    `files`: None if there is one process.
    """

    def __init__(
        self, metrics: FunctionMetrics, flush: Callable[[], None], files: MetricFiles | None
    ) -> None:
        self.metrics = metrics
        self._files = files
        self.is_ready = True
        self._flush = flush
        self._pages = {LIVE: self._live, READY: self._ready, METRICS: self._render_metrics}

    def find(self, path: str) -> Callable[[str], Awaitable[OwnPage]] | None:
        """Return what renders the page at a path, for an Accept header; None where there is none."""
        return self._pages.get(path)

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


def _status_page(status: int, text: str) -> OwnPage:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    return OwnPage(status, headers, json.dumps({"status": text}).encode())
