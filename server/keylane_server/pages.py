"""Pages of the server itself: whether it lives and is ready, its metrics, the console, the API's reference.

    /health/live     200: the process answers
    /health/ready    200: it serves requests; 503: it is being stopped
    /metrics         for Prometheus; of all processes of the server
    /console/        the console, where its files are there: clients/console
    /docs            the reference of the API, a page of these files
    /console/login.json   how people log in to it; {} where they don't
    /openapi.json    the API as an OpenAPI document, one of these files

They need no token and are not in the metrics. `/health` is the API's: it asks Kafka and Redis. The console's
files need nothing but an origin that also has the API, and hold no data.
"""

import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from keylane.config.login import Login
from keylane_server.metrics import ServerMetrics

LIVE, READY, METRICS, CONSOLE = "/health/live", "/health/ready", "/metrics", "/console"
DOCS, OPENAPI = "/docs", "/openapi.json"
LOGIN = "/console/login.json"
INDEX = "index.html"
PROBES = frozenset({LIVE, READY})
_OK, _UNAVAILABLE = 200, 503
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src {asked}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
CONSOLE_HEADERS = {
    "Content-Security-Policy": _POLICY.format(asked="'self'"),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Of each file. The page has no inline script or style, so the policy allows none."""
_MOVED = {DOCS: "console/docs.html", f"{DOCS}/": "../console/docs.html"}
_NAME = re.compile(r"[a-z]+\.(?:css|html|js|json|svg)")


class OwnPage(NamedTuple):
    """A page: status, headers, body."""

    status: int
    headers: dict[str, str]
    body: bytes


MakePage: TypeAlias = Callable[[str], Awaitable[OwnPage]]


class OwnPages:
    """The pages of one process. `flush` has all meters hand their numbers to `metrics`.

    `console`: the folder of the console, None without it.
    """

    def __init__(
        self, metrics: ServerMetrics, flush: Callable[[], None], console: Path | None = None
    ) -> None:
        self.metrics = metrics
        self.is_ready = True
        self._flush = flush
        self._console = console
        self._files: dict[str, OwnPage] = {}
        """The console's: strangers ask for them, and to read a file holds up the loop."""
        self._policy = _policy_for(())
        self._login = b"{}"
        self._pages: dict[str, MakePage] = {
            LIVE: self._live,
            READY: self._ready,
            METRICS: self._render_metrics,
        }

    def offer_login(self, login: Login) -> None:
        """Have people log in to the console, which may ask the issuer then."""
        self._policy = _policy_for(login.origins)
        self._login = json.dumps(login.document).encode()

    def find(self, path: str) -> MakePage | None:
        """Return what makes the page at a path from an Accept header; None where there is none."""
        page = self._pages.get(path)
        if page is None and self._console:
            if path in _MOVED:
                return partial(_moved_page, _MOVED[path])
            if path == LOGIN:
                return self._show_login
            if path == OPENAPI or is_console(path):
                return partial(self._console_page, CONSOLE + OPENAPI if path == OPENAPI else path)
        return page

    async def _console_page(self, path: str, _: str) -> OwnPage:
        assert self._console is not None  # noqa: S101 - for the type checker: `find` has looked
        name = path.removeprefix(f"{CONSOLE}/") or INDEX
        found = self._files.get(name)
        if found is None:
            found = serve_console(self._console, path)
            if found.status == _OK and _NAME.fullmatch(name):  # it is not ././index.html
                self._files[name] = found
        return found._replace(headers={**found.headers, **self._policy})

    async def _show_login(self, _: str) -> OwnPage:
        return OwnPage(_OK, {**CONSOLE_HEADERS, **self._policy, "Content-Type": _TYPES[".json"]}, self._login)

    async def _live(self, _: str) -> OwnPage:
        return _status_page(_OK, "live")

    async def _ready(self, _: str) -> OwnPage:
        return _status_page(_OK, "ready") if self.is_ready else _status_page(_UNAVAILABLE, "stopping")

    async def _render_metrics(self, accept: str) -> OwnPage:
        self._flush()
        body, content_type = self.metrics.render_page(accept)
        return OwnPage(_OK, {"Content-Type": content_type}, body)


def is_console(path: str) -> bool:
    """Return whether a request's path belongs to the console."""
    return path == CONSOLE or path.startswith(f"{CONSOLE}/")


def serve_console(folder: Path, path: str) -> OwnPage:
    """Return the file of the console's folder at a path for which `is_console` holds."""
    if path == CONSOLE:
        return _moved("console/")
    file = folder / (path.removeprefix(f"{CONSOLE}/") or INDEX)
    # A name without a slash or a leading dot: no path leads out of the folder.
    if not _NAME.fullmatch(file.name) or file.parent != folder or not file.is_file():
        headers = {**CONSOLE_HEADERS, "Content-Type": "text/plain; charset=utf-8"}
        return OwnPage(404, headers, b"The console has no such file. It is at /console/\n")
    return OwnPage(200, {**CONSOLE_HEADERS, "Content-Type": _TYPES[file.suffix]}, file.read_bytes())


def _policy_for(origins: tuple[str, ...]) -> dict[str, str]:
    """Return the policy that lets the console ask its own origin and these."""
    return {"Content-Security-Policy": _POLICY.format(asked=" ".join(("'self'", *origins)))}


async def _moved_page(location: str, _: str) -> OwnPage:
    return _moved(location)


def _moved(location: str) -> OwnPage:
    """Relative: a proxy may serve the API below a path of its own."""
    return OwnPage(308, {**CONSOLE_HEADERS, "Location": location}, b"")


def _status_page(status: int, text: str) -> OwnPage:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    return OwnPage(status, headers, json.dumps({"status": text}).encode())
