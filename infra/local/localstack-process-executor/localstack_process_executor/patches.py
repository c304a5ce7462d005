"""What LocalStack 4.14.0 does that it should not. Each function mends one thing, and says which."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any


def listen_where_told() -> None:
    """Listen on the address of GATEWAY_LISTEN: its server takes the port alone, on every interface."""
    from localstack import config
    from localstack.runtime.server import twisted

    theirs = twisted.endpoints
    hosts = {address.port: address.host for address in config.GATEWAY_LISTEN}

    def endpoint(reactor: Any, port: int) -> Any:
        return theirs.TCP4ServerEndpoint(reactor, port, interface=hosts[port])

    twisted.endpoints = SimpleNamespace(
        TCP4ServerEndpoint=endpoint, TCP6ServerEndpoint=theirs.TCP6ServerEndpoint
    )


def forget_ended_threads() -> None:
    """Don't keep each invocation's metric thread: it starts one and holds it, and fails at some 32,000."""
    from localstack.services.lambda_.invocation import version_manager

    version_manager.start_thread = functools.partial(version_manager.start_thread, _shutdown_hook=False)
