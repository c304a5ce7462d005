"""The console, as the standing server and the local front serve it: clients/console under `/console/`.

The files need nothing but an origin that also has the API. They hold no data, so they need no token.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from keylane_serve.own_page import OwnPage

if TYPE_CHECKING:
    from pathlib import Path

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
_NAME = re.compile(r"[a-z]+\.(?:css|html|js|json|svg)")


def is_console(path: str) -> bool:
    """Return whether a request's path belongs to the console."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def serve_console(folder: Path, path: str) -> OwnPage:
    """Return the file of the console's folder at a path for which `is_console` holds."""
    if path == PREFIX:
        # Relative: a proxy may serve the API below a path of its own.
        return OwnPage(308, {**HEADERS, "Location": "console/"}, b"")
    file = folder / (path.removeprefix(f"{PREFIX}/") or "index.html")
    # A name without a slash or a leading dot: no path leads out of the folder.
    if not _NAME.fullmatch(file.name) or file.parent != folder or not file.is_file():
        headers = {**HEADERS, "Content-Type": "text/plain; charset=utf-8"}
        return OwnPage(404, headers, b"The console has no such file. It is at /console/\n")
    return OwnPage(200, {**HEADERS, "Content-Type": _TYPES[file.suffix]}, file.read_bytes())
