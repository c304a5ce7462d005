"""The console, as an HTTP server serves it: the files of clients/console under `/console/`.

Any server can call `serve_console`; the files need nothing but an origin that also has the API.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from keylane_local.tools import project_root

PREFIX = "/console"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Of each file. The page has no inline script or style, so the policy allows none."""
_FOLDER = project_root() / "clients" / "console"
_NAME = re.compile(r"[a-z]+\.(?:css|html|js|json|svg)")


class ConsolePage(NamedTuple):
    """What to answer: status, headers, body."""

    status: int
    headers: dict[str, str]
    body: bytes


def is_console(path: str) -> bool:
    """Return whether a request's path belongs to the console."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def serve_console(path: str) -> ConsolePage:
    """Return the file at a path for which `is_console` holds."""
    if path == PREFIX:
        # Relative: a proxy may serve the API below a path of its own.
        return ConsolePage(308, {**HEADERS, "Location": "console/"}, b"")
    name = path.removeprefix(f"{PREFIX}/") or "index.html"
    file = _FOLDER / name
    # A name without a slash or a leading dot: no path leads out of the folder.
    if not _NAME.fullmatch(name) or not file.is_file():
        headers = {**HEADERS, "Content-Type": "text/plain; charset=utf-8"}
        return ConsolePage(404, headers, b"The console has no such file. It is at /console/\n")
    return ConsolePage(200, {**HEADERS, "Content-Type": _TYPES[file.suffix]}, file.read_bytes())
