"""Starts granian with the processes of the server: `python -m keylane_server.server`, or `keylane serve`.

granian binds the port and starts the processes. At SIGTERM it accepts nothing more, waits for the answers to
what runs, and kills what has not ended after `drain_s`. Of several processes, it starts those again that die.
"""

import os
import socket
import tempfile
from typing import Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels

from keylane_server.options import METRICS_FOLDER, VARIABLE, ServerOptions

TARGET = "keylane_server.worker:build"
CONNECTIONS = 8_192
"""Of one process: further ones wait in the backlog."""
BACKLOG = 1_024
HEADER_TIMEOUT_MS = 75_000
"""For the head of a request, and for the next one on a kept connection: hyper has one timer for both.

Longer than load balancers keep a connection (60 s): else a request meets one that is being closed (502).
"""
BUFFER_BYTES = 400 * 1024
"""Of the head of an HTTP/1.1 request."""


def serve(options: ServerOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError where the port is taken."""
    check_port(options.host, options.port)
    with tempfile.TemporaryDirectory(prefix="keylane-serve-") as folder:
        if options.workers > 1:
            os.environ[METRICS_FOLDER] = folder
        os.environ[VARIABLE] = options.to_variable()
        _make_server(options).serve()


def _make_server(options: ServerOptions) -> Any:  # granian chooses the class by the interpreter
    return Granian(
        TARGET,
        factory=True,
        address=options.host,
        port=options.port,
        interface=Interfaces.ASGI,
        workers=options.workers,
        loop=Loops.uvloop,
        http=HTTPModes.auto,
        websockets=False,
        backlog=BACKLOG,
        backpressure=CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_TIMEOUT_MS, max_buffer_size=BUFFER_BYTES),
        log_level=LogLevels.warning,
        ssl_cert=options.tls_certificate,
        ssl_key=options.tls_key,
        respawn_failed_workers=options.workers > 1,
        workers_kill_timeout=options.drain_s,
    )


def check_port(host: str, port: int) -> None:
    """Raise OSError where another program listens: its processes and ours would share the connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def main() -> None:
    """Serve with the options of the environment."""
    serve(ServerOptions.from_environment(os.environ))


if __name__ == "__main__":
    main()
