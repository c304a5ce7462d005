"""Serves the board, and lets the flights of 2013 depart again, as if it were today: `make example`."""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from keylane_client import Client, KeylaneError
from keylane_local.demo import flights
from keylane_local.stack.stack import Stack

FOLDER = Path(__file__).parent
PAGE = FOLDER / "page"
HOST, PORT = "localhost", 8090
PAUSE_S = 0.7
"""Between two departures."""
CONFIG: dict[str, Any] = {
    "topic": "flights",
    "view": "departures",
    "column": "mean_delay",
    "places": ["JFK", "EWR", "LGA"],
    "days": ["2013-02-01", "2013-03-16"],
}


class BoardHandler(SimpleHTTPRequestHandler):
    """Serves the files of the page, and config.json with the API's address."""

    def __init__(self, api: str, config: dict[str, Any], *arguments: Any) -> None:
        self._api = api
        self._config = config
        super().__init__(*arguments, directory=str(PAGE))

    def do_GET(self) -> None:
        """Answer a GET."""
        if self.path != "/config.json":
            super().do_GET()
            return
        body = json.dumps({**self._config, "api": self._api}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """Add what every answer has. The page has no inline script or style, so the policy allows none."""
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
            f" connect-src 'self' {self._api}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing: the terminal has the address alone."""


def serve_board(
    api: str, port: int = PORT, host: str = HOST, config: dict[str, Any] = CONFIG
) -> ThreadingHTTPServer:
    """Serve the board in a thread; return the server."""
    server = ThreadingHTTPServer((host, port), partial(BoardHandler, api, config))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def depart_again(api: str) -> None:
    """Write one flight after the other, with the time of today. Ends with KeyboardInterrupt."""
    with Client(api) as client:
        topic = client.topic(CONFIG["topic"])
        for key, value in flights.records():
            if key is None:
                continue
            flight = json.loads(value)
            flight["time_hour"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:00:00Z")
            try:
                topic.put(key, flight)
            except KeylaneError as error:
                print(f"a flight was not written: {error}", file=sys.stderr)
            time.sleep(PAUSE_S)


def main() -> None:
    """Serve until Ctrl-C, beside the stack of this folder."""
    stack = Stack(FOLDER / ".keylane")
    if stack.state is None:
        sys.exit("no stack runs here: `make example` starts it")
    try:
        serve_board(stack.http_url)
    except OSError as error:
        sys.exit(f"the board can't be served on port {PORT}: {error.strerror}")
    print(f"\nThe board:  http://{HOST}:{PORT}/\nCtrl-C ends it; the stack keeps running.", flush=True)
    try:
        depart_again(stack.http_url)
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
