"""Serves the board, and lets the flights of 2013 depart again, as if it were today: `make example`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from issuer import CUSTOMERS, LIFETIME_S, Issuer

from keylane_build.release.contents import read_members
from keylane_build.release.npm_package import build_package
from keylane_client import Client, KeylaneError, NewRecord, WriteFailed
from keylane_local.demo import flights
from keylane_local.stack.stack import Stack
from keylane_local.tools import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent
TOPIC = "flights"
PAGE, API = "http://localhost:8090", "http://localhost:8091"
LOADED = 5_200
"""Flights that have departed when the board opens: those of five days."""
PAUSE_S = 0.7
"""Between two departures."""
FIELDS = ("carrier", "flight", "origin", "dest", "sched_dep_time", "dep_time", "dep_delay", "arr_delay")


class BoardHandler(SimpleHTTPRequestHandler):
    """Serves the page's files and those in `made` (by path), and tokens to customers."""

    def __init__(self, issuer: Issuer, made: dict[str, bytes], api: str, *arguments: Any) -> None:
        self._issuer, self._made, self._api = issuer, made, api
        super().__init__(*arguments, directory=str(FOLDER / "page"))

    def do_GET(self) -> None:
        """Answer a GET."""
        path = self.path.partition("?")[0]
        if path in self._made:
            self._answer(self.guess_type(path), self._made[path])
        else:
            super().do_GET()

    def do_POST(self) -> None:
        """Log a customer in: a real issuer would ask for a password here."""
        form = parse_qs(self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 1_000)).decode())
        customer = form.get("customer", [""])[0]
        if self.path != "/token" or customer not in CUSTOMERS:
            self.send_error(404)
            return
        self._answer("text/plain", self._issuer.token(customer).encode())

    def _answer(self, media_type: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media_type)
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
        """Log nothing: the terminal has the addresses alone."""


@contextlib.contextmanager
def serving_board(
    issuer: Issuer, client: dict[str, bytes], api: str, port: int, topic: str = TOPIC
) -> Iterator[None]:
    """Serve page, tokens and the issuer's keys while the block runs. `client`: its modules by path."""
    config = {"api": api, "topic": topic, "customers": CUSTOMERS, "token_lifetime_s": LIFETIME_S}
    made = {"/config.json": config, "/jwks.json": issuer.jwks}
    files = {path: json.dumps(each).encode() for path, each in made.items()}
    handler = partial(BoardHandler, issuer, {**files, **client}, api)
    with ThreadingHTTPServer(("localhost", port), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


@contextlib.contextmanager
def serving_api(stack: Stack) -> Iterator[None]:
    """Run the server that customers ask: the stack's own asks nobody for a token."""
    command = [
        sys.executable,
        "-m",
        "keylane_client.cli",
        "serve",
        "--port",
        "8091",
        "--authorization",
        "tokens",
    ]
    access = {"KEYLANE_ACCESS": f"file:{FOLDER / 'access.toml'}", "KEYLANE_CORS_ORIGIN": PAGE}
    with subprocess.Popen(command, env={**os.environ, **stack.environment(), **access}) as server:
        try:
            while server.poll() is None and not _accepts("localhost", 8091):
                time.sleep(0.1)
            yield
        finally:
            server.terminate()


def _accepts(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 5):
        return True
    return False


def departures() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the key of its aircraft and each flight, in the order of 2013."""
    for tail, value in flights.records():
        if tail is not None:
            flight = json.loads(value)
            flown = {name: flight[name] for name in FIELDS}
            yield f"{flight['carrier']}/{tail.decode()}", flown


def load(api: str, topic: str = TOPIC, count: int = LOADED) -> int:
    """Write the first flights, and return how many aircraft there are, once all can be read."""
    with Client(api) as client:
        flown = client.session().topic(topic)
        for result in flown.push(NewRecord(*each) for each in islice(departures(), count)):
            if isinstance(result, WriteFailed):
                raise SystemExit(f"a flight was not written: {result.message}")
        return flown.count()


def depart_again(api: str) -> None:
    """Write one flight after the other. Ends with KeyboardInterrupt."""
    with Client(api) as client:
        topic = client.topic(TOPIC)
        for key, flight in islice(departures(), LOADED, None):
            try:
                topic.put(key, flight)
            except KeylaneError as error:
                print(f"a flight was not written: {error}", file=sys.stderr)
            time.sleep(PAUSE_S)


def main() -> None:
    """Serve until Ctrl-C, beside the stack of this folder."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    stack = Stack(FOLDER / ".keylane")
    if stack.state is None:
        sys.exit("no stack runs here: `make example` starts it")
    package = build_package(project_root(), project_root() / "build" / "typescript")
    client = {"/client.js": read_members(package)["package/dist/index.js"]}
    print(f"{load(stack.http_url)} aircraft have departed.", flush=True)
    with serving_board(Issuer(f"{PAGE}/"), client, API, 8090), serving_api(stack):
        print(f"\nThe board:  {PAGE}/\nCtrl-C ends it; the stack keeps running.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            depart_again(stack.http_url)


if __name__ == "__main__":
    main()
